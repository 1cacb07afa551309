"""Clients of the server: each has a session and a sandbox of its own, which are closed when the client is idle."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from os import urandom
from time import monotonic
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from handrail.contract.errors import HandrailError, ToolFailed, describe_error
from handrail.contract.result import Failure
from handrail.session.pending import Pending
from handrail.session.session import Session, core_of
from handrail.toolkit.tool import Tool, tool

OpenSession = Callable[[], AbstractAsyncContextManager[Session]]
CALLS_KEPT: Final = 1_000
"""Number of ended calls of a session whose events are kept."""
MAX_SANDBOXES_COUNT: Final = 16
"""Number of sandboxes that one client may have open besides its own."""
MAX_PARKED_COUNT: Final = 256
"""Number of one client's calls that are kept until the client comes back for them."""
log = logging.getLogger("handrail")


class ServedSession:
    """One session, opened when it is first used and closed when it has been idle for a while.

    It lives in a task of its own: what opens it in a request must not end with that request.
    """

    def __init__(
        self, open_session: OpenSession, idle: float, pause: float, prepare: Callable[[Session], None]
    ) -> None:
        self._open_session, self._idle, self._pause, self._prepare = open_session, idle, pause, prepare
        self._session: Session | None = None
        self._error: Exception | None = None
        self._opened, self._closing = anyio.Event(), anyio.Event()
        self._users, self._used = 0, monotonic()

    async def live(self, forget: Callable[[], None]) -> None:
        """Open the session, wait until it is idle or `close` is called, and close it; call `forget` just before."""
        try:
            async with self._open_session() as session:
                self._prepare(session)
                self._session = session
                self._opened.set()
                await self._until_idle()
                forget()
        except Exception as error:  # it is told to the client, and must not end the other clients
            self._error = error
            known = isinstance(error, HandrailError | OSError)
            log.warning("a client's session ended: %s", describe_error(error), exc_info=None if known else error)
        finally:
            forget()
            self._opened.set()

    async def session(self) -> Session:
        """The open session. Raises ToolFailed(unavailable) if it could not be opened."""
        await self._opened.wait()
        if self._session is None:
            why = str(self._error) if isinstance(self._error, HandrailError | OSError) else "see the server's log"
            raise ToolFailed(Failure("unavailable", f"The tools could not be started: {why.rstrip('.')}."))
        return self._session

    @property
    def opened(self) -> Session | None:
        """The session, if it is open."""
        return self._session

    def has_rested(self) -> bool:
        """Whether nobody but the caller has used the session for a while."""
        return self._users == 1 and monotonic() - self._used > self._pause

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session from becoming idle during the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._used = monotonic()

    def close(self) -> None:
        """Close the session soon, whatever runs in it."""
        self._closing.set()

    async def _until_idle(self) -> None:
        while not self._closing.is_set():
            left = self._idle if self._users else self._used + self._idle - monotonic()
            if left <= 0:
                return
            with anyio.move_on_after(left):
                await self._closing.wait()


class Caller:
    """One client: its session, those of the sandboxes that it opened, and its calls that wait for a person."""

    def __init__(self, clients: "Clients", name: str, when_gone: Callable[[Callable[[], None]], None]) -> None:
        self._clients, self.name = clients, name
        self.when_gone = when_gone
        """Registers a function to call when the client has left."""
        self.sessions: dict[str, ServedSession] = {}
        """Sessions by handle; the client's own session has the empty handle."""
        self.parked: dict[str, Parked] = {}

    def served(self, handle: str = "") -> ServedSession:
        """The client's own session, opened if need be, or that of a sandbox it opened. Raises ToolFailed(not_found)."""
        if handle in self.sessions:
            return self.sessions[handle]
        if handle:
            message = f"There is no sandbox {handle[:80]!r}: open one with sandbox_open, or leave sandbox out."
            raise ToolFailed(Failure("not_found", message, field="sandbox"))
        return self._open("")

    def park(self, parked: "Parked") -> str:
        """Keep a call until the client comes back for it. Returns the name of the parked call."""
        while len(self.parked) >= MAX_PARKED_COUNT:  # what waits there ends by itself when nobody answers
            del self.parked[next(iter(self.parked))]
        key = urandom(16).hex()
        self.parked[key] = parked
        return key

    def close(self) -> None:
        """Close all sessions of the client."""
        for served in tuple(self.sessions.values()):
            served.close()

    def _open(self, handle: str) -> ServedSession:
        prepare = self._offer_handles if self._clients.handles and not handle else keep_few_events
        served = self.sessions[handle] = ServedSession(
            self._clients.open_session, self._clients.idle, self._clients.pause, prepare
        )

        def forget() -> None:
            if self.sessions.get(handle) is served:
                del self.sessions[handle]
            if not self.sessions:
                self._clients.forget(self)

        self._clients.remember(self)
        self._clients.group.start_soon(served.live, forget)
        return served

    def _offer_handles(self, session: Session) -> None:
        keep_few_events(session)
        for each in self._handle_tools():
            if each.name in session.toolbox:
                raise HandrailError(f"there is a tool {each.name} already; rename it, or serve without handles")
            core_of(session).add_tool(each)

    def _handle_tools(self) -> list[Tool]:
        @tool(timeout=None)
        async def sandbox_open() -> dict[str, str]:
            """Open another sandbox on the same workspace. Pass its name as `sandbox` to any other tool."""
            if len(self.sessions) > MAX_SANDBOXES_COUNT:
                message = f"{MAX_SANDBOXES_COUNT} sandboxes are open; close one with sandbox_close first."
                raise ToolFailed(Failure("rejected", message))
            handle = f"sandbox_{urandom(8).hex()}"
            served = self._open(handle)
            try:
                await served.session()
            except BaseException:  # nobody would know its name
                served.close()
                raise
            return {"sandbox": handle}

        @tool(timeout=None)
        async def sandbox_close(sandbox: str) -> dict[str, str]:
            """Close a sandbox that sandbox_open opened. What runs in it is ended.

            Args:
                sandbox: Its name, as sandbox_open returned it.
            """
            served = self.served(sandbox)
            if served is self.sessions.get(""):
                raise ToolFailed(Failure("not_found", "Name a sandbox that sandbox_open opened.", field="sandbox"))
            del self.sessions[sandbox]
            served.close()
            return {"closed": sandbox}

        return [sandbox_open, sandbox_close]


class Parked:
    """A call of a client, which goes on whether or not the client waits for it at the moment."""

    def __init__(self, pending: Pending, session: Session, served: ServedSession, tool: str, start: int) -> None:
        self.pending, self.session, self.served, self.tool = pending, session, served, tool
        self.next_event = start
        """Number of the first event that the client was not told."""
        self.progress = 0
        """Bytes of live output that the client was told."""
        self.waiting = 0
        """Number of requests that wait for the call now."""


class Clients:
    """The clients of one server while it runs."""

    def __init__(
        self, open_session: OpenSession, group: TaskGroup, *, handles: bool, idle: float, pause: float
    ) -> None:
        self.open_session, self.group, self.handles = open_session, group, handles
        self.idle, self.pause = idle, pause
        self._clients: dict[str, Caller] = {}

    def of(self, context: ServerRequestContext["Clients", Any]) -> Caller:
        """The client that makes this request. One that has nothing open is not remembered."""
        name = who(context)
        return self._clients.get(name) or Caller(self, name, partial(_when_disconnected, context))

    def remember(self, client: Caller) -> None:
        """Keep a client that has something open."""
        if self._clients.get(client.name) is not client:
            self._clients[client.name] = client
            client.when_gone(client.close)

    def forget(self, client: Caller) -> None:
        """Forget a client that has nothing open."""
        if self._clients.get(client.name) is client:
            del self._clients[client.name]

    def close(self) -> None:
        """Close everything soon."""
        for client in tuple(self._clients.values()):
            client.close()


@asynccontextmanager
async def open_clients(
    open_session: OpenSession, *, handles: bool, idle: float, pause: float
) -> AsyncIterator[Clients]:
    """The clients of a server; at the end, all their sessions are closed."""
    async with anyio.create_task_group() as group:
        clients = Clients(open_session, group, handles=handles, idle=idle, pause=pause)
        try:
            yield clients
        finally:
            clients.close()


def who(context: ServerRequestContext[Any, Any]) -> str:
    """The client's name: its token and, before 2026-07-28, its MCP session; without HTTP there is one, the process."""
    if context.request is None:
        return "process"
    user = context.request.scope.get("user")
    name = f"token {user.username}" if user is not None else "anybody"
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return name
    return f"{name}, session {context.request.headers.get('mcp-session-id', '')}"


def keep_few_events(session: Session) -> None:
    """Limit the stored events: a server runs for weeks, so its sessions forget calls that ended long ago."""
    core_of(session).transcript.forget_calls_beyond(CALLS_KEPT)


def _when_disconnected(context: ServerRequestContext[Any, Any], act: Callable[[], None]) -> None:
    """Call `act` when the MCP session ends. The SDK has a stack for it, but no public way from a request to it."""
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS or context.request is None:
        return  # there is no MCP session, or it ends with the process
    connection = getattr(context.session, "_connection", None)
    if connection is not None:  # otherwise the session is closed when it is idle
        connection.exit_stack.callback(act)
