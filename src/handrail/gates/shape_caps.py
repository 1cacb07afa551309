"""How much of an answer the model is shown: one number for each kind, smaller when little room is left."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

ROOMY: Final = 100_000
"""Tokens left in the context from which on nothing is made smaller."""
SMALLEST: Final = 0.1
"""The part of each cap that always stays."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Characters, unless it says otherwise."""

    text: int = 48_000
    stdout: int = 50_000
    stderr: int = 10_000
    lines: int = 2_000
    """Lines of a file."""
    file: int = 50 << 10
    """Bytes of a file's text."""
    entries: int = 500
    """Entries of a listing."""
    matches: int = 100
    match: int = 500
    """Characters of a matching line."""
    paths: int = 1_000
    other: int = 100_000


FULL: Final = Caps()
_SHRINK: Final = ("text", "stdout", "stderr", "lines", "file", "entries", "matches", "paths", "other")


@lru_cache(maxsize=256)
def caps_for(output_cap: int | None, percent: int) -> Caps:
    """The caps of a tool, which may set its own number of characters, at this percentage of their size."""
    own = FULL if output_cap is None else _of(output_cap)
    if percent >= 100:
        return own
    part = max(percent / 100, SMALLEST)
    return Caps(match=own.match, **{name: max(1, int(getattr(own, name) * part)) for name in _SHRINK})


def percent_of(tokens_left: int | None) -> int:
    """How large the caps are, in percent, with so many tokens left in the context."""
    return 100 if tokens_left is None else max(0, min(100, tokens_left * 100 // ROOMY))


def _of(cap: int) -> Caps:
    """A tool's own cap is for all it says; a command's two streams share it as they share theirs."""
    stderr = max(1, cap * FULL.stderr // (FULL.stdout + FULL.stderr))
    return Caps(text=cap, stdout=max(1, cap - stderr), stderr=stderr, file=cap, other=cap)
