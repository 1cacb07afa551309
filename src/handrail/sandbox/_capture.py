"""Keep the beginning and end of one stream in bounded memory, and return its text within a cap."""

import codecs
from typing import Final, NamedTuple

from handrail.contract.truncated import HEAD_SHARE, MAX_SEQUENCE_CHARS, Truncated, Whole, ends

_WIDEST: Final = 4
"""Bytes of the longest character."""


class Cut(NamedTuple):
    """A stream as it is returned. `text`, a Truncated if it was cut, is `data` decoded."""

    text: str
    data: bytes
    truncated: bool


class Capture:
    """One stream: its first and last bytes, its true size, and, once bytes are dropped, a count of its characters.

    A byte that is not part of a character counts as one.
    """

    __slots__ = (
        "_cap", "_decoder", "_head", "_head_room", "_tail", "_tail_room", "characters", "size",
    )  # fmt: skip

    def __init__(self, cap: int) -> None:
        self._cap = cap
        starts = int(cap * HEAD_SHARE)
        self._head = bytearray()
        self._tail = bytearray()
        self._head_room = (starts + MAX_SEQUENCE_CHARS) * _WIDEST
        self._tail_room = (cap - starts + MAX_SEQUENCE_CHARS) * _WIDEST
        self._decoder: codecs.IncrementalDecoder | None = None
        self.characters = 0
        self.size = 0

    def add(self, data: bytes) -> None:
        """Append the next piece."""
        self.size += len(data)
        self._count(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_room:
            self._tail[:] = data[-self._tail_room :]
        elif data:
            self._tail += data
            if len(self._tail) > 2 * self._tail_room:
                del self._tail[: -self._tail_room]

    def cut(self, whole: Whole | None = None) -> Cut:
        """Return the stream within its cap, whole or as a Truncated. `whole` reads the full stream."""
        if self.size <= self._cap:
            data = bytes(self._head + self._tail)
            return Cut(data.decode("utf-8", "replace"), data, False)
        if self.size == len(self._head) + len(self._tail):
            data = bytes(self._head + self._tail)
            text = data.decode("utf-8", "surrogateescape")
            if len(text) <= self._cap:
                return Cut(data.decode("utf-8", "replace"), data, False)
            return self._joined(text, text, len(text), whole)
        head = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(bytes(self._head))
        tail = self._tail.decode("utf-8", "surrogateescape")
        held_back = len(self._decoder.getstate()[0]) if self._decoder else 0
        return self._joined(head, tail, self.characters + held_back, whole)

    def _count(self, data: bytes) -> None:
        if self._decoder is None:
            if self.size <= self._head_room + self._tail_room:
                return
            self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
            data = bytes(self._head) + bytes(self._tail) + data
        self.characters += len(self._decoder.decode(data))

    def _joined(self, first: str, last: str, total: int, whole: Whole | None) -> Cut:
        head, tail = ends(first, last, self._cap)
        left_out = total - len(head) - len(tail)
        text = Truncated(_shown(head), _shown(tail), left_out, total, whole)
        between = text[len(text.head) : len(text) - len(text.tail)].encode()
        return Cut(text, _bytes(head) + between + _bytes(tail), True)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _shown(text: str) -> str:
    return _bytes(text).decode("utf-8", "replace")
