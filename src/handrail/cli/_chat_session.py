"""An agent as the person's options say: its sandbox, its session, and turns that Ctrl-C ends."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio

from handrail.agent import MAX_ROUNDS, Agent, Outcome
from handrail.aio import in_background
from handrail.cli._app import Options
from handrail.cli._open_session import Following, Stored, open_session
from handrail.cli._servers import Ask
from handrail.cli._settings import NOTHING_SET, Configured
from handrail.contract.approval import Approver
from handrail.contract.errors import HandrailError
from handrail.contract.event import Event
from handrail.contract.limits import DEFAULT_BUDGET
from handrail.contract.model import Model
from handrail.contract.result import Failure, Result
from handrail.policy.approval import visible
from handrail.sandbox.sandbox import Sandbox
from handrail.session.session import core_of
from handrail.store.store import Store
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
class ChatOptions:
    """Options of a conversation, besides those of its sandbox."""

    model: str
    store: Store | None = None
    resume: str | None = None
    rounds: int = MAX_ROUNDS
    calls: int | None = DEFAULT_BUDGET.calls
    settings: Configured = NOTHING_SET


@asynccontextmanager
async def open_chat_session(
    options: Options,
    wanted: ChatOptions,
    model: Model,
    tools: Toolbox,
    approver: Approver | None,
    show: Callable[[Event], None],
    say: Callable[[str], None],
    ask: Ask | None = None,
) -> AsyncIterator["ChatSession"]:
    """Open a session, and an agent in it. `show`, `say` and `ask` are those of `open_session`."""
    stored = Stored(wanted.store, wanted.resume, wanted.calls)
    opening = open_session(options.for_model(), wanted.settings, tools, approver, show, stored=stored, say=say, ask=ask)
    async with opening as following:
        system = await system_text(following.sandbox)
        yield ChatSession(Agent(model, session=following.session, rounds=wanted.rounds, system=system), following)


async def system_text(sandbox: Sandbox) -> str:
    """The first text that the model gets; the workspace's own advice to such programs is part of it.

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


def first_line(chat_session: "ChatSession") -> str:
    """The sandbox and what it enforces, the network, the mode of the policy, and the model."""
    report = chat_session.sandbox.report
    weaker = [guarantee.feature for guarantee in report.guarantees if guarantee.standing != "enforced"]
    enforced = f"{len(report.features)} of {len(report.guarantees)} promises enforced"
    weak = f" (not: {', '.join(weaker)})" if weaker else ""
    mode = core_of(chat_session.agent.session).shared.policy.mode
    model = visible(chat_session.agent.model_name, lines=False)
    return f"{report.driver}: {enforced}{weak} · network {report.network} · policy {mode} · {model}"


class ChatSession:
    """One agent whose events are shown, and whose turns can be ended."""

    def __init__(self, agent: Agent, following: Following) -> None:
        self.agent, self.sandbox = agent, following.sandbox
        self._following = following
        following.on_event, following.on_broken = self._note, self.end_turn
        self.until_shown = following.until_shown
        self._scope: anyio.CancelScope | None = None
        self._presses, self._pressed_at = 0, 0.0
        self._stopped: set[str] = set()
        """The running calls that were told to end."""
        self.running: set[str] = set()
        """The calls of the model that have no end yet."""

    @property
    def broken(self) -> OSError | None:
        """The reason for which nothing can be shown any more."""
        return self._following.broken

    def _note(self, event: Event) -> None:
        if event.type == "call_started" and event.parent is None and event.call_id is not None:
            self.running.add(event.call_id)
        elif event.type == "call_ended":
            self.running.discard(event.call_id or "")

    async def turn(self, prompt: str) -> Outcome:
        """Let the agent work on a prompt, and return when its last event was shown."""
        self._following.begin_run()
        self._stopped.clear()
        outcome = Outcome("cancelled", "")
        with anyio.CancelScope() as self._scope:
            outcome = await self.agent.run(prompt)
        self._scope = None
        await self.until_shown("run_ended")
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
        """Answer Ctrl-C: the first ends the running calls, the second the turn. Returns how many came in a row."""
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
