"""What a call shows while it runs: the first piece at once, then joined, a few times a second, within bounds.

Each event holds the newest of what came since the last one; what it leaves out is counted. The transcript keeps the
newest text of each call; older events of it keep their number and lose their text.
"""

from collections import deque
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from handrail.aio import OwnLoop, call_on
from handrail.contract.call import Call

if TYPE_CHECKING:
    from handrail.session._transcript import Transcript

EVENT_INTERVAL: Final = 1 / 16
"""Seconds between two events of one call: with what its three streams have left at the end, no second has over 20."""
EVENT_TEXT_LIMIT: Final = 64 << 10
"""Bytes of text, as UTF-8, in one event."""
TRANSCRIPT_TEXT_LIMIT: Final = 64 << 10
"""Bytes of text that the transcript keeps of one call."""


class LiveOutput:
    """One per call that shows something. It may be used from any thread, and after the call ended: a job goes on."""

    def __init__(self, transcript: "Transcript", call: Call, own_loop: OwnLoop) -> None:
        self._transcript = transcript
        self._call = call
        self._own_loop = own_loop
        self._waiting: dict[str, _Joined] = {}
        self._kept: deque[tuple[int, int]] = deque()
        self._kept_size = 0
        self._last = -inf
        self._timed = False

    def show(self, text: str, stream: str) -> None:
        """Now, if nothing was shown a moment ago, else joined with what comes until the next event is due."""
        if not text:
            return
        with self._transcript.lock:
            if self._transcript.closed:
                return
            if stream not in self._waiting:
                self._waiting[stream] = _Joined()
            self._waiting[stream].add(text)
            if monotonic() >= self._last + EVENT_INTERVAL:
                self._write_oldest()
            self._look_after()

    def finish(self) -> None:
        """Show what still waits, of every stream."""
        with self._transcript.lock:
            while self._waiting:
                self._write_oldest()

    def _look_after(self) -> None:
        """Whatever waits is shown when the next event is due, or before the call ends."""
        if not self._waiting:
            self._transcript.waiting_output.pop(self._call.id, None)
            return
        self._transcript.waiting_output[self._call.id] = self
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
                self._look_after()

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
    """The newest text of one stream that no event has shown yet."""

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
        """The text, its bytes, and the bytes before it that were left out."""
        text, size = "".join(piece for piece, _ in self._pieces), self._size
        if size > EVENT_TEXT_LIMIT:
            data = text.encode("utf-8", "surrogatepass")[-EVENT_TEXT_LIMIT:]
            while data[0] & 0xC0 == 0x80:  # the rest of a character that was cut
                data = data[1:]
            text, size = data.decode("utf-8", "surrogatepass"), len(data)
        return text, size, self._left_out + self._size - size
