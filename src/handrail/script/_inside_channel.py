"""The channel from a script to its tools, inside the sandbox: requests and answers as frames, described in CHANNEL.md.

It imports nothing of Handrail, and works with Python 3.8 and later: its text is part of the program in the sandbox.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from _thread import start_new_thread
from queue import SimpleQueue

TYPE_CHECKING = False  # as in _inside_syntax.py
if TYPE_CHECKING:
    from typing import Any

FRAME_BYTES = 4 << 20
HEADER = 4  # bytes of a frame's length
READ_BYTES = 1 << 16  # what a pipe holds
CLOSED = "the channel to the tools is closed; a forked process has none"
encode = json.JSONEncoder(allow_nan=False).encode
# The module `signal` wraps this one in enums, and takes longer to load than all the rest of this file.
plain_signal: Any = sys.modules["_signal"]


class ToolError(Exception):
    """A call that did not succeed. `kind` says why; `retryable`, whether the same call may work later."""

    def __init__(self, kind: str, message: str, field: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind, self.message, self.field, self.retryable = kind, message, field, retryable

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Channel:
    """Requests to the tools and their answers. Any thread may call, and so may a handler of a signal or a finalizer.

    Two threads own the descriptors: one writes, one reads. Whoever calls puts its request into a queue and sleeps on
    another queue until the answer is in it. A signal's handler may run between any two steps of the main thread, raise,
    and call tools itself. So the main thread never holds a lock, half a frame, or the answer to another call: each of
    its steps here is one operation of a SimpleQueue, which is written in C and cannot be interrupted halfway.
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        # What the script itself reads is empty, and what it prints goes to the log: neither can break the channel.
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._order: Any = SimpleQueue()
        self._requests: Any = SimpleQueue()
        self._waiting: dict[int, Any] = {0: self._order}
        self._closed = False
        os.register_at_fork(after_in_child=self._forked)
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # of every fork
        self._start()

    def _start(self) -> None:
        """Start the two threads before the script runs, with all signals blocked: the main thread gets those."""
        before = plain_signal.pthread_sigmask(plain_signal.SIG_BLOCK, plain_signal.valid_signals())
        start_new_thread(self._write_all, ())
        start_new_thread(self._read_all, ())
        plain_signal.pthread_sigmask(plain_signal.SIG_SETMASK, before)

    def order(self) -> Any:
        """Wait for the script, which comes as the answer to request 0; None when there will be none."""
        data = self._order.get()
        return None if data is None else decoded(data)

    def call(self, frame: dict[str, Any]) -> Any:
        """Send a request and wait for its answer. Raises ToolError."""
        return self.answer(self.ask(frame))

    def ask(self, frame: dict[str, Any]) -> Any:
        """Send a request, and return the queue that `answer` takes. Raises ToolError for what is too large."""
        text = encode(frame)
        if len(text) > FRAME_BYTES - 100:
            raise ToolError(
                "invalid_args", f"{len(text):,} bytes are too many for one call: the limit is {FRAME_BYTES:,}"
            )
        reply: Any = SimpleQueue()
        if self._closed:
            reply.put(None)
        else:
            self._requests.put((text[1:], reply, True))
        return reply

    def answer(self, reply: Any) -> Any:
        """Wait for the answer to a request. Raises ToolError."""
        data = reply.get()
        if data is None:
            raise ToolError("unavailable", CLOSED)
        answer = decoded(data)
        if "error" in answer:
            raise ToolError(**answer["error"])
        return answer.get("value")

    def end(self, ended: dict[str, Any]) -> bool:
        """Say how the script ended; return whether that was sent. Raises ValueError for what is too large."""
        text = encode({"ended": ended})
        if len(text) > FRAME_BYTES:
            raise ValueError(f"{len(text):,} bytes are too many, the limit is {FRAME_BYTES:,}; write it to a file")
        sent: Any = SimpleQueue()
        self._requests.put((text, sent, False))
        return bool(sent.get())

    def _write_all(self) -> None:
        """Send what is in the queue, for ever: requests that come after the channel was closed are told so here."""
        number = 0
        while True:
            text, reply, is_request = self._requests.get()
            if not is_request:
                reply.put(self._put(text.encode()))
                continue
            number += 1
            self._waiting[number] = reply
            if self._closed or not self._put(b'{"number": %d, ' % number + text.encode()):
                self._close()

    def _put(self, data: bytes) -> bool:
        """Send one frame; return whether it was sent."""
        view = memoryview(len(data).to_bytes(HEADER, "big") + data)
        while view:
            try:
                view = view[os.write(self._out, view) :]
            except OSError:
                return False
        return True

    def _read_all(self) -> None:
        """Give each answer to its caller, until the channel is closed."""
        data = bytearray()
        try:
            while more := os.read(self._in, READ_BYTES):
                data += more
                while len(data) >= HEADER and len(data) >= (end := HEADER + int.from_bytes(data[:HEADER], "big")):
                    number, _, answer = bytes(data[HEADER:end]).partition(b" ")
                    del data[:end]
                    reply = self._waiting.pop(int(number), None)
                    if reply is not None:
                        reply.put(answer)
        except OSError:
            pass  # the script has closed the descriptor
        finally:
            self._close()

    def _close(self) -> None:
        """Tell all who wait that nothing is answered any more."""
        self._closed = True
        for reply in list(self._waiting.values()):
            reply.put(None)

    def _forked(self) -> None:
        """Close the channel in a forked child, which has none of its parent's threads."""
        self._close()
        for fd in (self._in, self._out):
            try:
                os.close(fd)
            except OSError:
                pass


def decoded(data: bytes) -> Any:
    """The value of a frame's JSON; a text may hold half a pair of surrogates."""
    return json.loads(data.decode("utf-8", "surrogatepass"))
