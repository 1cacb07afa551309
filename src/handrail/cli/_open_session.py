"""Open a session as the person's options say, for every command that has one, and follow its events."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from handrail.aio import in_background
from handrail.cli._app import Options
from handrail.cli._config import ServerEntry
from handrail.cli._servers import Ask, connected
from handrail.cli._settings import Configured
from handrail.contract.approval import Approver
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.event import Event
from handrail.contract.limits import DEFAULT_BUDGET, Budget
from handrail.drivers.open import open_sandbox
from handrail.sandbox.sandbox import Sandbox
from handrail.session.session import Session
from handrail.store.store import Store
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

Show = Callable[[Event], Awaitable[None] | None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stored:
    """The store that keeps a session, the session to go on with, and how many calls a run may make."""

    store: Store | None = None
    resume: str | None = None
    calls: int | None = DEFAULT_BUDGET.calls


@asynccontextmanager
async def open_session(
    options: Options,
    settings: Configured,
    tools: Toolbox,
    approver: Approver | None,
    show: Show,
    *,
    stored: Stored | None = None,
    host: Any = None,
    say: Say | None = None,
    ask: Ask | None = None,
) -> AsyncIterator["Following"]:
    """Open the sandbox, connect to the configured MCP servers if there is `say`, open the session, and follow it.

    `show` gets each new event, in order; `say` remarks before the first; `ask` answers what MCP servers ask.
    """
    stored = stored or Stored()
    async with open_sandbox(**options.for_sandbox()) as sandbox, AsyncExitStack() as stack:
        for entry in settings.servers.values() if say is not None else ():
            for tool in await _tools_of(entry, options.workspace, stack, say, ask):
                tools.add(tool)
        given: dict[str, Any] = {"tools": tools, "sandbox": sandbox, "policy": settings.policy(options.mode)}
        given |= {"approver": approver, "host": host, "budget": Budget(calls=stored.calls)}
        session = await stack.enter_async_context(_session(stored, given, options.allow_weaker))
        following = Following(session, sandbox, show)
        task = in_background(following.follow(session.event_count))
        try:
            yield following
        finally:
            task.cancel()


async def _tools_of(
    entry: ServerEntry, workspace: str, stack: AsyncExitStack, say: Say | None, ask: Ask | None
) -> list[Tool]:
    """The tools of a server; none, saying why, of one that cannot be used: the conversation goes on without it."""
    tell = say or (lambda _: None)
    tell(f"connecting to the MCP server {entry.name}")
    try:
        server = await stack.enter_async_context(connected(entry, workspace, ask))
    except (HandrailError, ModuleNotFoundError, OSError, Unavailable) as error:
        tell(f"the MCP server {entry.name} is left out: {error}")
        return []
    for warning in server.warnings:
        tell(f"the MCP server {entry.name}: {warning}")
    return server.tools


def _session(stored: Stored, given: dict[str, Any], weaker: bool) -> Session:
    if stored.resume is None:
        return Session(**given, store=stored.store)
    if stored.store is None:
        raise HandrailError(f"session {stored.resume} cannot be resumed: the store of sessions cannot be written")
    return Session.resume(stored.store, stored.resume, **given, allow_weaker=weaker)


class Following:
    """An open session whose events are shown, and which tells when an event was shown."""

    def __init__(self, session: Session, sandbox: Sandbox, show: Show) -> None:
        self.session, self.sandbox = session, sandbox
        self._show = show
        self._news = anyio.Event()
        self._seen: set[str] = set()
        """Ids of the requests and of the ended calls that were shown; `run_ended` after the end of a run."""
        self.broken: OSError | None = None
        """Why nothing can be shown any more."""
        self.on_event: Callable[[Event], None] = lambda _: None
        """Told of each event before it is shown."""
        self.on_broken: Callable[[], None] = lambda: None
        """Told once nothing can be shown any more."""

    async def follow(self, start: int) -> None:
        """Show events until the session ends."""
        async for event in self.session.events(start):
            self.on_event(event)
            try:
                if self.broken is None and (shown := self._show(event)) is not None:
                    await shown
            except OSError as error:  # the reader of our output has gone
                self.broken = error
                self.on_broken()
            self._note(event)

    def _note(self, event: Event) -> None:
        if event.type == "approval_asked":
            self._seen.add(event.data["id"])
        elif event.type == "call_ended" and event.call_id is not None and event.parent is None:
            self._seen.add(event.call_id)
        elif event.type == "run_ended" and event.parent is None:
            self._seen.add("run_ended")
        else:
            return
        self._news.set()
        self._news = anyio.Event()

    def begin_run(self) -> None:
        """Forget what was shown of earlier runs: models use the ids of calls again."""
        self._seen.clear()

    async def until_shown(self, id: str) -> None:
        """Return when everything up to this request, this call's end or the run's end (`run_ended`) was shown."""
        while id not in self._seen:
            await self._news.wait()
