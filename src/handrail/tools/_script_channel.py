"""The way from a script to its tools: requests and answers as frames, over private descriptors.

It imports nothing of Handrail, and works with Python 3.8 and later: its text is part of the program in the sandbox.
"""

import json
import os
import select
import signal
import struct
import threading
from typing import Any

FRAME_BYTES = 4 << 20
PIECE = 1 << 19
SIGNALS = frozenset(range(1, signal.NSIG)) - {32, 33}  # these two belong to the threads of the C library


class ToolError(Exception):
    """A call that did not succeed. `kind` says why; `retryable`, whether the same call may work later."""

    def __init__(self, kind: str, message: str, field: "str | None" = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind, self.message, self.field, self.retryable = kind, message, field, retryable

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Whole:
    """A block that no handler of a signal interrupts: one that raises would leave half a frame behind.

    Masks cost 340 µs a call, six times the call itself: they are used from the first `signal.signal` of the script on.
    """

    needed = False

    def __enter__(self) -> None:
        self._before: Any = None
        if Whole.needed:
            self._before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # runs the handlers that wait

    def __exit__(self, *_: object) -> None:
        if self._before is not None:  # the script may have begun to need them meanwhile
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


set_handler = signal.signal


def watched(number: int, handler: Any) -> Any:
    """In place of `signal.signal`."""
    Whole.needed = True
    return set_handler(number, handler)


class Channel:
    """Requests are numbered from 1. Whoever waits for an answer reads for all who wait."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._last = 0
        self._received = b""
        self._answers: dict[int, Any] = {}
        self._reading = False
        self._closed = False
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        os.register_at_fork(after_in_child=self._close)

    def _close(self) -> None:
        """A forked child has no tools, and none of its parent's threads to release a lock."""
        self._closed = True
        self._sending, self._changed = threading.Lock(), threading.Condition()
        for fd in (self._in, self._out):
            try:
                os.close(fd)
            except OSError:
                pass

    def read(self) -> Any:
        size = struct.unpack(">I", self._at_least(4)[:4])[0]
        frame = json.loads(self._at_least(4 + size)[4 : 4 + size])
        self._received = self._received[4 + size :]
        return frame

    def _at_least(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                select.select([self._in], [], [])  # a signal's handler may interrupt this, but nothing below
                with Whole():
                    more = b"" if self._closed else os.read(self._in, PIECE)
                    self._received += more
            except (OSError, ValueError):
                more = b""
            if not more:
                raise ToolError("unavailable", "the way to the tools is closed")
        return self._received

    def write(self, frame: Any) -> None:
        data = json.dumps(frame, ensure_ascii=True, allow_nan=False).encode()
        if len(data) > FRAME_BYTES:
            raise ValueError(f"{len(data):,} bytes are too many, the limit is {FRAME_BYTES:,}; write it to a file")
        with Whole():
            self._put(data)

    def _put(self, data: bytes) -> None:
        view = memoryview(struct.pack(">I", len(data)) + data)
        while view:
            try:
                view = view[os.write(self._out, view) :] if not self._closed else self._gone()
            except OSError:
                self._gone()

    def _gone(self) -> Any:
        raise ToolError("unavailable", "the way to the tools is closed: a forked process has none")

    def ask(self, frame: "dict[str, Any]") -> int:
        """Send a request; returns its number."""
        data = json.dumps(frame, ensure_ascii=True, allow_nan=False)
        if len(data) > FRAME_BYTES - 100:
            raise ToolError(
                "invalid_args", f"{len(data):,} bytes are too many for one call: the limit is {FRAME_BYTES:,}"
            )
        with self._sending, Whole():
            number = self._last = self._last + 1
            self._put(b'{"number": %d, ' % number + data[1:].encode())
        return number

    def answer(self, number: int) -> Any:
        """Wait for the answer to a request. Raises ToolError."""
        while True:
            with self._changed:
                if number in self._answers:
                    answer = self._answers.pop(number)
                    break
                if self._reading:
                    self._changed.wait(1.0)
                    continue
                self._reading = True
            try:
                frame = self.read()
                with self._changed:
                    self._answers[frame["number"]] = frame
            finally:
                with self._changed:
                    self._reading = False
                    self._changed.notify_all()
        if "error" in answer:
            raise ToolError(**answer["error"])
        return answer.get("value")
