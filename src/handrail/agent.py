"""The loop: ask the model, run its calls, append the results, repeat; every call has one result."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import anyio

from handrail.aio import finish, in_background
from handrail.contract.approval import Approver
from handrail.contract.call import Call
from handrail.contract.errors import HandrailError, ToolFailed, describe_error
from handrail.contract.event import Event
from handrail.contract.limits import Budget
from handrail.contract.model import Message, Model, ModelFailed, TextDelta, ThinkingDelta, Turn, Usage
from handrail.contract.result import Failure, Result
from handrail.log import report
from handrail.policy.policy import Policy
from handrail.session.session import Session
from handrail.toolkit.context import Host
from handrail.toolkit.toolbox import Toolbox, ToolLike

MAX_ROUNDS: Final = 64
Reason = Literal["done", "asked_user", "round_limit", "budget", "cancelled", "model_error"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `text` is the model's last answer, its question to the user, or the error."""

    reason: Reason
    text: str
    session_id: str = field(default="", kw_only=True)
    usage: Usage = field(default=Usage(), kw_only=True)


class Agent:
    """A model and a session. Call `run` again to continue the conversation."""

    def __init__(
        self, model: Model, *, tools: Iterable[ToolLike] | Toolbox = (), sandbox: Any = None,
        session: Session | None = None, policy: Policy = Policy(), approver: Approver | None = None,
        budget: Budget = Budget(), rounds: int = MAX_ROUNDS, system: str = "",
    ) -> None:  # fmt: skip
        self.model = _checked(model)
        self.session = _session_for(session, tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget)
        self.rounds, self.system = rounds, system
        self.messages: list[Message] = []
        self.usage = Usage()
        self._traceback = ""

    async def run(self, prompt: str) -> Outcome:
        """Work until the model is done or a limit is reached. Raises only when it is cancelled."""
        if (tracing := self.session.tracing) is not None:
            return await tracing.run(self, prompt, partial(self._run, prompt))
        return await self._run(prompt)

    async def _run(self, prompt: str) -> Outcome:
        reason: Reason = "cancelled"
        text = self._traceback = ""
        self.session.begin_run()
        outer = self.session.host.outer
        self.session.host.outer = host = _LoopHost(outer)
        self.session.emit("run_started", data={"prompt": prompt})
        self.messages.append(Message("user", prompt))
        try:
            reason, text = await self._rounds(host)
        finally:
            self.session.host.outer = outer
            trace = {"traceback": self._traceback} if self._traceback else {}
            self.session.emit("run_ended", data={"reason": reason, "text": text, **trace})
        return Outcome(reason, text, session_id=self.session.id, usage=self.usage)

    def stream(self, prompt: str) -> AsyncIterator[Event]:
        """Run, and yield the events as they happen; the last one is `run_ended`. Leaving early ends the run."""
        return _watch(self.session, self.run, prompt)

    async def _rounds(self, host: "_LoopHost") -> tuple[Reason, str]:
        for _ in range(self.rounds):
            try:
                tracing = self.session.tracing
                turn = await (self._ask() if tracing is None else tracing.ask(self, self._ask))
            except Exception as error:  # noqa: BLE001 - an error of the model's client ends the run, not the program
                self._traceback = report(f"The model {type(self.model).__name__} (session {self.session.id!r})", error)
                return "model_error", describe_error(error)
            self.messages.append(Message("assistant", turn.text, turn.calls))
            if not turn.calls:
                return "done", turn.text
            results = await self._answer(turn.calls)
            if host.ended:
                return host.ended
            if any(not result.ok and result.kind == "budget_exhausted" for result in results):
                return "budget", turn.text or "The budget of this run is used up."
        return "round_limit", f"The model was not done after {self.rounds} rounds."

    async def _ask(self) -> Turn:
        turn: Turn | None = None
        async for event in self.model.ask(self.messages, self.session.schemas("mcp"), system=self.system):
            if isinstance(event, Turn):
                turn = event
            elif isinstance(event, TextDelta | ThinkingDelta):
                self.session.emit("text" if isinstance(event, TextDelta) else "thinking", data={"text": event.text})
        if turn is None:
            raise ModelFailed("the model's answer ended before it was complete")
        self.usage += turn.usage
        calls = tuple(turn.calls)
        if turn.stop == "max_tokens" and calls:  # the model was cut off inside its last call
            calls = (*calls[:-1], replace(calls[-1], cut=True))
        return replace(turn, calls=calls)

    async def _answer(self, calls: tuple[Call, ...]) -> list[Result]:
        came: dict[int, Result] = {}
        lost = Failure("cancelled", "The run was cancelled before this call answered; it may have had effects.")
        try:
            return await self.session.call_all(calls, into=came)
        finally:
            self.messages.append(Message("tool", results=tuple(came.get(n, lost) for n in range(len(calls)))))


class _LoopHost:
    """The loop as a tool sees it. `finish` ends it; so does a question, which the person reads in the outcome."""

    def __init__(self, outer: Host | None = None) -> None:
        self.ended: tuple[Reason, str] | None = None
        self._outer = outer
        """The session's own host, which is asked first."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        if self._outer is not None:
            return await self._outer.ask(question, choices)
        listed = "".join(f"\n- {choice}" for choice in choices)
        self.ended = ("asked_user", question + listed)
        raise ToolFailed(
            Failure(
                "unavailable",
                "The question was passed to the user, who answers with the next message.",
                retryable=False,
            )
        )

    async def spawn(self, prompt: str, *, tools: Sequence[str] | None = None, cwd: str | None = None) -> Result:
        if self._outer is not None:
            return await self._outer.spawn(prompt, tools=tools, cwd=cwd)
        return Failure("unavailable", "This loop cannot start tasks; do the work yourself.", retryable=False)

    def finish(self, summary: str) -> None:
        self.ended = ("done", summary)
        if self._outer is not None:
            self._outer.finish(summary)

    def deferred_tools(self) -> dict[str, str]:
        return {}

    def load_tools(self, names: Sequence[str]) -> None:
        return None


def _checked(model: Model) -> Model:
    """The given model. Raises HandrailError for anything else."""
    if not callable(getattr(model, "ask", None)):
        raise HandrailError(f"{type(model).__name__} is not a Model: missing ask")
    return model


def _session_for(
    session: Session | None,
    tools: Iterable[ToolLike] | Toolbox,
    *,
    sandbox: Any,
    policy: Policy,
    approver: Approver | None,
    budget: Budget,
) -> Session:
    """The given session, or a new one. A given session already has its tools and rules."""
    if session is None:
        return Session(tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget)
    extra = {"tools": tools, "sandbox": sandbox, "approver": approver}
    given = [name for name, value in extra.items() if value is not None and value != ()]
    given += [
        name
        for name, value, default in (("policy", policy, Policy()), ("budget", budget, Budget()))
        if value != default
    ]
    if given:
        raise HandrailError(f"give {', '.join(given)} to the Session, because this Agent was given a session")
    return session


async def _watch(session: Session, run: Callable[[str], Awaitable[Any]], prompt: str) -> AsyncIterator[Event]:
    """The run has its own task, because a generator that is left early may be closed in another task."""
    failed: list[BaseException] = []

    async def work() -> None:
        try:
            await run(prompt)
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    seen = len(session.trace)
    task, ended = in_background(work()), anyio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        async for event in session.events(seen):
            yield event
            if event.type == "run_ended":
                break
        else:
            raise HandrailError(f"session {session.id} was closed before its run ended")
    except BaseException:
        task.cancel()
        raise
    finally:
        await finish(ended.wait)
    if failed:
        raise failed[0]
