"""The loop: ask the model, run its calls, append the results, repeat; every call has one result."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Final, Literal, Unpack

from handrail.aio import finish
from handrail.contract.approval import Approver
from handrail.contract.errors import HandrailError, NameConflict, describe_error
from handrail.contract.event import Event
from handrail.contract.limits import Budget
from handrail.contract.model import FailedKind, Message, Model, ModelFailed, Turn, Usage
from handrail.contract.result import Failure, Image, Result
from handrail.log import report
from handrail.misuse import expect, expect_number, explains_misuse
from handrail.policy.policy import Policy
from handrail.session.asking import Asking, checked_model
from handrail.session.child import ChildSession
from handrail.session.loop_host import LoopHost, check_run, watch_run
from handrail.session.messages import READ_AT_ONCE, Conversation
from handrail.session.options import SessionOptions
from handrail.session.session import Session
from handrail.session.steering import Steer, steer_to_listed_paths
from handrail.session.typed_answer import SEND_BACK, answer_tool, is_answer_tool
from handrail.session.window import Window
from handrail.store.store import Store
from handrail.toolkit.requests import BudgetSpent
from handrail.toolkit.toolbox import Tools

MAX_ROUNDS: Final = 64
TASK: Final = "You do one task for another assistant. It gets your last answer and nothing else of what you say."
ASK_AGAIN: Final = "Your last answer was empty. Go on with the work, or say what you have found."
Reason = Literal[
    "done", "asked_user", "round_limit", "budget", "cancelled", "model_error", "cut", "refused", "no_output"
]
End = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `text` is the model's last answer, its question to the user, or the error."""

    reason: Reason
    text: str
    session_id: str = field(default="", kw_only=True)
    usage: Usage = field(default=Usage(), kw_only=True)
    output: Any = field(default=None, kw_only=True)
    """The object that `Agent(output=…)` asks for; None unless the reason is `done`."""
    store_error: str = field(default="", kw_only=True)
    """Why the store lacks the end of this run; empty if it has it, or there is no store."""
    failed: FailedKind | None = field(default=None, kw_only=True)
    """The kind of the model's failure, where one ended the run."""
    retry_after: float | None = field(default=None, kw_only=True)
    """Seconds that the provider asked to wait, where its failure ended the run."""


@explains_misuse
class Agent:
    """A model and a session. Call `run` again to continue the conversation.

    Use it with `async with` to close the session that it made; a session that it was given stays open.

    Args:
        model: anything with `ask`.
        tools: for the agent's own session, as are sandbox, policy, approver, budget, store and secrets.
        sandbox: an open one, for tools that need files or commands.
        session: one of yours, with all of its options; then none of the others of a session may be given.
        policy: which calls run, which ask, and which are refused.
        approver: a function that asks a person. Without one, what asks is refused.
        budget: how many calls, requests, tokens, dollars and seconds one run may use.
        rounds: how often the model may be asked in one run.
        system: the system text of every request.
        store: keeps the session in a file, so that `Agent.resume` can go on with it.
        secrets: texts that no event, result, artifact, log, span, outcome or recording may contain.
        name: for events and spans.
        output: a pydantic model; the run ends when the model gives such an object by the tool `answer`.
        steer: called with the TaskState after each round; what it returns is told to the model. None: nothing is.
    """

    def __init__(
        self, model: Model, *, tools: Tools = (), sandbox: Any = None,
        session: Session | None = None, policy: Policy = Policy(), approver: Approver | None = None,
        budget: Budget = Budget(), rounds: int = MAX_ROUNDS, system: str = "", store: Store | None = None,
        secrets: Sequence[str] = (), name: str = "", output: type[Any] | None = None,
        steer: Steer | None = steer_to_listed_paths,
    ) -> None:  # fmt: skip
        self.model = checked_model(model)
        expect("Agent.rounds", rounds, int, "a whole number above 0")
        expect_number("Agent.rounds", rounds, "a whole number above 0", least=0, above=True, whole=True)
        expect("Agent.system", system, str, "a text, or leave it out")
        expect("Agent.name", name, str, "a text, or leave it out")
        self.session = _session_for(
            session, tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget, store=store,
            secrets=secrets,
        )  # fmt: skip
        self.rounds, self.system, self.name, self.steer = rounds, system, name, steer
        self._base_system = system
        """The system text without what tasks add to it; tasks inside tasks begin with it too."""
        self.model_name = str(getattr(model, "name", "") or type(model).__name__)
        self.session.opened_by |= {"model": self.model_name, "system": system}
        if self.session.scrubber is not None and (scrub := getattr(model, "scrub", None)) is not None:
            scrub(self.session.scrubber)
        self._closes = session is None
        """Whether `async with` closes the session."""
        self._conversation = Conversation(
            self.session.artifacts, model=self.model_name, window=Window(model), parent=self.session.task,
            start=self.session.event_count if self.session.task else 0,
        )  # fmt: skip
        self._asking = Asking(self, self.session, self._conversation, self.model_name)
        self._typed = output is not None
        self._run_state = _Run()
        if output is not None:
            made = answer_tool(output, self._accept)
            known = self.session.toolbox.get(made.name)
            if known is not None and not is_answer_tool(known):
                raise NameConflict(f"with output= the name {made.name!r} is Handrail's own; rename your tool")
            self.session.offer(made)

    @classmethod
    def resume(
        cls, model: Model, store: Store, id: str, *, rounds: int = MAX_ROUNDS, system: str = "", name: str = "",
        output: type[Any] | None = None, steer: Steer | None = steer_to_listed_paths,
        **options: Unpack[SessionOptions],
    ) -> "Agent":  # fmt: skip
        """Go on with a stored session, as `Session.resume` does; the conversation continues where it was."""
        session = Session.resume(store, id, **options)
        agent = cls(model, session=session, rounds=rounds, system=system, name=name, output=output, steer=steer)
        agent._closes = True
        return agent

    async def __aenter__(self) -> "Agent":
        if self._closes:
            await self.session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.session.__aexit__(kind, error, trace) if self._closes else None

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, as the session's events tell it."""
        self.session.flush()
        return self._conversation.follow(self.session)

    def __repr__(self) -> str:
        return f"<Agent of {type(self.model).__name__}: {len(self.messages)} messages, {self.session!r}>"

    @property
    def usage(self) -> Usage:
        """What all requests of this agent took."""
        self.session.flush()
        return self._asking.usage

    async def run(self, prompt: str, *, images: Sequence[Image] = ()) -> Outcome:
        """Work until the model is done or a limit is reached.

        Raises HandrailError for a blank prompt, and while the session has another run; otherwise only when it is
        cancelled.
        """
        check_run(self.session, prompt, images)
        if (tracing := self.session.tracing) is not None:
            return await tracing.run(self, prompt, partial(self._run, prompt, images))
        return await self._run(prompt, images)

    def stream(self, prompt: str, *, images: Sequence[Image] = ()) -> AsyncIterator[Event]:
        """Run, and yield the events as they happen; the last one is `run_ended`. Leaving early ends the run."""
        check_run(self.session, prompt, images)
        return watch_run(self.session, partial(self.run, prompt, images=images))

    async def _run(self, prompt: str, images: Sequence[Image]) -> Outcome:
        reason: Reason = "cancelled"
        text = ""
        self.session.begin_run()
        outer, inside = self.session.host.outer, self.session.task is not None
        self.session.host.outer = host = LoopHost(self._do_task, self.session.host.person, inside_task=inside)
        state = self._run_state = _Run()
        started = {"model": self.model_name, "rounds": self.rounds, "agent": self.name}
        self.session.emit("run_started", data=started)
        try:
            kept = [await self._keep(image) for image in images]
            self.session.emit("user", data={"text": prompt, "images": kept})
            reason, text = await self._rounds(host, state)
        except Exception as error:
            reason, text = "model_error", describe_error(error)
            raise
        finally:
            self.session.host.outer = outer
            text = text if self.session.scrubber is None else self.session.scrubber.text(text)
            self.session.emit("run_ended", data={"reason": reason, "text": text, **state.as_data()})
        if self.session.store_error:
            await self.session.settle()
        return Outcome(
            reason, text, session_id=self.session.id, usage=self.usage, output=state.output,
            store_error=self.session.store_error, failed=state.failed, retry_after=state.retry_after,
        )  # fmt: skip

    async def _rounds(self, host: LoopHost, state: "_Run") -> End:
        for _ in range(self.rounds):
            try:
                turn = await self._turn_in_time()
            except BudgetSpent as spent:
                return "budget", str(spent)
            except Exception as error:  # noqa: BLE001 - an error of the model's client ends the run, not the program
                who = f"The model {type(self.model).__name__} (session {self.session.id!r})"
                state.traceback = report(who, error)
                state.failed = error.kind if isinstance(error, ModelFailed) else "error"
                state.retry_after = getattr(error, "retry_after", None)
                return "model_error", describe_error(error)
            end = await self._act(turn, host, state) if turn.calls else self._conclude(turn, state)
            if end is not None:
                return end
        return "round_limit", f"The model was not done after {self.rounds} rounds."

    async def _turn_in_time(self) -> Turn:
        """The model's next answer. Raises BudgetSpent, also if the run's seconds are over before it is complete."""
        clock = self.session.shared.counts.clock
        if (left := clock.left()) == inf:
            return await self._asking.turn()
        if left > 0:
            with clock.limit(left):
                return await self._asking.turn()
        raise BudgetSpent(f"The {self.session.shared.budget.seconds:g} s of this run are used up.")

    async def _act(self, turn: Turn, host: LoopHost, state: "_Run") -> End | None:
        """Run the calls of an answer. Returns how the run ends, if it does."""
        state.empty = False
        self.session.tokens_left = self._asking.tokens_left(len(turn.calls))
        results = await self.session.call_all(turn.calls)
        if turn.stop == "refused":
            return "refused", turn.text or "The model refused to go on."
        if state.output is not None:
            return "done", turn.text or state.output.model_dump_json()
        if host.ended and host.ended[0] == "done" and self._typed:
            (_, text), host.ended = host.ended, None
            return self._send_back(text, state)
        if host.ended:
            return host.ended
        spent = any(not result.ok and result.kind == "budget_exhausted" for result in results)
        if spent or self.session.shared.tasks_ended:
            return "budget", turn.text or "The budget of this run is used up."
        if len(results) > READ_AT_ONCE:
            await self._conversation.catch_up(self.session)
        self._steer_by_state(state)
        return None

    def _conclude(self, turn: Turn, state: "_Run") -> End | None:
        """What an answer without calls means. None: the model is asked again."""
        if turn.stop == "paused":
            self.session.flush()  # the model is told of its answer, and may be a person
            return None
        if turn.stop == "refused":
            return "refused", turn.text or "The model refused to answer."
        if turn.stop == "max_tokens":
            return "cut", turn.text or "The model's answer reached its limit of tokens before it said anything."
        if self._typed:
            return self._send_back(turn.text, state)
        if turn.text.strip():
            return "done", turn.text
        if state.empty:
            return "model_error", "The model answered twice with neither text nor calls."
        state.empty = True
        self._tell("empty", ASK_AGAIN)
        return None

    def _send_back(self, text: str, state: "_Run") -> End | None:
        """Ask for a typed answer in place of text, once."""
        if state.sent_back:
            return "no_output", text
        state.sent_back = True
        self._tell("no_output", SEND_BACK)
        return None

    def _accept(self, answer: Any) -> bool:
        """Take a typed answer, if it is the first of this run."""
        return self._run_state.accept(answer)

    def _steer_by_state(self, state: "_Run") -> None:
        if self.steer is None:
            return
        self._conversation.follow(self.session)
        try:
            text = self.steer(self._conversation.state)
            if text is not None:
                expect("what it returned", text, str, "a text for the model, or return None")
        except Exception as error:  # noqa: BLE001 - it may be anybody's code; the run goes on without it
            traceback = report("The function `steer`", error)
            message = f"The function `steer` raised {describe_error(error)}; the model was told nothing."
            self.session.emit("warning", data={"message": message, "traceback": traceback})
            return
        if text and text != state.steered:  # the same advice twice in a row helps nobody
            self._tell("state", text)
        state.steered = text or ""

    def _tell(self, why: str, text: str) -> None:
        """Tell the model something as a user's message."""
        self.session.emit("steered", data={"text": text, "why": why})

    async def _do_task(
        self, call_id: str, number: int, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Give a task to an agent of its own, in a child session."""
        if not prompt.strip():
            return Failure("invalid_args", "The prompt is blank: say what the task is.", field="prompt")
        child = ChildSession(self.session, call_id, number, tools)
        agent: Agent | None = None
        outcome = Outcome("cancelled", "go on without it.")
        try:
            with child.scope:
                await child.enter(cwd)
                parts = (self._base_system, TASK, f"Your role: {role}" if role.strip() else "")
                system = "\n\n".join(part for part in parts if part)
                agent = Agent(
                    self.model, session=child, rounds=self.rounds, system=system, name=role or self.name,
                    steer=self.steer,
                )  # fmt: skip
                agent._base_system = self._base_system
                outcome = await agent.run(prompt)
        finally:
            self._asking.usage += Usage() if agent is None else agent.usage
            await finish(child.end)
        return child.result(outcome.reason, outcome.text)

    async def _keep(self, image: Image) -> str:
        """Keep a picture of the prompt. Returns its reference."""
        ref = (await self.session.artifacts.put(image.data, media_type=image.media_type)).ref
        self.session.artifacts.show(ref)
        return ref


class _Run:
    """What one run notes as it goes."""

    def __init__(self) -> None:
        self.output: Any = None
        self.traceback = self.steered = ""
        self.failed: FailedKind | None = None
        self.retry_after: float | None = None
        self.empty = self.sent_back = False
        """Whether the last answer was empty; whether a text was sent back for want of a typed answer."""

    def accept(self, output: Any) -> bool:
        """Take the typed answer, if it is the first."""
        if self.output is not None:
            return False
        self.output = output
        return True

    def as_data(self) -> dict[str, Any]:
        """What `run_ended` says of it."""
        output = {} if self.output is None else {"output": self.output.model_dump(mode="json")}
        return output | ({"traceback": self.traceback} if self.traceback else {})


def _session_for(
    session: Session | None,
    tools: Tools,
    *,
    sandbox: Any,
    policy: Policy,
    approver: Approver | None,
    budget: Budget,
    store: Store | None,
    secrets: Sequence[str],
) -> Session:
    """The given session, or a new one. A given session already has its tools and rules."""
    if session is not None:
        expect("Agent.session", session, Session, "Session([…]), or leave it out")
    if session is None:
        return Session(
            tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget, store=store, secrets=secrets
        )
    extra = {"tools": tools, "sandbox": sandbox, "approver": approver, "store": store, "secrets": secrets}
    given = [name for name, value in extra.items() if value is not None and value != ()]
    given += [
        name
        for name, value, default in (("policy", policy, Policy()), ("budget", budget, Budget()))
        if value != default
    ]
    if given:
        raise HandrailError(f"give {', '.join(given)} to the Session, because this Agent was given a session")
    return session
