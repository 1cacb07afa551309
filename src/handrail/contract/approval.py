"""An approval: what a person is asked, and what they may answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Risk = Literal["safe", "high", "critical"]
Effect = Literal["reads", "writes", "executes", "reaches_out", "spends"]
Answer = Literal["approve", "remember", "edit", "deny", "skip"]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Rendered by Handrail from the arguments, never by the model. It is bound to all of these fields."""

    id: str
    call_id: str
    tool: str
    risk: Risk
    effects: frozenset[Effect]
    arguments: Mapping[str, Any]
    arguments_hash: str
    text: str
    """The call in plain text, control and bidi characters made visible."""
    repairs: tuple[str, ...]
    """What preflight changed, before and after."""
    reason: str
    """Why somebody is asked."""
    suggested_rule: str
    """The exact rule that `Decision.remember()` would keep."""
    sandbox: str
    expires_at: float
    """Seconds since the epoch; an answer after it counts for nothing."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Made by one of the five class methods."""

    verdict: Answer
    arguments: Mapping[str, Any] | None = None
    message: str = ""

    @classmethod
    def approve(cls) -> "Decision":
        """Run it, this once."""
        return cls("approve")

    @classmethod
    def remember(cls) -> "Decision":
        """Run it, and keep the suggested rule for the rest of the session."""
        return cls("remember")

    @classmethod
    def edit(cls, arguments: Mapping[str, Any]) -> "Decision":
        """Run it with these arguments, which pass preflight and the policy again."""
        return cls("edit", arguments=arguments)

    @classmethod
    def deny(cls, message: str = "") -> "Decision":
        """Do not run it; tell the model why."""
        return cls("deny", message=message)

    @classmethod
    def skip(cls) -> "Decision":
        """Do not run it; say nothing more."""
        return cls("skip")


Approver = Callable[[ApprovalRequest], Awaitable[Decision]]
"""May carry `.wait`, the seconds to wait for an answer: 300, or 55 on a detached channel."""
