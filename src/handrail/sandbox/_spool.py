"""Keep the output of a command, up to a limit: a little in memory, the rest in an unnamed file on disk.

The beginning and the end of both streams are kept, half of the limit each; the bytes between are discarded and counted.
The file consists of segments of one size, each of one stream, so that any range is found quickly. The output may be
read from any thread while more arrives.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from typing import Final

from handrail.contract.driver import StreamName
from handrail.contract.limits import DEFAULT_CAPS

SEGMENT: Final = 64 << 10
IN_MEMORY: Final = 200_000
"""Bytes of one stream that are kept in memory before a file is created."""


class _Side:
    """The segments of one stream: the first `head` of them are its beginning, those from `oldest` on its end."""

    __slots__ = ("full", "head", "oldest", "rest", "slots")

    def __init__(self) -> None:
        self.full = 0
        self.head = 0
        self.oldest = 0
        self.rest = bytearray()
        self.slots: dict[int, int] = {}


class Spool:
    """The output of a command, read by range. Offsets count kept bytes; one line marks the discarded ones."""

    __slots__ = ("__weakref__", "_broken", "_closed", "_file", "_lock", "_next", "_owners", "_sides", "_slots")

    def __init__(self, limit: int = DEFAULT_CAPS.spool) -> None:
        self._slots = max(2, limit // SEGMENT)
        self._sides: dict[StreamName, _Side] = {"stdout": _Side(), "stderr": _Side()}
        self._owners: dict[int, tuple[_Side, int]] = {}
        self._file: int | None = None
        self._lock = threading.RLock()
        self._next = 0
        self._closed = False
        self._broken = False

    def __del__(self) -> None:
        self.close()

    @property
    def on_disk(self) -> bool:
        """Whether a file was needed."""
        return self._file is not None

    def add(self, stream: StreamName, data: bytes) -> None:
        """Append to one stream. If the disk is full, the rest is discarded and counted."""
        side = self._sides[stream]
        with self._lock:
            side.rest += data
            if len(side.rest) > IN_MEMORY or (side.full and len(side.rest) >= SEGMENT):
                whole = len(side.rest) // SEGMENT * SEGMENT
                with memoryview(side.rest) as view:
                    for begin in range(0, whole, SEGMENT):
                        self._put(side, view[begin : begin + SEGMENT])
                del side.rest[:whole]

    def size(self, stream: StreamName = "stdout") -> int:
        """The number of bytes that `read` can return."""
        with self._lock:
            return sum(length for length, _ in self._pieces(self._sides[stream]))

    def discarded(self, stream: StreamName | None = None) -> int:
        """The number of discarded bytes: of one stream, or of both."""
        sides = self._sides.values() if stream is None else (self._sides[stream],)
        return sum((side.oldest - side.head) * SEGMENT for side in sides)

    def gap(self, stream: StreamName = "stdout") -> range:
        """The range of a stream's discarded bytes, by their offset in everything that was printed."""
        side = self._sides[stream]
        return range(side.head * SEGMENT, side.oldest * SEGMENT)

    def read(self, start: int = 0, length: int | None = None, *, stream: StreamName = "stdout") -> bytes:
        """Read a range of the kept bytes; shorter at the end. Raises ValueError if the sandbox has removed the file."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"start and length count from 0 upwards, not {start} and {length}.")
        with self._lock:
            return self._read(self._sides[stream], start, self.size(stream) - start if length is None else length)

    def _read(self, side: _Side, start: int, left: int) -> bytes:
        if self._closed and side.slots:
            raise ValueError("This output was removed when its sandbox was closed. Read it before that.")
        out, at = bytearray(), 0
        for size, source in self._pieces(side):
            begin = max(0, start + len(out) - at)
            if begin < size and left > len(out):
                out += self._fetch(side, source, begin, min(size - begin, left - len(out)))
            at += size
        return bytes(out)

    def close(self) -> None:
        """Remove the file. Bytes in memory stay readable."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _put(self, side: _Side, data: memoryview) -> None:
        index, side.full = side.full, side.full + 1
        slot, half = self._next, self._slots // 2
        self._next = slot + 1 if slot + 1 < self._slots else half
        if not self._write(slot, data):
            self._broken = True  # later bytes would not be adjacent to the kept ones
            side.oldest = side.full
            return
        owner = self._owners.get(slot)
        if owner is not None:
            owner[0].oldest = owner[1] + 1
            del owner[0].slots[owner[1]]
        if slot < half:
            side.head = index + 1
        if side.oldest < side.head:
            side.oldest = side.head
        self._owners[slot] = (side, index)
        side.slots[index] = slot

    def _write(self, slot: int, data: memoryview) -> bool:
        if self._closed or self._broken:
            return False
        try:
            if self._file is None:
                with tempfile.TemporaryFile() as file:
                    self._file = os.dup(file.fileno())
            return os.pwrite(self._file, data, slot * SEGMENT) == len(data)
        except OSError:
            return False

    def _pieces(self, side: _Side) -> Iterator[tuple[int, int | bytes]]:
        """(length, source) of each piece, in order. A source is a segment's number, a text, or -1 for memory."""
        for index in range(side.head):
            yield SEGMENT, index
        if side.oldest > side.head:
            gone = f"\n[… {(side.oldest - side.head) * SEGMENT} bytes were discarded here]\n".encode()
            yield len(gone), gone
        for index in range(side.oldest, side.full):
            yield SEGMENT, index
        yield len(side.rest), -1

    def _fetch(self, side: _Side, source: int | bytes, begin: int, length: int) -> bytes:
        if isinstance(source, bytes):
            return source[begin : begin + length]
        if source < 0:
            return bytes(side.rest[begin : begin + length])
        if self._file is None:
            return b""
        return os.pread(self._file, length, side.slots[source] * SEGMENT + begin)
