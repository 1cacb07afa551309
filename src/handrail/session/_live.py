"""Live output of a call: the first piece at once, the rest joined into a few events a second, within limits.

Each event has the newest text since the last one, and counts the bytes that it leaves out. The transcript keeps the
newest text of each call; older events keep their number and lose their text.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from handrail.aio import OwnLoop, call_on
from handrail.contract.call import Call
from handrail.contract.event import Event, EventType

if TYPE_CHECKING:
    from handrail.scrub import Stream
    from handrail.session._secrets import CleanEvents

EVENT_INTERVAL: Final = 1 / 16
"""Seconds between two events of one call. With up to three more at its end, it has fewer than 20 a second."""
EVENT_TEXT_LIMIT: Final = 64 << 10
"""Bytes of UTF-8 text in one event."""
TRANSCRIPT_TEXT_LIMIT: Final = 64 << 10
"""Bytes of text that the transcript keeps for one call."""


class Written(Protocol):
    """The part of a transcript that live output uses."""

    @property
    def lock(self) -> AbstractContextManager[object]: ...

    clean: "CleanEvents | None"
    waiting_output: "dict[str, LiveOutput]"
    closed: bool

    def write(self, type: EventType, call_id: str | None, parent: str | None, data: Mapping[str, Any]) -> Event: ...
    def drop_text(self, seq: int, size: int) -> None: ...


class LiveOutput:
    """One for each call with live output. It may be used from any thread, and by a job after its call has ended."""

    def __init__(self, transcript: "Written", call: Call, own_loop: OwnLoop) -> None:
        self._transcript = transcript
        self._call = call
        self._own_loop = own_loop
        self._waiting: dict[str, _Joined] = {}
        self._held: dict[str, Stream] = {}
        """Text that may begin a secret, by stream; only in a session with secrets."""
        self._kept: deque[tuple[int, int]] = deque()
        self._kept_size = 0
        self._last = -inf
        self._timed = False
        self.outlives = False
        """Whether a body that could not be stopped goes on after its call, and may print the rest of a secret."""

    def show(self, text: str, stream: str) -> None:
        """Emit the text now if no event was emitted a moment ago; otherwise with the next event."""
        if not text:
            return
        with self._transcript.lock:
            if self._transcript.closed:
                return
            if self._transcript.clean is not None:
                text = self._cleaned(self._transcript.clean, text, stream)
            if text:
                self._add(text, stream)
            if self._waiting and monotonic() >= self._last + EVENT_INTERVAL:
                self._write_oldest()
            self._schedule()

    def finish(self, *, goes_on: bool = False) -> None:
        """Emit all waiting text of every stream; if a job goes on, not what may be the beginning of a secret."""
        with self._transcript.lock:
            for stream, held in () if goes_on else self._held.items():
                if text := held.end():
                    self._add(text, stream)
            if not goes_on:
                self._held = {}
            while self._waiting:
                self._write_oldest()
            self._schedule()

    def _add(self, text: str, stream: str) -> None:
        if stream not in self._waiting:
            self._waiting[stream] = _Joined()
        self._waiting[stream].add(text)

    def _cleaned(self, clean: "CleanEvents", text: str, stream: str) -> str:
        """The text without secrets; what may be the beginning of one is held until more comes, or the call ends."""
        if stream not in self._held:
            self._held[stream] = clean.scrubber.stream()
        return self._held[stream].add(text)

    def _schedule(self) -> None:
        """Schedule the next event if text waits; the end of the call emits it earlier."""
        if not self._waiting and not self._held:
            self._transcript.waiting_output.pop(self._call.id, None)
            return
        self._transcript.waiting_output[self._call.id] = self
        if not self._waiting:
            return
        loop = self._own_loop.loop
        if not self._timed and loop is not None:
            self._timed = True
            delay = max(0.0, self._last + EVENT_INTERVAL - monotonic())
            call_on(loop, lambda: loop.call_later(delay, self._due))

    def _due(self) -> None:
        with self._transcript.lock:
            self._timed = False
            if self._waiting and not self._transcript.closed:
                if monotonic() >= self._last + EVENT_INTERVAL:  # else `show` wrote one in the meantime
                    self._write_oldest()
                self._schedule()

    def _write_oldest(self) -> None:
        stream = next(iter(self._waiting))
        text, size, left_out = self._waiting.pop(stream).take()
        data = {"text": text, "stream": stream, **({"left_out": left_out} if left_out else {})}
        self._last = monotonic()
        event = self._transcript.write("call_output", self._call.id, self._call.parent, data)
        self._kept.append((event.seq, size))
        self._kept_size += size
        while self._kept_size > TRANSCRIPT_TEXT_LIMIT:
            seq, size = self._kept.popleft()
            self._kept_size -= size
            self._transcript.drop_text(seq, size)


class _Joined:
    """The newest text of one stream that was not emitted yet."""

    __slots__ = ("_left_out", "_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: deque[tuple[str, int]] = deque()
        self._size = 0
        self._left_out = 0

    def add(self, text: str) -> None:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self._pieces.append((text, size))
        self._size += size
        while self._size - self._pieces[0][1] >= EVENT_TEXT_LIMIT:
            gone = self._pieces.popleft()[1]
            self._size -= gone
            self._left_out += gone

    def take(self) -> tuple[str, int, int]:
        """The text, its size in bytes, and the number of bytes left out before it."""
        text, size = "".join(piece for piece, _ in self._pieces), self._size
        if size > EVENT_TEXT_LIMIT:
            data = text.encode("utf-8", "surrogatepass")[-EVENT_TEXT_LIMIT:]
            while data[0] & 0xC0 == 0x80:  # skip the rest of a cut character
                data = data[1:]
            text, size = data.decode("utf-8", "surrogatepass"), len(data)
        return text, size, self._left_out + self._size - size
