"""Serve over HTTP: on this machine unless told otherwise, to requests that have a token and the right host name."""

import hmac
import socket
from collections.abc import Callable, Sequence
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Final

import anyio
import uvicorn
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp

from handrail.contract.errors import HandrailError
from handrail.contract.limits import MCP_CLOSE_WAIT

LARGEST_REQUEST: Final = 4 << 20
"""Bytes of one HTTP request."""
MOST_SESSIONS: Final = 256
"""MCP sessions that may be open at once over HTTP."""
SHORTEST_TOKEN: Final = 16
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE: Final = ("0.0.0.0", "::", "")


async def serve_http(
    server: Server[Any], host: str, port: int, tokens: Sequence[str], *, ready: Callable[[str], None]
) -> None:
    """Serve until a signal comes or the caller is cancelled; `ready` is told the address. Port 0 is any free one."""
    with bound(host, port) as listening:
        port = listening.getsockname()[1]
        app = http_app(server, names_of(host), port, tokens)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=MCP_CLOSE_WAIT
        )
        ready(f"http://{host if ':' not in host else f'[{host}]'}:{port}/mcp")
        await _run(uvicorn.Server(config), listening)


async def _run(server: uvicorn.Server, listening: socket.socket) -> None:
    """Run it to its own end: if it were cancelled, it would leave connections open and log a traceback."""
    ended = anyio.Event()

    async def work() -> None:
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listening])
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        try:
            await ended.wait()
        finally:
            server.should_exit = True


def http_app(server: Server[Any], names: Sequence[str], port: int, tokens: Sequence[str]) -> ASGIApp:
    """The server at /mcp, for requests that have one of the tokens and one of these host names."""
    known = Tokens(tokens)
    hosts = [f"{name}:{port}" for name in names] + ([*names] if port == 80 else [])
    app = server.streamable_http_app(
        transport_security=TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
        ),
        token_verifier=known,
        max_request_body_size=LARGEST_REQUEST,
        max_sessions=MOST_SESSIONS,
    )
    return AuthenticationMiddleware(app, backend=BearerAuthBackend(known))


class Tokens:
    """The tokens that are accepted. Each is a client of its own."""

    def __init__(self, tokens: Sequence[str]) -> None:
        if not tokens or isinstance(tokens, str):
            raise HandrailError("the server needs at least one token, in a list")
        for token in tokens:
            if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
                raise HandrailError(
                    f"a token has at least {SHORTEST_TOKEN} printable ASCII characters and no spaces; "
                    'make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
                )
        self._known = [sha256(token.encode()).digest() for token in tokens]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who the token is; None if it is unknown. Takes as long for a wrong token as for a right one."""
        given = sha256(token.encode("utf-8", "replace")).digest()
        matches = [known for known in self._known if hmac.compare_digest(known, given)]
        return AccessToken(token="", client_id=matches[0].hex()[:32], scopes=[]) if matches else None


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises HandrailError that says what is wrong with the address."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family[0], socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise HandrailError(f"there is no address {host}:{port}: {error}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(family[4])
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        raise HandrailError(
            f"{host}:{port} cannot be used: {error}; choose another port, or 0 for any free one"
        ) from None
    return listening


def names_of(host: str) -> list[str]:
    """The names by which a browser or a program may reach a server that listens there."""
    named = f"[{host}]" if ":" in host else host
    if host not in EVERYWHERE:
        return sorted({named, *LOOPBACK})
    names = {socket.gethostname(), socket.getfqdn()}
    for family, _, _, _, address in _addresses(socket.gethostname()):
        names.add(f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0]))
    return sorted({*names, *LOOPBACK})


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a server that listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _addresses(name: str) -> list[Any]:
    try:
        return [*socket.getaddrinfo(name, None)]
    except OSError:  # a machine whose own name nobody knows
        return []
