"""The link to a starter: orders and descriptors there, answers back; nothing it started outlives its closing."""

import marshal
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from handrail.aio import Task, finish, in_background, loop_here, running_loop, when_loop_closes
from handrail.contract.errors import Unavailable
from handrail.contract.limits import GUARD_END_WAIT, GUARD_KILL_WAIT, GUARD_START_WAIT
from handrail.drivers.posix import _starter
from handrail.drivers.posix._process import PosixProcess

PROGRAM: Final = Path(_starter.__file__).read_text(encoding="utf-8")
"""Source of the starter, read once: a command that changes the file later changes nothing here."""
RECEIVED_AT_ONCE: Final = 64 << 10
"""Bytes read from the starter at a time."""


class Link:
    """The stream to a starter. Used from one event loop."""

    def __init__(self, process: subprocess.Popen[bytes], stream: socket.socket, scratch: str | None) -> None:
        stream.setblocking(False)
        self.scratch = scratch
        """The directory for temporary files; None for the system's own."""
        self.gone: str | None = None
        """The reason for which the starter is gone; None while it works."""
        self._process = process
        self._stream = stream
        self._inbox = b""
        self._said = ""
        """The end of the starter's standard error."""
        self._ready = anyio.Event()
        self._ended = anyio.Event()
        self._last = 0
        self._running: dict[int, PosixProcess] = {}
        self._given: dict[int, list[int]] = {}
        """Descriptors sent to the starter that are not closed here yet, by the command's number."""
        # macOS may lose descriptors that the sender closes before the receiver has taken them.
        self._listening: Task | None = None
        self._loop: Any = None
        """The event loop of the listening task."""
        self._owner = os.getpid()
        when_loop_closes(self.kill)

    # Last resort for a link that was never closed: its commands must not outlive the object.
    def __del__(self) -> None:
        if os.getpid() == self._owner and not sys.is_finalizing():  # a forked child does not own it
            self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def greet(self) -> None:
        """Wait until the starter runs. Raises Unavailable."""
        self._attend()
        with anyio.move_on_after(GUARD_START_WAIT):
            await self._ready.wait()
            if self.gone is None:
                return
        await self.close()
        raise Unavailable(f"the sandbox did not start: {self._said or 'its process did not answer'}", retryable=False)

    def open(self, order: dict[str, Any], *, input: bool) -> PosixProcess:
        """Start a command. Raises OSError without descriptors for it, Unavailable when the starter is gone."""
        if self.gone is not None:
            raise Unavailable(self.gone, retryable=False)
        self._attend()
        self._last += 1
        ours, theirs = _pipes(order, input, self.scratch)
        process = PosixProcess(self, self._last, ours)
        self._given[process.number] = theirs
        self._running[process.number] = process
        try:
            self._send(_starter.START, process, theirs)
        except BaseException:
            self._forget(process)
            _close([fd for fd in ours if fd >= 0])
            raise
        in_background(process.serve())
        return process

    def request(self, number: int, process: PosixProcess) -> None:
        """Signal a command. Do nothing if the starter is gone, because its groups were killed then."""
        if self.gone is None:
            self._send(number, process)

    def abandon(self, process: PosixProcess) -> None:
        """Kill a command whose caller no longer waits."""
        with suppress(Unavailable):
            self.request(signal.SIGKILL, process)

    def _send(self, what: int, process: PosixProcess, fds: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._stream, [_starter.REQUEST.pack(what, process.number)], fds)
        except BlockingIOError:
            raise Unavailable("the sandbox is too busy to answer: try again") from None
        except OSError as error:
            raise Unavailable(f"the sandbox is gone: {error}", retryable=False) from None

    def _attend(self) -> None:
        """Listen to the starter on the running event loop, if the earlier loop has ended."""
        if self.gone is None and self._is_unattended():
            self._loop = running_loop()
            self._listening = in_background(self._listen(self._loop))

    def _is_unattended(self) -> bool:
        return self._listening is None or self._listening.done() or self._loop is not loop_here()

    async def _listen(self, loop: Any) -> None:
        """Listen until the starter ends. If the event loop ends first, kill all commands and keep the starter."""
        try:
            while self._handle_answers():
                await anyio.wait_readable(self._stream)
            self._lose("the sandbox's own process ended")
        except BaseException:
            if self._loop is loop:
                self._abandon_all()
            raise
        finally:
            if self.gone is not None:
                self._stream.close()
                self._ready.set()
                self._ended.set()

    def _handle_answers(self) -> bool:
        """Handle all answers of the starter that are here; return False if the starter has ended."""
        while True:
            try:
                data = self._stream.recv(RECEIVED_AT_ONCE)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._inbox += data
            while len(self._inbox) >= _starter.ANSWER.size:
                record, self._inbox = self._inbox[: _starter.ANSWER.size], self._inbox[_starter.ANSWER.size :]
                self._take(*_starter.ANSWER.unpack(record))

    def _take(self, what: int, number: int, first: int, second: int) -> None:
        process = self._running.get(number)
        if process is None:
            self._ready.set()
            return
        _close(self._given.pop(number, []))
        process.receive(what, first, second)
        if what != _starter.STARTED:
            self._forget(process)

    def _forget(self, process: PosixProcess) -> None:
        self._running.pop(process.number, None)
        _close(self._given.pop(process.number, []))

    def _lose(self, why: str) -> None:
        self.gone = self.gone or why
        self._abandon_all()

    def _abandon_all(self) -> None:
        for process in list(self._running.values()):
            with suppress(RuntimeError):  # who waits for it does so on an event loop that is closed
                process.lose()
            self._forget(process)

    def end(self) -> None:
        """Tell the starter to end, and kill every group, without an event loop. May be called twice."""
        self.gone = self.gone or "the sandbox is closed"
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)
        self._handle_answers()
        self._abandon_all()  # before the starter can say that they ended: whoever waits is told of the closing

    def kill(self) -> None:
        """End the starter without an event loop, after a drop or the end of its loop. May be called twice."""
        self.end()
        self._reap()
        self._stream.close()

    async def close(self) -> None:
        """End the starter with every group. Raises Unavailable when it cannot even be killed. May be called twice."""
        self._attend()
        self.end()
        try:
            await finish(self._end)
        finally:
            self._reap()
        if self._process.returncode is None:
            raise Unavailable("the sandbox's own process cannot be killed", retryable=False)

    async def _end(self) -> None:
        with anyio.move_on_after(GUARD_END_WAIT):
            await self._ended.wait()

    def _reap(self) -> None:
        """Reap the starter; kill it first if it has not ended."""
        self._lose("the sandbox is closed")
        if not self._ended.is_set():
            self._process.kill()
            if self._listening is not None:
                with suppress(RuntimeError):  # the event loop is closed
                    self._listening.cancel()
        try:
            self._process.wait(GUARD_KILL_WAIT)
        except subprocess.TimeoutExpired:
            return
        if self._is_unattended():
            self._stream.close()
        if self._process.stderr is not None and not self._process.stderr.closed:
            self._said = self._process.stderr.read().decode("utf-8", "replace").strip()[-500:]
            self._process.stderr.close()


async def start_starter(scratch: str | None, *, own_environment: bool = False) -> Link:
    """Start the starter with an empty environment, or with this process's own. Raises Unavailable."""
    link = _spawn(scratch, None if own_environment else {})
    try:
        await link.greet()
    except BaseException:
        await link.close()
        raise
    return link


def _spawn(scratch: str | None, env: dict[str, str] | None) -> Link:
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(theirs.fileno()), str(os.getpid())]
    try:
        process = subprocess.Popen(
            words, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, cwd="/", env=env, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        ours.close()
        raise Unavailable(f"the sandbox did not start: {error}", retryable=False) from None
    finally:
        theirs.close()
    return Link(process, ours, scratch)


def _pipes(order: dict[str, Any], input: bool, scratch: str | None) -> tuple[tuple[int, int, int], list[int]]:
    """Return our ends of the command's streams, and the starter's descriptors: the order and the other ends."""
    opened: list[int] = []

    def pipe(ours: int) -> tuple[int, int]:
        ends = os.pipe()
        opened.extend(ends)
        os.set_blocking(ends[ours], False)
        return ends[ours], ends[1 - ours]

    try:
        with tempfile.TemporaryFile(dir=scratch) as file:
            marshal.dump(order, file)
            file.flush()
            opened.append(paper := os.dup(file.fileno()))  # outlives the `with`, which closes the file
        feed, stdin = pipe(1) if input else (-1, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        opened.append(stdin)
        (stdout, out), (stderr, err) = pipe(0), pipe(0)
    except BaseException:
        _close(list(dict.fromkeys(opened)))
        raise
    return (feed, stdout, stderr), [paper, stdin, out, err]


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
