"""An agent as the person's options say: its sandbox, its session, and turns that Ctrl-C ends."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio

from handrail.agent import MAX_ROUNDS, Agent, Outcome
from handrail.aio import in_background
from handrail.cli._app import Options
from handrail.cli._config import ServerEntry
from handrail.cli._settings import NOTHING_SET, Configured
from handrail.cli.servers import Ask, connected
from handrail.contract.approval import Approver
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.event import Event
from handrail.contract.limits import DEFAULT_BUDGET, Budget
from handrail.contract.model import Model
from handrail.contract.result import Failure, Result
from handrail.drivers.open import open_sandbox
from handrail.policy.approval import visible
from handrail.sandbox.sandbox import Sandbox
from handrail.session.session import Session
from handrail.store.store import Store
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

GUIDE: Final = "AGENTS.md"
MAX_GUIDE_CHARS: Final = 32 * 1024
SYSTEM: Final = """\
You work for a person at a terminal, by calling tools; commands and files are in a sandbox on their workspace.
Look before you change something, run what you wrote, and say what you did and what you could not do, in few words.
A call that is refused says why: do not try the same again. Ask with ask_user if only the person can know."""
IN_A_ROW: Final = 2.0
"""Seconds within which another Ctrl-C is the second or third in a row, whatever has begun meanwhile."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a conversation should be, besides the options of its sandbox."""

    model: str
    store: Store | None = None
    resume: str | None = None
    rounds: int = MAX_ROUNDS
    calls: int | None = DEFAULT_BUDGET.calls
    settings: Configured = NOTHING_SET


@asynccontextmanager
async def open_talk(
    options: Options,
    wish: Wish,
    model: Model,
    tools: Toolbox,
    approver: Approver | None,
    show: Callable[[Event], None],
    say: Callable[[str], None],
    ask: Ask | None = None,
) -> AsyncIterator["Talk"]:
    """Open everything for a conversation. `show` gets each event, in order, and `say` remarks before the first.

    `ask` answers what MCP servers ask their user.
    """
    shared: dict[str, Any] = {"policy": wish.settings.policy(options.mode), "approver": approver}
    shared["budget"] = Budget(calls=wish.calls)
    async with open_sandbox(**options.for_model().for_sandbox()) as sandbox:
        shared["sandbox"] = sandbox
        async with AsyncExitStack() as stack:
            for entry in wish.settings.servers.values():
                for tool in await _tools_of(entry, options.workspace, stack, say, ask):
                    tools.add(tool)
            session = await stack.enter_async_context(_session(wish, {**shared, "tools": tools}, options.allow_weaker))
            agent = Agent(model, session=session, rounds=wish.rounds, system=await system_text(sandbox))
            talk = Talk(agent, sandbox, show)
            following = in_background(talk.follow(session.event_count))
            try:
                yield talk
            finally:
                following.cancel()


async def _tools_of(
    entry: ServerEntry, workspace: str, stack: AsyncExitStack, say: Callable[[str], None], ask: Ask | None
) -> list[Tool]:
    """The tools of a server; none, saying why, of one that cannot be used: the conversation goes on without it."""
    say(f"connecting to the MCP server {entry.name}")
    try:
        server = await stack.enter_async_context(connected(entry, workspace, ask))
    except (HandrailError, ModuleNotFoundError, OSError, Unavailable) as error:
        say(f"the MCP server {entry.name} is left out: {error}")
        return []
    for warning in server.warnings:
        say(f"the MCP server {entry.name}: {warning}")
    return server.tools


def _session(wish: Wish, shared: dict[str, Any], weaker: bool) -> Session:
    if wish.resume is None:
        return Session(**shared, store=wish.store)
    if wish.store is None:
        raise HandrailError(f"session {wish.resume} cannot be resumed: the store of sessions cannot be written")
    return Session.resume(wish.store, wish.resume, **shared, allow_weaker=weaker)


async def system_text(sandbox: Sandbox) -> str:
    """What the model is told first; what the workspace says to such programs is part of it.

    The file is read through the sandbox: a link in it leads nowhere else.
    """
    parts = [SYSTEM, f"The workspace is {sandbox.workspace}."]
    try:
        guide = (await sandbox.read_bytes(GUIDE, length=MAX_GUIDE_CHARS + 1)).decode("utf-8", "replace")
    except (OSError, HandrailError):
        guide = ""
    if guide.strip():
        cut = "" if len(guide) <= MAX_GUIDE_CHARS else f"\n(cut here; read {GUIDE} for the rest)"
        parts.append(f"The workspace has this {GUIDE}:\n\n{guide[:MAX_GUIDE_CHARS].strip()}{cut}")
    return "\n\n".join(parts)


def first_line(talk: "Talk") -> str:
    """The sandbox and what it enforces, the network, the mode of the policy, and the model."""
    report = talk.sandbox.report
    weaker = [guarantee.feature for guarantee in report.guarantees if guarantee.standing != "enforced"]
    enforced = f"{len(report.features)} of {len(report.guarantees)} promises enforced"
    weak = f" (not: {', '.join(weaker)})" if weaker else ""
    mode = talk.agent.session.shared.policy.mode
    model = visible(talk.agent.model_name, lines=False)
    return f"{report.driver}: {enforced}{weak} · network {report.network} · policy {mode} · {model}"


class Talk:
    """One agent whose events are shown, and whose turns can be ended."""

    def __init__(self, agent: Agent, sandbox: Sandbox, show: Callable[[Event], None]) -> None:
        self.agent, self.sandbox = agent, sandbox
        self._show = show
        self._scope: anyio.CancelScope | None = None
        self._told = anyio.Event()
        self._asked: set[str] = set()
        self._presses, self._pressed_at = 0, 0.0
        self._stopped: set[str] = set()
        """The running calls that were told to end."""
        self.running: set[str] = set()
        """The calls of the model that have no end yet."""
        self.broken: OSError | None = None
        """Why nothing can be shown any more."""

    async def follow(self, start: int) -> None:
        """Show events until the session ends; when they cannot be shown, end the turn."""
        async for event in self.agent.session.events(start):
            self._note(event)
            try:
                if self.broken is None:
                    self._show(event)
            except OSError as error:  # the reader of our output has gone
                self.broken = error
                self.end_turn()
            if event.type in ("run_ended", "approval_asked"):
                self._told.set()
                self._told = anyio.Event()

    def _note(self, event: Event) -> None:
        if event.type == "call_started" and event.parent is None and event.call_id is not None:
            self.running.add(event.call_id)
        elif event.type == "call_ended":
            self.running.discard(event.call_id or "")
        elif event.type == "approval_asked":
            self._asked.add(event.data["id"])
        elif event.type == "run_ended" and event.parent is None:
            self._asked.add("")

    async def until_shown(self, request_id: str) -> None:
        """Return when everything before this request is on the screen."""
        while request_id not in self._asked:
            await self._told.wait()

    async def turn(self, prompt: str) -> Outcome:
        """Let the agent work on a prompt, and return when its last event was shown."""
        self._asked.discard("")
        self._stopped.clear()
        outcome = Outcome("cancelled", "")
        with anyio.CancelScope() as self._scope:
            outcome = await self.agent.run(prompt)
        self._scope = None
        await self.until_shown("")
        return outcome

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        """A call of the person's own; Ctrl-C ends it as any other."""
        result: Result = Failure("cancelled", "The call was given up.")
        with anyio.CancelScope() as self._scope:
            self.agent.session.begin_run()
            result = await self.agent.session.call(name, arguments, origin="user")
        self._scope = None
        return result

    @property
    def works(self) -> bool:
        """Whether a turn runs."""
        return self._scope is not None

    def end_turn(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def interrupt(self) -> int:
        """What Ctrl-C does: the first ends the running calls, the second the turn. Returns how many it was in a row."""
        now = time.monotonic()
        in_a_row = now - self._pressed_at < IN_A_ROW
        self._pressed_at = now
        fresh = self.running - self._stopped
        self._presses = self._presses + 1 if in_a_row else 1
        if fresh and not in_a_row:
            self._stopped |= fresh
            for id in sorted(fresh):
                in_background(self._terminate(id))
        else:
            self.end_turn()
        return self._presses

    async def _terminate(self, id: str) -> None:
        await self.agent.session.terminate(id)
