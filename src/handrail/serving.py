"""Serve an application over HTTP so that no client can lock the others out: deadlines, limits, tokens, host names."""

import hmac
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from types import FrameType
from typing import Any, Final, Literal, cast

import anyio
import h11
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from handrail.aio import running_loop
from handrail.contract.errors import HandrailError

MIN_TOKEN_CHARS: Final = 16
"""Length of the shortest token that is accepted, in characters."""
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE: Final = ("0.0.0.0", "::", "")
BACKLOG_COUNT: Final = 512
"""Number of connections that the kernel holds until they are accepted."""
ACCEPT_PAUSE_SECONDS: Final = 0.25
"""Seconds until the next attempt to accept a connection, if no file could be closed for it."""
COMPLAINT_SECONDS: Final = 60.0
"""Seconds between two log entries about files that have run out."""
Owed = Literal["", "headers", "body"]
"""The part of a request that a client has still to send."""
log = logging.getLogger("handrail")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """Limits on one server's clients."""

    header_seconds: float = 10.0
    """Seconds from the connection, or the last answer, to the end of a request's headers."""
    body_seconds: float = 60.0
    """Seconds from the end of a request's headers to the end of its body."""
    idle_seconds: int = 5
    """Seconds until a connection without a request is closed."""
    close_seconds: int = 3
    """Seconds until requests that still run are cancelled, when the server ends."""
    connections: int = 1_000
    """Number of connections open at once; never more than half of the files that this process may open."""
    requests_per_client: int = 256
    """Number of one client's open requests, event streams included; never more than half of all connections."""


class BearerTokens:
    """Accepted tokens. Each token is a client of its own."""

    def __init__(self, tokens: Sequence[str]) -> None:
        if not tokens or isinstance(tokens, str):
            raise HandrailError("the server needs at least one token, in a list")
        for token in tokens:
            if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
                raise HandrailError(
                    f"a token has at least {MIN_TOKEN_CHARS} printable ASCII characters and no spaces; "
                    'make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
                )
        self._known = [sha256(token.encode()).digest() for token in tokens]

    @property
    def clients(self) -> list[str]:
        """The name of each token's client."""
        return list(dict.fromkeys(_client_of(known) for known in self._known))

    def find(self, token: str) -> str | None:
        """The client whose token it is; None if it is unknown. Takes as long for a wrong token as for a right one."""
        given = sha256(token.encode("utf-8", "replace")).digest()
        matches = [known for known in self._known if hmac.compare_digest(known, given)]
        return _client_of(matches[0]) if matches else None

    def client_of(self, scope: Scope) -> str | None:
        """The client that sends this request; None for a stranger."""
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return self.find(given[7:].decode("latin-1")) if given[:7].lower() == b"bearer " else None


def _client_of(digest: bytes) -> str:
    return digest.hex()[:32]


class Connections(ServerState):
    """The open connections of one server, and how many requests each client has open."""

    def __init__(self, limits: ServingLimits, identify: Callable[[Scope], str | None]) -> None:
        super().__init__()
        self.limits, self.identify = limits, identify
        self.ending = False
        self._most = min(limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._most_requests = min(limits.requests_per_client, max(1, self._most // 2))
        self._strangers: dict[Connection, None] = {}
        self._resting: dict[Connection, None] = {}
        """Connections of known clients without a request. Both tables begin with the oldest connection."""
        self._requests: Counter[str] = Counter()

    def enter(self, connection: "Connection") -> None:
        """Count a new connection, which is a stranger's until its client is known."""
        self._strangers[connection] = None

    def leave(self, connection: "Connection") -> None:
        """Forget a connection that was closed."""
        self._strangers.pop(connection, None)
        self._resting.pop(connection, None)

    def make_room(self) -> bool:
        """Whether one more connection fits. To make room, the oldest one that serves no known client is dropped."""
        return len(self.connections) < self._most or self.drop_one()

    def drop_one(self) -> bool:
        """Drop a connection on which no known client waits for an answer; False if there is none."""
        for group in (self._strangers, self._resting):
            if group:
                next(iter(group)).drop()
                return True
        return False

    @contextmanager
    def serving(self, connection: "Connection", client: str | None) -> Iterator[bool]:
        """Whether the client may have this request served; until then its connection is not dropped for others."""
        if client is None:
            yield True
            return
        self.leave(connection)
        self._requests[client] += 1
        try:
            yield self._requests[client] <= self._most_requests
        finally:
            self._requests[client] -= 1
            if connection in self.connections:
                self._resting[connection] = None


class Connection(H11Protocol):
    """One connection. The rest of a request has a deadline, which no single byte extends."""

    def __init__(self, config: uvicorn.Config, server_state: ServerState, app_state: Any, _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = cast(Connections, server_state)
        self._inner, self.app = self.app, cast(Any, self._serve)
        self._owes: Owed = ""
        self._deadline: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._all.enter(self)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.leave(self)
        self._stop_watching()

    def shutdown(self) -> None:
        """End the connection soon; at once if it waits for the rest of a request."""
        if self._owes == "body":
            self.drop()
        else:
            super().shutdown()

    def drop(self) -> None:
        """Close the connection at once, whatever is unsent."""
        self._all.leave(self)
        self.connections.discard(self)
        self.transport.abort()

    def _watch(self) -> None:
        """Begin a deadline when the client owes another part of a request than before."""
        owes: Owed = ""
        if self.conn.their_state is h11.IDLE:
            owes = "headers"
        elif self.conn.their_state is h11.SEND_BODY:
            owes = "body"
        if owes == self._owes:
            return
        self._stop_watching()
        self._owes = owes
        if owes:
            limits = self._all.limits
            seconds = limits.header_seconds if owes == "headers" else limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._be_late)

    def _stop_watching(self) -> None:
        self._owes = ""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _be_late(self) -> None:
        if self.transport.is_closing() or self.transport.get_write_buffer_size():  # it does not read either
            self.drop()
            return
        begun = bool(self.conn.trailing_data[0]) if self._owes == "headers" else not self.cycle.response_started
        if begun:
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as far as its client's limit and the server's own end allow."""
        cycle = self.cycle
        try:
            with self._all.serving(self, self._all.identify(scope)) as admitted:
                await (cast(ASGIApp, self._inner) if admitted else _too_many)(scope, receive, send)
        except anyio.get_cancelled_exc_class():
            if not self._all.ending:
                raise
        except Exception:
            if not cycle.disconnected:
                raise
        if self._all.ending and not cycle.response_complete:
            cycle.disconnected = True  # otherwise the lack of an answer is logged as the application's mistake
            self.drop()


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    text = "Too many requests of this client are open; wait until one of them is answered.\n"
    headers = {"retry-after": "1", "connection": "close"}
    await PlainTextResponse(text, HTTPStatus.TOO_MANY_REQUESTS, headers)(scope, receive, send)


class _Server(uvicorn.Server):
    """A server that accepts connections itself: asyncio repeats a failed attempt 2,048 times at once, and logs each."""

    def __init__(self, config: uvicorn.Config, connections: Connections, listening: socket.socket) -> None:
        super().__init__(config)
        self.server_state = self._connections = connections
        self._listening = listening
        self.started_up, self.stopped = anyio.Event(), anyio.CancelScope()
        self._complained = -COMPLAINT_SECONDS

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # No sockets for uvicorn: it would accept by asyncio, whose accept loop is the one replaced here.
        await super().startup(sockets=[])
        self.started_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._connections.ending = True
        self.stopped.cancel()
        await super().shutdown(sockets=[])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; at the second signal, do not wait for anything."""
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)

    async def accept(self) -> None:
        """Accept connections until the server ends. Only here is the socket closed: nothing waits for it by then."""
        self._listening.setblocking(False)
        with self._listening, self.stopped:
            await self.started_up.wait()
            while not self._connections.ending:
                await anyio.wait_readable(self._listening)
                await self._accept_one()

    async def _accept_one(self) -> None:
        try:
            taken, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptor or no memory is left
            self._complain(error)
            await anyio.sleep(0 if self._connections.drop_one() else ACCEPT_PAUSE_SECONDS)
            return
        taken.setblocking(False)
        if self._connections.make_room():
            await running_loop().connect_accepted_socket(self._protocol, taken)
        else:
            taken.close()

    def _protocol(self) -> Connection:
        return Connection(self.config, self._connections, self.lifespan.state)

    def _complain(self, error: OSError) -> None:
        if anyio.current_time() - self._complained >= COMPLAINT_SECONDS:
            self._complained = anyio.current_time()
            log.warning("a connection could not be accepted: %s", error.strerror)


async def serve_app(
    app: ASGIApp, listening: socket.socket, identify: Callable[[Scope], str | None], limits: ServingLimits
) -> None:
    """Serve until a signal comes or the caller is cancelled.

    Args:
        listening: the socket on which connections are accepted; it is closed at the end.
        identify: returns the name of a request's client; None for a stranger, whose connection others may displace.
    """
    config = uvicorn.Config(
        app, http=Connection, ws="none", lifespan="on", log_config=None, access_log=False, server_header=False,
        timeout_keep_alive=limits.idle_seconds, timeout_graceful_shutdown=limits.close_seconds,
    )  # fmt: skip
    server = _Server(config, Connections(limits, identify), listening)

    async def work() -> None:
        with anyio.CancelScope(shield=True):  # if it were cancelled, it would leave connections open
            await server.serve()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        try:
            await server.accept()
            await anyio.sleep_forever()
        finally:
            server.should_exit = True


def bound(host: str, port: int) -> socket.socket:
    """A listening socket. Raises HandrailError that says what is wrong with the address."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family[0], socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise HandrailError(f"there is no address {host}:{port}: {error}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(family[4])
        listening.listen(BACKLOG_COUNT)
    except (OSError, OverflowError) as error:
        listening.close()
        raise HandrailError(
            f"{host}:{port} cannot be used: {error}; choose another port, or 0 for any free one"
        ) from None
    return listening


def hosts_of(host: str, port: int) -> list[str]:
    """Values of a Host header by which a server that listens at this address may be reached."""
    names = names_of(host)
    return [f"{name}:{port}" for name in names] + (names if port == 80 else [])


def names_of(host: str) -> list[str]:
    """Names by which a browser or a program may reach a server that listens at this address."""
    named = f"[{host}]" if ":" in host else host
    if host not in EVERYWHERE:
        return sorted({named, *LOOPBACK})
    names = {socket.gethostname(), socket.getfqdn()}
    for family, _, _, _, address in _addresses(socket.gethostname()):
        names.add(f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0]))
    return sorted({*names, *LOOPBACK})


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a server that listens at this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _addresses(name: str) -> list[Any]:
    try:
        return [*socket.getaddrinfo(name, None)]
    except OSError:  # a machine whose own name nobody knows
        return []
