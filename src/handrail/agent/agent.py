"""An Agent: a model and a session; each run is one turn of a conversation."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Unpack

import anyio

from handrail.agent.child import do_task, system_text
from handrail.agent.conversation import Conversation
from handrail.agent.loop import Outcome, Run
from handrail.agent.requests import ModelRequests, checked_model
from handrail.agent.steering import Steer, steer_to_listed_paths
from handrail.agent.typed_answer import AnswerTool, answer_tool
from handrail.agent.window import Window
from handrail.aio import finish, in_background
from handrail.contract.approval import Approver
from handrail.contract.errors import HandrailError, NameConflict
from handrail.contract.event import Event
from handrail.contract.limits import Budget
from handrail.contract.model import Message, Model, Usage
from handrail.contract.result import Image, Result
from handrail.misuse import expect, expect_number, explains_misuse
from handrail.policy.policy import Policy
from handrail.session.options import SessionOptions
from handrail.session.session import Session, core_of
from handrail.store.store import Store
from handrail.toolkit.toolbox import Tools

MAX_ROUNDS: Final = 64
"""Answers of the model in one run, unless the Agent is given another number."""


@explains_misuse
class Agent:
    """A model and a session. Call `run` again to continue the conversation.

    Use it with `async with` to close the session that it made; a session that it was given stays open.

    Example:
        ```python
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b

        model = ScriptedModel([Turn(calls=(Call("1", "add", {"a": 40, "b": 2}),)), "It is 42."])
        async with Agent(model, tools=[add]) as agent:
            print((await agent.run("How much is 40 + 2?")).text)
        #> It is 42.
        ```

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
        core = self._core = core_of(self.session)
        self.rounds, self.system, self.name, self.steer = rounds, system, name, steer
        self._base_system = system
        """The system text without what tasks add to it; tasks inside tasks begin with it too."""
        self.model_name = str(getattr(model, "name", "") or type(model).__name__)
        core.opened_by |= {"model": self.model_name, "system": system}
        if core.scrubber is not None and (scrub := getattr(model, "scrub", None)) is not None:
            scrub(core.scrubber)
        self._closes = session is None
        """Whether `async with` closes the session."""
        self._conversation = Conversation(
            core.transcript, core.artifacts, model=self.model_name, window=Window(model), parent=core.task,
            start=core.transcript.count if core.task else 0, keeps_state=steer is not None,
        )  # fmt: skip
        self._requests = ModelRequests(self, core, self._conversation, self.model_name)
        self._typed = output is not None
        self._current: Run | None = None
        """The run that is under way, or the last one."""
        if output is not None:
            made = answer_tool(output, self._accept)
            known = core.toolbox.get(made.name)
            if known is not None and not isinstance(known, AnswerTool):
                raise NameConflict(f"with output= the name {made.name!r} is Handrail's own; rename your tool")
            core.add_tool(made)

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
        return self._conversation.messages

    def __repr__(self) -> str:
        return f"<Agent of {type(self.model).__name__}: {len(self.messages)} messages, {self.session!r}>"

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all requests of this agent."""
        self.session.flush()
        return self._requests.usage

    async def run(self, prompt: str, *, images: Sequence[Image] = ()) -> Outcome:
        """Work until the model is done or a limit is reached.

        Raises HandrailError for a blank prompt, and while the session has another run; otherwise only when it is
        cancelled.
        """
        _check_run(self.session, prompt, images)
        run = self._current = Run(
            self._core, self._conversation, self._requests, rounds=self.rounds, steer=self.steer, typed=self._typed,
            do_task=self._do_task, model=self.model_name, name=self.name,
        )  # fmt: skip
        if (tracing := self._core.tracing) is not None:
            return await tracing.run(self, prompt, partial(run.run, prompt, images))
        return await run.run(prompt, images)

    def question(self) -> Mapping[str, Any] | None:
        """The question of `ask_user` that waits for its answer: id, question and choices; None if none does."""
        for event in reversed(self._core.transcript.since(0)):
            if event.parent is None and event.type in ("user", "question_answered", "question_asked"):
                return event.data if event.type == "question_asked" else None
        return None

    def answered(self, question_id: str, text: str, *, by: str = "user") -> bool:
        """Note the answer to a question, which the next run begins with. Whether the question still waited."""
        waits = self.question()
        if waits is None or waits["id"] != question_id or self._core.run is not None:
            return False
        self._core.emit("question_answered", data={"id": question_id, "text": text, "by": by})
        return True

    def stream(self, prompt: str, *, images: Sequence[Image] = ()) -> AsyncIterator[Event]:
        """Run, and yield the events as they happen; the last one is `run_ended`. Leaving early ends the run."""
        _check_run(self.session, prompt, images)
        return _watch_run(self.session, partial(self.run, prompt, images=images))

    def _accept(self, answer: Any) -> bool:
        """Take a typed answer, if it is the first of this run."""
        return self._current is not None and self._current.accept(answer)

    async def _do_task(
        self, call_id: str, number: int, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Give a task to an agent of its own, in a child session."""
        made: list[Agent] = []

        def make(session: Session) -> Agent:
            agent = Agent(
                self.model, session=session, rounds=self.rounds, system=system_text(self._base_system, role),
                name=role or self.name, steer=self.steer,
            )  # fmt: skip
            agent._base_system = self._base_system
            made.append(agent)
            return agent

        try:
            return await do_task(self._core, call_id, number, prompt, tools, cwd, make)
        finally:
            for agent in made:
                self._requests.usage += agent.usage


def _check_run(session: Session, prompt: str, images: Sequence[Image]) -> None:
    """Raise HandrailError where no run can begin: two at once would leave calls without results.

    Also for a prompt that no model could answer.
    """
    expect("the prompt", prompt, str, "a text")
    expect("images", images, Sequence, "a list: [Image(data, media_type)]")
    for image in images:
        expect("one of the images", image, Image, "Image(data, media_type)")
    if not prompt.strip() and not images:
        raise HandrailError("the prompt is blank: say what the model should do")
    core = core_of(session)
    if core.transcript.closed:
        raise HandrailError(f"session {session.id} is closed; open a new one, or resume it from its store")
    if core.run is not None:
        raise HandrailError(f"session {session.id} has a run already; wait for its end, or use another session")


async def _watch_run(session: Session, run: Callable[[], Awaitable[Any]]) -> AsyncIterator[Event]:
    """Yield the events of a run until it has ended.

    The run has its own task, because a generator that is left early may be closed in another task.
    """
    failed: list[BaseException] = []

    async def work() -> None:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    seen = len(session.trace)
    task, ended = in_background(work()), anyio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        async for event in session.events(seen):
            yield event
            if event.type == "run_ended" and event.parent == core_of(session).task:  # of this run, not of a task in it
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
