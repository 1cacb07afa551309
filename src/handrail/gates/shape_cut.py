"""Cut a text to its beginning and its end, never inside a character or a terminal sequence, and say what is missing."""

import re
from typing import Final

from handrail.contract.result import ArtifactRef, Excerpt

HEAD: Final = 0.4
"""The part of a cap that shows the beginning; the rest shows the end."""
LONGEST_SEQUENCE: Final = 4_096
"""Characters of a terminal sequence that is kept in one piece."""
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
_BEGINS: Final = re.compile("[\x1b\x9b]")


def cut(text: str, cap: int, kept: ArtifactRef | None = None) -> str:
    """At most `cap` characters of `text` around a line that says how many are missing, and where they are."""
    if len(text) <= cap:
        return text
    head = int(cap * HEAD)
    return excerpt(beginning(text, head), ending(text, cap - head), len(text), kept)


def excerpt(head: str, tail: str, total: int, kept: ArtifactRef | None) -> Excerpt:
    """A beginning and an end of a text of `total` characters."""
    return Excerpt(head, tail, max(0, total - len(head) - len(tail)), total, kept)


def beginning(text: str, length: int) -> str:
    """About the first `length` characters; a sequence that would be broken is left out."""
    broken = _broken(text, length)
    return text[: length if broken is None else broken[0]]


def ending(text: str, length: int) -> str:
    """About the last `length` characters; a sequence that would be broken is left out."""
    start = max(0, len(text) - length)
    broken = _broken(text, start)
    return text[start if broken is None else broken[1] :]


def _broken(text: str, at: int) -> tuple[int, int] | None:
    """Where the sequence begins and ends that a cut at `at` would break."""
    for begins in _BEGINS.finditer(text, max(0, at - LONGEST_SEQUENCE), at):
        found = _SEQUENCE.match(text, begins.start(), begins.start() + LONGEST_SEQUENCE)
        if found and found.end() > at:
            return found.start(), found.end()
    return None
