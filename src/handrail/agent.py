"""The loop: ask the model, run its calls, append the results, repeat; every call has one result."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from inspect import iscoroutinefunction
from random import random
from typing import Any, Final, Literal, Unpack

import anyio

from handrail.aio import finish, in_background
from handrail.contract.approval import Approver
from handrail.contract.call import Call
from handrail.contract.errors import HandrailError, ToolFailed, describe_error
from handrail.contract.event import Event
from handrail.contract.expect import expect, expect_number, explains_misuse, refuse, shown
from handrail.contract.limits import Budget
from handrail.contract.model import (
    CallDelta,
    Message,
    Model,
    ModelEvent,
    ModelFailed,
    TextDelta,
    ThinkingDelta,
    Turn,
    Usage,
)
from handrail.contract.result import Failure, Result, to_wire
from handrail.log import report
from handrail.policy.policy import Policy
from handrail.session.conversation import Conversation
from handrail.session.options import SessionOptions
from handrail.session.session import Session
from handrail.store.store import Store
from handrail.toolkit.context import Host
from handrail.toolkit.toolbox import Toolbox, ToolLike

MAX_ROUNDS: Final = 64
MAX_TRIES: Final = 5
"""Requests for one answer, where they fail for a reason that may pass."""
FIRST_RETRY_WAIT: Final = 0.5
"""Seconds before the second request; each further wait is twice as long."""
LONGEST_RETRY_AFTER: Final = 60.0
"""Seconds that a provider may ask to wait; a longer wait ends the run."""
PIECES: Final = frozenset({"text", "thinking", "call_text"})
HOW_TO_ASK: Final = "write `async def ask(self, messages, tools, *, system)` with `yield Turn(…)` in it"
Reason = Literal["done", "asked_user", "round_limit", "budget", "cancelled", "model_error"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `text` is the model's last answer, its question to the user, or the error."""

    reason: Reason
    text: str
    session_id: str = field(default="", kw_only=True)
    usage: Usage = field(default=Usage(), kw_only=True)


@explains_misuse
class Agent:
    """A model and a session. Call `run` again to continue the conversation.

    Args:
        model: anything with `ask`.
        tools: for the agent's own session, as are sandbox, policy, approver, budget and store.
        sandbox: an open one, for tools that need files or commands.
        session: one of yours, with all of its options; then none of the others of a session may be given.
        policy: which calls run, which ask, and which are refused.
        approver: a function that asks a person. Without one, what asks is refused.
        budget: how many calls, refusals and seconds one run may use.
        rounds: how often the model may be asked in one run.
        system: the system text of every request.
        store: keeps the session in a file, so that `Agent.resume` can go on with it.
    """

    def __init__(
        self, model: Model, *, tools: Iterable[ToolLike] | Toolbox = (), sandbox: Any = None,
        session: Session | None = None, policy: Policy = Policy(), approver: Approver | None = None,
        budget: Budget = Budget(), rounds: int = MAX_ROUNDS, system: str = "", store: Store | None = None,
    ) -> None:  # fmt: skip
        self.model = _checked(model)
        expect("Agent.rounds", rounds, int, "a whole number above 0")
        expect_number("Agent.rounds", rounds, "a whole number above 0", least=0, above=True, whole=True)
        expect("Agent.system", system, str, "a text, or leave it out")
        self.session = _session_for(
            session, tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget, store=store
        )
        self.rounds, self.system = rounds, system
        self.model_name = str(getattr(model, "name", "") or type(model).__name__)
        self.session.opened_by |= {"model": self.model_name, "system": system}
        self.usage = Usage()
        self._traceback = ""
        self._conversation = Conversation(self.session.artifacts, model=self.model_name)

    @classmethod
    def resume(
        cls,
        model: Model,
        store: Store,
        id: str,
        *,
        rounds: int = MAX_ROUNDS,
        system: str = "",
        **options: Unpack[SessionOptions],
    ) -> "Agent":
        """Go on with a stored session, as `Session.resume` does; the conversation continues where it was."""
        return cls(model, session=Session.resume(store, id, **options), rounds=rounds, system=system)

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, as the session's events tell it."""
        self._conversation.read(self.session.trace_from(self._conversation.position))
        return self._conversation.messages

    def __repr__(self) -> str:
        return f"<Agent of {type(self.model).__name__}: {len(self.messages)} messages, {self.session!r}>"

    async def run(self, prompt: str) -> Outcome:
        """Work until the model is done or a limit is reached. Raises only when it is cancelled."""
        expect("the prompt", prompt, str, "a text")
        if (tracing := self.session.tracing) is not None:
            return await tracing.run(self, prompt, partial(self._run, prompt))
        return await self._run(prompt)

    async def _run(self, prompt: str) -> Outcome:
        reason: Reason = "cancelled"
        text = self._traceback = ""
        self.session.begin_run()
        outer = self.session.host.outer
        self.session.host.outer = host = _LoopHost(outer)
        self.session.emit("run_started", data={"model": self.model_name, "rounds": self.rounds})
        self.session.emit("user", data={"text": prompt, "images": []})
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
                turn = await self._ask()
            except Exception as error:  # noqa: BLE001 - an error of the model's client ends the run, not the program
                self._traceback = report(f"The model {type(self.model).__name__} (session {self.session.id!r})", error)
                return "model_error", describe_error(error)
            if not turn.calls:
                return "done", turn.text
            results = await self._answer(turn.calls)
            if host.ended:
                return host.ended
            if any(not result.ok and result.kind == "budget_exhausted" for result in results):
                return "budget", turn.text or "The budget of this run is used up."
        return "round_limit", f"The model was not done after {self.rounds} rounds."

    async def _ask(self) -> Turn:
        """The model's answer. A transient failure is tried again, after a while."""
        for attempt in range(1, MAX_TRIES + 1):
            began = self.session.event_count
            try:
                return self._record(await self._try(attempt))
            except ModelFailed as error:
                if not error.transient or attempt == MAX_TRIES or (error.retry_after or 0) > LONGEST_RETRY_AFTER:
                    raise
                shown = [event.seq for event in self.session.trace_from(began) if event.type in PIECES]
                wait = error.retry_after or min(FIRST_RETRY_WAIT * 2 ** (attempt - 1), LONGEST_RETRY_AFTER)
                wait *= 1 if error.retry_after else 0.5 + random()  # so that many clients do not come back at once
                self.session.emit("retried", data={"why": str(error), "wait": wait, "taken_back": shown})
                await anyio.sleep(wait)
        raise AssertionError  # the last try returns or raises

    async def _try(self, attempt: int) -> Turn:
        """One request to the model, in a span of its own if the session is traced."""
        tracing, ask = self.session.tracing, partial(self._answer_to, self.messages, attempt)
        return await (ask() if tracing is None else tracing.ask(self, ask))

    async def _answer_to(self, messages: Sequence[Message], attempt: int) -> Turn:
        emit = self.session.emit
        emit("model_asked", data={"try": attempt, "messages": len(messages)})
        turn: Turn | None = None
        given = self.model.ask(messages, self.session.schemas("mcp"), system=self.system)
        if not hasattr(given, "__aiter__"):
            raise ModelFailed(f"{type(self.model).__name__}.ask returned {shown(given)}; {HOW_TO_ASK}")
        async with _closing(given) as answer:
            async for event in answer:
                if isinstance(event, Turn):
                    turn = event
                elif isinstance(event, CallDelta):
                    emit("call_text", data={"index": event.index, "name": event.name, "text": event.text})
                elif isinstance(event, TextDelta | ThinkingDelta):
                    emit("text" if isinstance(event, TextDelta) else "thinking", data={"text": event.text})
                else:
                    raise ModelFailed(f"{type(self.model).__name__}.ask yielded {shown(event)}; {HOW_TO_ASK}")
        if turn is None:
            raise ModelFailed("the model's answer ended before it was complete", transient=True, kind="cut")
        return turn

    def _record(self, turn: Turn) -> Turn:
        """The answer as it is written into the transcript: with its own ids, and its cut call marked."""
        self.usage += turn.usage
        calls = self.session.ids.for_answer(turn.calls)
        if turn.stop not in ("end", "tool_use") and calls:  # the model was cut off inside its last call
            calls = (*calls[:-1], replace(calls[-1], cut=True))
        listed = [
            {"id": call.id, "name": call.name, "arguments": to_wire(call.arguments), "cut": call.cut} for call in calls
        ]
        self.session.emit(
            "model_answered",
            data={
                "text": turn.text, "calls": listed, "stop": turn.stop, "model": self.model_name,
                "usage": asdict(turn.usage), "keep": turn.keep,
            },
        )  # fmt: skip
        return replace(turn, calls=calls)

    async def _answer(self, calls: tuple[Call, ...]) -> list[Result]:
        return await self.session.call_all(calls)


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


@asynccontextmanager
async def _closing(answer: AsyncIterator[ModelEvent]) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """Close the answer when it is left early; a provider's connection would stay open."""
    try:
        yield answer
    finally:
        if isinstance(answer, AsyncGenerator):
            await answer.aclose()


def _checked(model: Model) -> Model:
    """The given model. Raises HandrailError for anything else."""
    if isinstance(model, type):
        refuse("Agent.model", model, f"an object of it: {model.__name__}(…)")
    if not callable(getattr(model, "ask", None)):
        raise HandrailError(f"{shown(model)} is not a Model: missing ask; write an object whose ask yields a Turn")
    if iscoroutinefunction(model.ask):
        raise HandrailError(f"{type(model).__name__}.ask returns its answer; {HOW_TO_ASK}")
    return model


def _session_for(
    session: Session | None,
    tools: Iterable[ToolLike] | Toolbox,
    *,
    sandbox: Any,
    policy: Policy,
    approver: Approver | None,
    budget: Budget,
    store: Store | None,
) -> Session:
    """The given session, or a new one. A given session already has its tools and rules."""
    if session is not None:
        expect("Agent.session", session, Session, "Session([…]), or leave it out")
    if session is None:
        return Session(tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget, store=store)
    extra = {"tools": tools, "sandbox": sandbox, "approver": approver, "store": store}
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
