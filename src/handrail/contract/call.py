"""A Call: what somebody asked a tool to do, exactly as it was asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Origin = Literal["model", "script", "task", "mcp", "user"]
Arguments = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request to run one tool. It is never changed after it was accepted."""

    id: str
    name: str
    arguments: Arguments
    """The raw text a model sent, or a mapping."""
    origin: Origin = field(default="model", kw_only=True)
    parent: str | None = field(default=None, kw_only=True)
    """The id of the call inside which this one was made."""
    cut: bool = field(default=False, kw_only=True)
    """The model was cut off while it wrote this call; such a call is never run."""
