"""The Host of an agent's loop: what a tool may ask of the program that runs it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Result
from handrail.toolkit.context import Host

StartTask = Callable[[str, int, str, str, Sequence[str] | None, str | None], Awaitable[Result]]
"""Of the call with this id, its task of this number: prompt, role, tools, cwd."""


class LoopHost:
    """The loop as a tool sees it. `finish` ends it; so does a question, which the person reads in the outcome."""

    def __init__(self, start: StartTask, outer: Host | None = None, *, inside_task: bool = False) -> None:
        self.ended: tuple[Literal["done", "asked_user"], str] | None = None
        self.person = outer
        """The session's own host, which is asked first."""
        self._start = start
        self._inside_task = inside_task

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        if (ask := getattr(self.person, "ask", None)) is not None:
            answer: str = await ask(question, choices)
            return answer
        listed = "".join(f"\n- {choice}" for choice in choices)
        self.ended = ("asked_user", question + listed)
        raise ToolFailed(
            Failure(
                "unavailable",
                "The question was passed to the user, who answers with the next message.",
                retryable=False,
            )
        )

    async def start_task(
        self, call_id: str, number: int, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Start task `number` of a call, unless the session's own host does."""
        if (spawn := getattr(self.person, "spawn", None)) is not None:
            try:
                result: Result = await spawn(prompt, role=role, tools=tools, cwd=cwd)
                return result
            except ToolFailed as error:
                if error.failure.kind != "unavailable":
                    raise
        return await self._start(call_id, number, prompt, role, tools, cwd)

    def finish(self, summary: str) -> None:
        self.ended = ("done", summary)
        if (finish := getattr(self.person, "finish", None)) is not None and not self._inside_task:
            finish(summary)
