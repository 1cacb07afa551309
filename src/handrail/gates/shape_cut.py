"""Cut a text to its beginning and its end, never inside a character or a terminal sequence, and say what is missing."""

import re
from typing import Final

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
MARKER: Final = re.compile(
    r"\n?\[… (?P<left>[\d,]+) of (?P<total>[\d,]+) characters left out(?:; full output: (?P<ref>a_[0-9a-f]+))?\]\n?"
)


def cut(text: str, cap: int, ref: str | None = None) -> str:
    """At most `cap` characters of `text` around a line that says how many are missing, and where they are."""
    if len(text) <= cap:
        return text
    head = int(cap * HEAD)
    return join(beginning(text, head), ending(text, cap - head), len(text), ref)


def join(head: str, tail: str, total: int, ref: str | None) -> str:
    """A beginning and an end of a text of `total` characters."""
    left_out = max(0, total - len(head) - len(tail))
    where = f"; full output: {ref}" if ref else ""
    return f"{head}\n[… {left_out:,} of {total:,} characters left out{where}]\n{tail}"


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
