"""One connection to a server, kept open by a task of its own until it is lost or closed."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Self

import anyio
from mcp.client import IncomingMessage
from mcp.client.context import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from handrail.aio import Task, in_background
from handrail.contract.limits import MCP_END_WAIT
from handrail.contract.version import __version__
from handrail.mcp._questions import Ask, answer
from mcp import Client, MCPError, types

BETWEEN_LISTINGS: Final = 1.0
"""Seconds between two listings, however often a server says that its tools have changed."""


class _Answer(RootModel[dict[str, Any]]):
    """An answer as the server wrote it."""


class Link:
    """A connection to a server. `changed` is awaited when the server says that its tools have changed."""

    def __init__(
        self, transport: AbstractAsyncContextManager[Any], changed: Callable[[Client], Awaitable[None]], ask: Ask | None
    ) -> None:
        self.client: Client | None = None
        """The connected client; None before and after."""
        self.ready, self.over = anyio.Event(), anyio.Event()
        """Events: `ready` is set when connected or given up, `over` when ended."""
        self.listed = False
        self.reason = ""
        """Reason for the loss of the connection."""
        self._transport, self._changed, self._ask = transport, changed, ask
        self._stop, self._news = anyio.Event(), anyio.Event()
        self._task: Task | None = None

    def begin(self) -> Self:
        """Start to connect."""
        self._task = in_background(self._hold())
        return self

    def lose(self, reason: str) -> None:
        """Give the connection up."""
        self.reason = self.reason or reason
        self._stop.set()

    @property
    def lost(self) -> bool:
        """Whether the connection was given up, or has ended."""
        return self._stop.is_set() or self.over.is_set()

    async def close(self) -> None:
        """Close the connection, and end the task that serves it."""
        self.lose("it was closed")
        if not self.ready.is_set():
            self._cancel()
        for _ in range(2):
            with anyio.move_on_after(4 * MCP_END_WAIT):  # input closed, TERM, KILL
                await self.over.wait()
            if self.over.is_set():
                return
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def request(self, request: Any, progress: ProgressFnT | None = None) -> dict[str, Any]:
        """The server's answer. Cancelling the wait cancels the request at the server."""
        if self.client is None:
            raise MCPError(types.CONNECTION_CLOSED, self.reason or "it is not connected")
        return (await self.client.session.send_request(request, _Answer, progress_callback=progress)).root

    async def _hold(self) -> None:
        try:
            async with Client(
                self._transport,
                cache=None,
                message_handler=self._hear,
                elicitation_callback=None if self._ask is None else self._answer,
                client_info=types.Implementation(name="handrail", version=__version__),
            ) as client:
                self.client = client
                self.ready.set()
                async with anyio.create_task_group() as group:
                    group.start_soon(self._follow)
                    group.start_soon(self._listen, client)
                    await self._stop.wait()
                    group.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is over
            self.reason = self.reason or _words(error)
        finally:
            self.client = None
            self.over.set()
            self.ready.set()

    async def _answer(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert self._ask is not None
        return await answer(self._ask, params)

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._news.set()

    async def _listen(self, client: Client) -> None:
        """Ask to be told of changes, as a client of 2026-07-28 has to."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._news.set()
        except Exception:  # noqa: BLE001 - then changes are seen with the next connection
            return

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            if self.listed and self.client is not None:
                try:
                    await self._changed(self.client)
                except (MCPError, ValidationError):
                    pass  # what was listed before stays
            await anyio.sleep(BETWEEN_LISTINGS)


def _words(error: BaseException) -> str:
    """The error's message, without the exception groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
