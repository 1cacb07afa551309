"""A command in its process group: output with back-pressure, input, signals, and its end."""

import errno
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final, Protocol

import anyio
import anyio.lowlevel

from handrail.contract.driver import Chunk, SignalName, StreamName
from handrail.contract.errors import Unavailable
from handrail.drivers._explain import explanations, no_explanation
from handrail.drivers.posix import _starter

LEFT_RUNNING_NOTE: Final = (
    "The command left processes running in its group when it ended; they were killed. "
    "To keep something running, start it as a background job."
)
GROUP_KILLED_NOTE: Final = (
    "Its process group was killed. A process that left the group, as by setsid, may still be running."
)
KEPT_UNREAD: Final = 1 << 20
"""Bytes of unread output from which on the command is blocked."""
DRAINED_MOST: Final = 1 << 20
"""Most bytes read from each stream after a command has ended, which were left in its pipe."""
PIECE: Final = 128 << 10
"""Bytes read or written at a time."""
STDERR_KEPT: Final = 4096
"""Bytes of standard error that are kept to explain an exit code."""
_SIGNALS: Final[dict[SignalName, int]] = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
_INPUT_UNREAD: Final = "the command no longer reads its input"


class Signals(Protocol):
    """The part of the link to the starter that a command uses."""

    gone: str | None

    def request(self, number: int, process: "PosixProcess") -> None: ...


class PosixProcess:
    """A command in a process group of its own."""

    def __init__(self, link: Signals, number: int, ends: tuple[int, int, int]) -> None:
        self.id = str(number)
        self.pid: int | None = None
        self.number = number
        self.failed: tuple[int, int] | None = None
        """The errno of a failed start, and the stage at which the start failed."""
        self.exited: tuple[int, int] | None = None
        """The exit code, and whether processes were left running."""
        self._link = link
        self._input, self._stdout, self._stderr = ends
        self._chunks: deque[Chunk] = deque()
        self._unread = 0
        self._stderr_end = b""
        self._changed = anyio.Event()
        self._signalled = False
        self._over = False
        self._drained = False
        self._sending = anyio.Lock(fast_acquire=True)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the end of the command; complete when `wait` has returned."""
        code, left = self.exited or (0, 0)
        own = LEFT_RUNNING_NOTE if left else GROUP_KILLED_NOTE if self._signalled else None
        return (*((own,) if own else ()), *explanations(code, self._stderr_end, no_explanation))

    async def output(self) -> AsyncIterator[Chunk]:
        """Yield each chunk once. Without a reader the command is blocked after about a megabyte."""
        while True:
            await self.until(lambda: bool(self._chunks) or self._drained)
            if not self._chunks:
                self._check()
                return
            chunk = self._chunks.popleft()
            self._unread -= len(chunk.data)
            self._change()
            yield chunk

    async def send(self, data: bytes | None) -> None:
        """Write to the input until the pipe has taken all. Raises BrokenPipeError if the command does not read."""
        async with self._sending:
            try:
                await self._send_all(memoryview(data or b""))
            finally:
                if data is None or self._over:
                    self._close_input()

    async def _send_all(self, left: memoryview) -> None:
        while left:
            if self._over:
                self._check()
            if self._input < 0 or self._over:
                raise BrokenPipeError(errno.EPIPE, _INPUT_UNREAD)
            try:
                left = left[os.write(self._input, left[:PIECE]) :]
            except BlockingIOError:
                await self._writable()

    async def wait(self) -> int:
        """Wait until the group is dead; return the exit code. Raises Unavailable if the sandbox is gone."""
        await self.until(lambda: self._drained)
        self._check()
        return self.exited[0] if self.exited else _starter.NO_ANSWER

    async def signal(self, name: SignalName) -> None:
        """Signal the process group. A command that has ended is not an error."""
        if not self._over:
            self._signalled = True
            self._link.request(_SIGNALS[name], self)
        await anyio.lowlevel.checkpoint()

    @property
    def answered(self) -> bool:
        """Whether the starter has said that the command runs, or why it does not run."""
        return self.pid is not None or self._over

    def check_known(self) -> None:
        """Raise Unavailable if the starter was lost before it answered."""
        if self.pid is None:
            self._check()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until a change makes `ready` true."""
        while not ready():
            await self._changed.wait()

    def receive(self, what: int, first: int, second: int) -> None:
        """Apply one answer of the starter."""
        if what == _starter.STARTED:
            self.pid = first
        elif what == _starter.FAILED:
            self.failed, self._over = (first, second), True
        else:
            self.exited, self._over = (first, second), True
        self._change()

    def lose(self) -> None:
        """Kill the group, because the starter is gone."""
        if not self._over:
            self.kill()
            self._over = True
            self._change()

    def kill(self) -> None:
        """Kill the group now, without the starter."""
        if self.pid is not None and not self._over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def serve(self) -> None:
        """Read both streams until the command is over, then the bytes left in the pipes.

        The pipes may stay open: a process that left the group can hold them.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump, "stdout", self._stdout)
                group.start_soon(self._pump, "stderr", self._stderr)
                await self.until(lambda: self._over)
                group.cancel_scope.cancel()
            self._drain("stdout", self._stdout)
            self._drain("stderr", self._stderr)
        finally:
            self._over = self._drained = True
            if not self._sending.locked():  # else the sender, who may be waiting on it, closes it
                self._close_input()
            os.close(self._stdout)
            os.close(self._stderr)
            self._change()

    async def _pump(self, stream: StreamName, fd: int) -> None:
        while True:
            await self.until(lambda: self._unread < KEPT_UNREAD)
            await anyio.wait_readable(fd)
            if self._keep(stream, fd) == 0:
                return

    def _drain(self, stream: StreamName, fd: int) -> None:
        left = DRAINED_MOST
        while left > 0 and (size := self._keep(stream, fd)) > 0:
            left -= size

    def _keep(self, stream: StreamName, fd: int) -> int:
        """Read once; return the number of bytes: 0 at the end, -1 if there is nothing now."""
        try:
            data = os.read(fd, PIECE)
        except BlockingIOError:
            return -1
        if data:
            if stream == "stderr":
                self._stderr_end = (self._stderr_end + data[-STDERR_KEPT:])[-STDERR_KEPT:]
            self._chunks.append(Chunk(stream, data))
            self._unread += len(data)
            self._change()
        return len(data)

    async def _writable(self) -> None:
        """Wait until the input takes more, or the command is over; another process may keep the input open."""

        async def until_over(scope: anyio.CancelScope) -> None:
            await self.until(lambda: self._over)
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(until_over, group.cancel_scope)
            await anyio.wait_writable(self._input)
            group.cancel_scope.cancel()

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _check(self) -> None:
        if self.exited is None and self.failed is None:
            raise Unavailable(self._link.gone or "the sandbox lost the command", retryable=False)
