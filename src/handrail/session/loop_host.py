"""The Host of an agent's loop: what a tool may ask of the program that runs it."""

from collections.abc import Sequence
from typing import Literal

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Result
from handrail.toolkit.context import Host


class LoopHost:
    """The loop as a tool sees it. `finish` ends it; so does a question, which the person reads in the outcome."""

    def __init__(self, outer: Host | None = None) -> None:
        self.ended: tuple[Literal["done", "asked_user"], str] | None = None
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
