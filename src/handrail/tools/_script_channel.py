"""The channel from a script to its tools: requests and answers as frames, over private descriptors.

It imports nothing of Handrail, and works with Python 3.8 and later: its text is part of the program in the sandbox.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import warnings
from _thread import allocate_lock, get_ident, stack_size, start_new_thread
from queue import Empty, SimpleQueue
from time import perf_counter, thread_time

TYPE_CHECKING = False  # as in _script_syntax.py
if TYPE_CHECKING:
    from typing import Any

FRAME_BYTES = 4 << 20
PIECE = 1 << 19
READ = 1 << 16  # bytes: what a pipe holds; room for more takes longer to make than to fill
AT_ONCE = 4000  # bytes that a pipe takes whole or not at all, less what is put before a request
CLOSED = "the channel to the tools is closed; a forked process has none"
NO_THREADS = "no thread can be started for calls that are made together: end some"
INSIDE = "a tool was called while another call was being made, for example by __del__: call it later"
SOON = 1e-3  # seconds in which a quick call is answered
REHEARSALS = 40  # calls after which an interpreter has adapted itself to them
AWAKE = 300e-6  # seconds for which the answer is waited for without sleeping, if the last one came soon
ALONE = 0.9  # part of the time that a thread gets of a processor that it has for itself
MAX_DISTURBED_COUNT = 10  # times, after which 64 answers are waited for asleep
STAT = "/proc/thread-self/stat"
PROCESSOR = 36  # its place there, counted from the end of the name
decode: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # what its methods call
plain_signal: Any = sys.modules["_signal"]  # what `signal` wraps, in enums that take 130 µs here


def encoder() -> Any:
    """As `json.JSONEncoder(allow_nan=False).encode`, which makes one for each value that it is given."""
    made, own = json.JSONEncoder(allow_nan=False), sys.modules["json.encoder"]
    try:
        to_text: Any = own.encode_basestring_ascii
        to_pieces: Any = own.c_make_encoder(None, made.default, to_text, None, ": ", ", ", False, False, False)
        if "".join(to_pieces({"a": [1, "\u00e9", None]}, 0)) == '{"a": [1, "\\u00e9", null]}':
            return lambda value: "".join(to_pieces(value, 0))
    except (AttributeError, TypeError):  # another Python has another one, or none
        pass
    return made.encode


encode = encoder()


class ToolError(Exception):
    """A call that did not succeed. `kind` says why; `retryable`, whether the same call may work later."""

    def __init__(self, kind: str, message: str, field: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind, self.message, self.field, self.retryable = kind, message, field, retryable

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Channel:
    """The main thread writes and reads by itself, as long as it alone calls tools and no handler of a signal is set.

    After that two threads own the descriptors; whoever calls only puts into a queue and waits on another, which takes
    40 µs more. A handler runs in the main thread, between any two of its steps, and may raise or call tools itself:
    the main thread must not hold a lock, half a frame or the answer to another call then.

    A KeyboardInterrupt, which needs no handler of the script's, raises and calls nothing. So each step that must not be
    lost is one call of a C function: `list.extend(map(...))`.
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._sent: list[int] = []
        """One entry for each request that was written: the next number is right, whatever interrupts."""
        self._pieces: list[bytes] = []
        """What was read and not yet used."""
        self._writing, self._reading = allocate_lock(), allocate_lock()
        self._main = get_ident()
        self._poll = select.poll()
        self._poll.register(self._in, select.POLLIN)
        self._can_linger = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1
        self._is_quick = self._can_linger
        self._stat = opened(STAT)
        self._sleeps, self._disturbed = 0, 0
        """How often the next answers are waited for asleep, and how often another needed this processor lately."""
        self._used, self._looked = 0.0, 0.0
        """The CPU time of this thread before the last wait, and how long that took without sleeping."""
        self._is_busy = False
        self._is_shared = False
        self._threads: list[int] = []
        self._mask = plain_signal.pthread_sigmask  # a script may replace it
        self._wanted: Any = SimpleQueue()
        self._requests: Any = SimpleQueue()
        self._waiting: dict[int, Any] = {}
        self._closed = False
        os.register_at_fork(after_in_child=self._forked)
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # of every fork

    def rehearse(self, call: Any) -> None:
        """Let `call` make calls that are answered here, until the script comes: the first ones take the longest."""
        script, kept = self._poll, (self._in, self._out)
        self._in, answers = os.pipe()
        self._out = os.open(os.devnull, os.O_WRONLY)
        self._poll = select.poll()
        self._poll.register(self._in, select.POLLIN)
        while not script.poll(0) and len(self._sent) < REHEARSALS:
            answer = b'%d {"value": {"a": [1, "b"]}}' % (len(self._sent) + 1)
            os.write(answers, struct.pack(">I", len(answer)) + answer)
            call()
        for fd in (self._in, self._out, answers):
            os.close(fd)
        self._poll, (self._in, self._out) = script, kept
        self._sent.clear()
        self._pieces.clear()
        self._is_quick = self._can_linger
        self._sleeps, self._disturbed, self._looked = 0, 0, 0.0

    def _start(self) -> None:
        """Start the two threads, which take signals from nobody. Without them an interpreter starts and ends faster."""
        if self._threads or self._closed:
            return
        before = self._mask(plain_signal.SIG_BLOCK, plain_signal.valid_signals())
        size = stack_size(0)  # not what the script has chosen for its own
        try:
            self._threads.extend(map(start_new_thread, (self._write_all, self._read_all), ((), ())))
        except RuntimeError:
            self._close()
            raise ToolError("unavailable", NO_THREADS) from None
        finally:
            stack_size(size)
            self._mask(plain_signal.SIG_SETMASK, before)

    def order(self) -> Any:
        """Wait for what comes before there are calls, as answers with number 0; None at the end."""
        frame = self._peek()
        self._drop(frame)
        return decode(frame.partition(b" ")[2].decode("utf-8", "surrogatepass"), 0)[0] if frame else None

    def watch_handlers(self) -> None:
        """`signal.signal` calls this one too."""
        install = plain_signal.signal

        def watched(number: Any, handler: Any) -> Any:
            if callable(handler):
                self._share()
            return install(number, handler)

        plain_signal.signal = watched

    def _share(self) -> None:
        """The two threads take over. Who reads now ends that first."""
        if not self._is_shared:
            self._start()
            self._is_shared = True
            self._wanted.put(None)

    def _peek(self) -> bytes:
        """The next frame, which stays; none at the end."""
        pieces, have, size = self._pieces, sum(map(len, self._pieces)), -1
        while True:
            if size < 0 and have >= 4:
                size = 4 + int.from_bytes(b"".join(pieces)[:4], "big")
            if 0 <= size <= have:
                return b"".join(pieces)[4:size]
            try:
                pieces.extend(map(os.read, (self._in,), (READ,)))
            except OSError:
                return b""
            if not pieces[-1]:
                return b""
            have += len(pieces[-1])

    def _drop(self, frame: bytes) -> None:
        self._pieces[:] = [b"".join(self._pieces)[4 + len(frame) :]]

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
        try:
            while True:
                frame, reply = self._requests.get()
                with self._writing:
                    if isinstance(frame, str):  # the last one
                        reply.put(self._put(frame.encode()))
                        continue
                    last = len(self._sent) + 1
                    self._waiting[last] = reply
                    if self._closed or not self._put(b'{"number": %d, ' % last + frame):
                        self._close()
                    self._sent.append(last)
        finally:
            self._close()

    def _read_all(self) -> None:
        try:
            self._wanted.get()
            with self._reading:
                self._answer_until(None)
        finally:
            self._close()

    def _answer_until(self, number: int | None) -> bytes | None:
        """Give answers to those who wait for them, until that with this number comes. None at the end."""
        while frame := self._peek():
            got, _, answer = frame.partition(b" ")
            reply = self._waiting.pop(int(got), None)
            if reply is not None:
                reply.put(answer)
            self._drop(frame)
            if int(got) == number:
                return answer
        return None

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
        for fd in (self._in, self._out, self._stat):
            try:
                os.close(fd)
            except OSError:
                pass

    def call(self, frame: dict[str, Any]) -> Any:
        """Send a request and wait for its answer. Raises ToolError."""
        if self._is_shared or self._closed or get_ident() != self._main:
            return self.answer(self.ask(frame))
        if self._is_busy:
            raise ToolError("unavailable", INSIDE, None, True)
        data = encode(frame)
        if len(data) > AT_ONCE:
            return self.answer(self._queued(data))
        return value_of(self._exchange(data[1:].encode()))

    def _exchange(self, data: bytes) -> bytes | None:
        """The answer to a request, by the main thread alone. None when nothing is answered any more."""
        self._is_busy = True
        try:
            with self._writing:
                number = len(self._sent) + 1
                frame = b'{"number": %d, ' % number + data
                self._sent.extend(map(os.write, (self._out,), (struct.pack(">I", len(frame)) + frame,)))
            with self._reading:
                began = perf_counter()
                if self._is_quick:
                    self._linger(began)
                answer = self._next(b"%d " % number) or self._answer_until(number)
                self._is_quick = self._can_linger and perf_counter() - began < SOON
        except OSError:
            answer = None
        finally:
            self._is_busy = False
        if answer is None:
            self._close()
        return answer

    def _next(self, start: bytes) -> bytes | None:
        """The rest of the answer that starts so, if it is what comes next, and alone: it needs no putting together."""
        pieces = self._pieces
        if pieces and any(pieces):
            return None
        pieces.clear()
        pieces.extend(map(os.read, (self._in,), (READ,)))
        data = pieces[0]
        if not data.startswith(start, 4) or 4 + int.from_bytes(data[:4], "big") != len(data):
            return None
        pieces.clear()
        return data[4 + len(start) :]

    def _linger(self, began: float) -> None:
        """Wait for something to read, without sleeping: to sleep and be woken takes longer than a quick call.

        If the other side is on this processor, that keeps it from answering: then go to another one. To yield is not
        enough where the kernel shares out processors among sessions or groups of processes. What the last wait was
        like is looked at only now, when there is time.
        """
        used, poll = thread_time(), self._poll.poll
        if used - self._used < ALONE * self._looked:
            self._disturbed = min(self._disturbed + 1, MAX_DISTURBED_COUNT)
            self._sleeps = (1 << self._disturbed) >> 4
            self._move()
        elif self._looked and self._disturbed:
            self._disturbed -= 1
        self._used, self._looked = used, 0.0
        if self._sleeps:
            self._sleeps -= 1
            return
        now, until = began, began + AWAKE
        while not poll(0) and now < until:
            os.sched_yield()
            now = perf_counter()
        self._looked = now - began

    def _move(self) -> None:
        """Let the main thread run on another processor, and then on any again."""
        try:
            here = int(os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()[PROCESSOR])
            allowed = os.sched_getaffinity(0)
            list(map(os.sched_setaffinity, (0, 0), (allowed - {here}, allowed)))
        except (OSError, ValueError, IndexError):
            pass  # it may not, there is no other, or no /proc

    def ask(self, frame: dict[str, Any]) -> Any:
        """Send a request; what `answer` takes."""
        return self._queued(encode(frame))

    def _queued(self, data: str) -> Any:
        if len(data) > FRAME_BYTES - 100:
            raise ToolError(
                "invalid_args", f"{len(data):,} bytes are too many for one call: the limit is {FRAME_BYTES:,}"
            )
        reply: Any = SimpleQueue()
        self._start()
        if self._closed:
            reply.put(None)
        else:
            self._requests.put((data[1:].encode(), reply))
        return reply

    def answer(self, reply: Any) -> Any:
        """Wait for the answer to a request. Raises ToolError."""
        self._share()
        return value_of(reply.get())

    def end(self, ended: dict[str, Any]) -> bool:
        """Say how the script ended; whether that was sent. Raises ValueError for what is too large."""
        data = encode({"ended": ended})
        if len(data) > FRAME_BYTES:
            raise ValueError(f"{len(data):,} bytes are too many, the limit is {FRAME_BYTES:,}; write it to a file")
        if not self._is_shared or not self._threads:
            with self._writing:
                return self._put(data.encode())
        sent: Any = SimpleQueue()
        self._requests.put((data, sent))
        return bool(sent.get())


def opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return -1


def value_of(data: bytes | None) -> Any:
    """The value in an answer. Raises ToolError."""
    if data is None:
        raise ToolError("unavailable", CLOSED)
    answer = decode(data.decode("utf-8", "surrogatepass"), 0)[0]
    if "error" in answer:
        raise ToolError(**answer["error"])
    return answer.get("value")
