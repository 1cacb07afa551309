"""How a run ended, and who stands around the session while it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from handrail.contract.errors import ToolFailed
from handrail.contract.model import Usage
from handrail.contract.result import Failure, Result
from handrail.toolkit.context import Host

Reason = Literal["done", "asked_user", "round_limit", "budget", "cancelled", "model_error"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`text` is the model's last answer, the question it asked, or what went wrong."""

    reason: Reason
    text: str
    output: Any = field(default=None, kw_only=True)
    session_id: str = field(default="", kw_only=True)
    usage: Usage = field(default=Usage(), kw_only=True)


class LoopHost:
    """The loop as a tool sees it: it can be ended, and a question ends it too, for the person reads the outcome."""

    def __init__(self, around: Host | None = None) -> None:
        self.ended: tuple[Reason, str] | None = None
        self._around = around
        """Who stood around the session before: they are asked first."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        if self._around is not None:
            return await self._around.ask(question, choices)
        listed = "".join(f"\n- {choice}" for choice in choices)
        self.ended = ("asked_user", question + listed)
        raise ToolFailed(
            Failure("unavailable", "The question goes to the user, who answers with the next message.", retryable=False)
        )

    async def spawn(self, prompt: str, *, tools: Sequence[str] | None = None, cwd: str | None = None) -> Result:
        if self._around is not None:
            return await self._around.spawn(prompt, tools=tools, cwd=cwd)
        return Failure("unavailable", "This loop cannot start tasks; do the work yourself.", retryable=False)

    def finish(self, summary: str) -> None:
        self.ended = ("done", summary)
        if self._around is not None:
            self._around.finish(summary)

    def deferred_tools(self) -> dict[str, str]:
        return {}

    def load_tools(self, names: Sequence[str]) -> None:
        return None
