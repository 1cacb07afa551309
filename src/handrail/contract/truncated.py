"""A Truncated text lacks its middle. Only this file cuts such a text, writes its marker, or takes it apart."""

import re
from functools import cache
from typing import Any, Final, Protocol

from handrail.contract.result import ArtifactRef
from handrail.contract.wire import WireForm

HEAD_SHARE: Final = 0.4
"""Share of a cap that shows the beginning of a text; the rest shows its end."""
MAX_SEQUENCE_CHARS: Final = 4_096
"""Length of the longest terminal sequence that is kept in one piece, in characters."""
_SEQUENCE: Final = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
_SEQUENCE_START: Final = "[\x1b\x9b]"


class Whole(Protocol):
    """The whole of a text that is not stored yet."""

    @property
    def incomplete(self) -> bool:
        """Whether a part of the text was discarded, as far as is known after reading it."""
        ...

    def __call__(self, start: int, length: int, /) -> bytes:
        """Read a range: fewer bytes at the end, none after it."""
        ...


class Truncated(str, WireForm):
    """The beginning of a text, a line that says how much is missing and where it is, and the end.

    It is a value of its own so that nobody has to look for such a line in a text: one that a command printed is data.

    Example:
        ```python
        text = Truncated("begin", "end", left_out=992, total=1000)
        print(text)
        print(text.head, text.tail, text.left_out)
        #> begin
        #> [… 992 of 1,000 characters left out]
        #> end
        #> begin end 992
        ```
    """

    __slots__ = ("_ends", "_starts", "left_out", "total", "whole")
    left_out: int
    total: int
    """Length of the whole text, in characters."""
    whole: ArtifactRef | Whole | None
    """Location of the whole text: an artifact, or a reader while the text is not stored yet."""
    _starts: int
    _ends: int

    def __new__(cls, head: str, tail: str, left_out: int, total: int, whole: Any = None) -> "Truncated":
        ref = getattr(whole, "ref", None)
        which = "incomplete" if ref is not None and whole.incomplete else "full"
        where = f"; {which} output: {ref}" if ref is not None else ""
        made = super().__new__(cls, f"{head}\n[… {left_out:,} of {total:,} characters left out{where}]\n{tail}")
        made._starts, made._ends = len(head), len(tail)
        made.left_out, made.total, made.whole = left_out, total, whole
        return made

    @property
    def head(self) -> str:
        return self[: self._starts]

    @property
    def tail(self) -> str:
        return self[len(self) - self._ends :]

    @property
    def shown(self) -> int:
        """Length of the text that is shown, in characters, without the marker line."""
        return self._starts + self._ends

    def of(self, whole: ArtifactRef | None) -> "Truncated":
        """The same text with another location of the whole."""
        return Truncated(self.head, self.tail, self.left_out, self.total, whole)

    def within(self, cap: int) -> "Truncated":
        """The same text with at most `cap` characters shown; itself if it has no more."""
        return self if self.shown <= cap else joined(self.head, self.tail, self.total, cap, self.whole)

    def to_wire(self) -> str:
        """The plain text."""
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy as plain text: the reader of the whole text is not copied."""
        return str, (str(self),)


def cut(text: str, cap: int, whole: ArtifactRef | None = None) -> str:
    """The text itself, or a Truncated with at most `cap` characters of it."""
    return text if len(text) <= cap else joined(text, text, len(text), cap, whole)


def joined(first: str, last: str, total: int, cap: int, whole: Any = None) -> Truncated:
    """A Truncated of a text that begins with `first`, ends with `last` and has `total` characters."""
    head, tail = ends(first, last, cap)
    return Truncated(head, tail, max(0, total - len(head) - len(tail)), total, whole)


def ends(first: str, last: str, cap: int) -> tuple[str, str]:
    """The two ends of a text in `cap` characters; a terminal sequence that would be broken is left out."""
    head_cap = int(cap * HEAD_SHARE)
    stop, start = min(len(first), head_cap), max(0, len(last) - (cap - head_cap))
    if stop < len(first) and (broken := _broken(first, stop)):
        stop = broken[0]
    if start > 0 and (broken := _broken(last, start)):
        start = broken[1]
    return first[:stop], last[start:]


def _broken(text: str, at: int) -> tuple[int, int] | None:
    """Start and end of the terminal sequence that a cut at `at` would break."""
    for begins in _compiled(_SEQUENCE_START).finditer(text, max(0, at - MAX_SEQUENCE_CHARS), at):
        found = _compiled(_SEQUENCE).match(text, begins.start(), begins.start() + MAX_SEQUENCE_CHARS)
        if found and found.end() > at:
            return found.start(), found.end()
    return None


_compiled = cache(re.compile)
