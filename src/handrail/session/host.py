"""The Host of a call: what a tool may ask of the program around its session, and of the run that it is in."""

from collections.abc import Mapping, Sequence
from os import urandom
from typing import TYPE_CHECKING, Any, Literal, Protocol

from handrail.aio import OwnLoop, on_own_loop
from handrail.contract.call import Call
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Result
from handrail.toolkit.context import PassedOn

if TYPE_CHECKING:
    from handrail.session.core import SessionCore


class LoopRun(Protocol):
    """The run of an agent, as its tools reach it."""

    ended: tuple[Literal["done", "asked_user"], str] | None
    """Set by a tool that ends the run after this round: the reason, and the text of the outcome."""

    async def start_task(
        self, call_id: str, number: int, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Do task `number` of a call."""


class SessionHost:
    """The host that a session was given, by any of its methods; else the run of its agent; else `unavailable`."""

    __slots__ = ("_call", "_core")

    def __init__(self, core: "SessionCore", call: Call) -> None:
        self._core, self._call = core, call

    @property
    def own_loop(self) -> OwnLoop:
        return self._core.own_loop

    @on_own_loop
    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """Ask the person; without one, the question ends the run, and the person reads it in the outcome."""
        if (ask := self._own("ask")) is not None:
            answer: str = await ask(question, choices)
            return answer
        if self._core.run is None:
            raise _unavailable("ask a person")
        self._core.run.ended = ("asked_user", question + "".join(f"\n- {choice}" for choice in choices))
        asked = {"id": urandom(6).hex(), "question": question, "choices": list(choices)}
        self._core.emit("question_asked", self._call.id, None, asked)
        return PassedOn("The question was passed to the user, who answers with the next message.")

    @on_own_loop
    async def spawn(
        self, prompt: str, *, role: str = "", tools: Sequence[str] | None = None, cwd: str | None = None
    ) -> Result:
        """Start the next task of the call."""
        core, id = self._core, self._call.id
        number = core.task_numbers[id] = core.task_numbers.get(id, 0) + 1
        if (spawn := self._own("spawn")) is not None:
            try:
                result: Result = await spawn(prompt, role=role, tools=tools, cwd=cwd)
                return result
            except ToolFailed as error:
                if core.run is None or error.failure.kind != "unavailable":
                    raise
        if core.run is None:
            raise _unavailable("start a task")
        return await core.run.start_task(id, number, prompt, role, tools, cwd)

    def finish(self, summary: str) -> None:
        """End the run after this round; the end of a task is no end for the program around it."""
        run, finish = self._core.run, self._own("finish")
        if run is None and finish is None:
            raise _unavailable("end the loop")
        if run is not None:
            run.ended = ("done", summary)
        if finish is not None and (run is None or self._core.task is None):
            finish(summary)

    def deferred_tools(self) -> Mapping[str, str]:
        return self._core.tools.deferred()

    def load_tools(self, names: Sequence[str]) -> None:
        self._core.tools.load(names)

    def _own(self, name: str) -> Any:
        """A method of the host that the session was given; None without it."""
        return getattr(self._core.person, name, None)


def _unavailable(what: str) -> ToolFailed:
    return ToolFailed(Failure("unavailable", f"This session cannot {what}. Go on without it.", retryable=False))
