"""The way from a script to its tools: requests and answers as frames, over private descriptors.

It imports nothing of Handrail, and works with Python 3.8 and later: its text is part of the program in the sandbox.
"""

import json
import os
import signal
import struct
import warnings
from _thread import start_new_thread
from queue import Empty, SimpleQueue
from typing import Any

FRAME_BYTES = 4 << 20
PIECE = 1 << 19


class ToolError(Exception):
    """A call that did not succeed. `kind` says why; `retryable`, whether the same call may work later."""

    def __init__(self, kind: str, message: str, field: "str | None" = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind, self.message, self.field, self.retryable = kind, message, field, retryable

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Channel:
    """Two threads own the descriptors; whoever calls only puts into a queue and waits on another.

    A handler of a signal runs in the main thread, between any two of its steps, and may raise or call tools itself. So
    the main thread holds no lock, no half frame and no answer of somebody else's. That costs 40 µs a call.
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._received = b""
        self._requests: Any = SimpleQueue()
        self._waiting: dict[int, Any] = {}
        self._closed = False
        os.register_at_fork(after_in_child=self._forked)
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # of every fork

    def start(self) -> Any:
        """Serve calls from now on. The script comes out of the queue that this returns, as the answer with number 0."""
        script: Any = SimpleQueue()
        self._waiting[0] = script
        start_new_thread(self._write_all, ())
        start_new_thread(self._read_all, ())
        return script

    def read(self) -> bytes:
        """The next frame, or none at the end."""
        size = struct.unpack(">I", (self._at_least(4) or bytes(4))[:4])[0]
        frame = self._at_least(4 + size)[4 : 4 + size]
        self._received = self._received[4 + size :]
        return frame

    def _at_least(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                more = os.read(self._in, PIECE)
            except OSError:
                more = b""
            if not more:
                return b""
            self._received += more
        return self._received

    def _put(self, data: bytes) -> bool:
        """Send one frame; whether it was sent."""
        view = memoryview(struct.pack(">I", len(data)) + data)
        while view:
            try:
                view = view[os.write(self._out, view) :]
            except OSError:
                return False
        return True

    def _write_all(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        last = 0
        try:
            while True:
                frame, reply = self._requests.get()
                if isinstance(frame, str):  # the last one
                    reply.put(self._put(frame.encode()))
                    continue
                last += 1
                self._waiting[last] = reply
                if self._closed or not self._put(b'{"number": %d, ' % last + frame):
                    self._close()
        finally:
            self._close()

    def _read_all(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while frame := self.read():
                number, _, answer = frame.partition(b" ")
                reply = self._waiting.pop(int(number), None)
                if reply is not None:
                    reply.put(answer)
        finally:
            self._close()

    def _close(self) -> None:
        """Nothing is answered any more: tell all who wait."""
        self._closed = True
        while not self._requests.empty():
            try:
                self._requests.get_nowait()[1].put(None)
            except Empty:  # the other thread took it
                pass
        for reply in list(self._waiting.values()):
            reply.put(None)

    def _forked(self) -> None:
        """A forked child has no tools, and none of its parent's threads."""
        self._close()
        for fd in (self._in, self._out):
            try:
                os.close(fd)
            except OSError:
                pass

    def ask(self, frame: "dict[str, Any]") -> Any:
        """Send a request; what `answer` takes."""
        data = json.dumps(frame, ensure_ascii=True, allow_nan=False)
        if len(data) > FRAME_BYTES - 100:
            raise ToolError(
                "invalid_args", f"{len(data):,} bytes are too many for one call: the limit is {FRAME_BYTES:,}"
            )
        reply: Any = SimpleQueue()
        if self._closed:
            reply.put(None)
        else:
            self._requests.put((data[1:].encode(), reply))
        return reply

    def answer(self, reply: Any) -> Any:
        """Wait for the answer to a request. Raises ToolError."""
        data = reply.get()
        if data is None:
            raise ToolError("unavailable", "the way to the tools is closed; a forked process has none")
        answer = json.loads(data)
        if "error" in answer:
            raise ToolError(**answer["error"])
        return answer.get("value")

    def end(self, ended: "dict[str, Any]") -> bool:
        """Say how the script ended; whether that was sent. Raises ValueError for what is too large."""
        data = json.dumps({"ended": ended}, ensure_ascii=True, allow_nan=False)
        if len(data) > FRAME_BYTES:
            raise ValueError(f"{len(data):,} bytes are too many, the limit is {FRAME_BYTES:,}; write it to a file")
        sent: Any = SimpleQueue()
        self._requests.put((data, sent))
        return bool(sent.get())
