"""Repair values by their schema, only where there is exactly one meaning."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that preflight changed."""

    path: str
    rule: str
    before: Any
    after: Any
    changed_value: bool
    """Whether the value itself is another one, not only its spelling or wrapping."""
    consequential: bool = False
    """Whether it happened in a path, command, content, id or amount."""
