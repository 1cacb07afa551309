"""Pipes to a command on this machine, with nothing in between."""

import os
import select
import signal
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from handrail.aio import running_loop

PIECE: Final = 64 << 10
"""Bytes read at a time, as many as a pipe holds."""
WIDEST: Final = 1 << 20
"""Bytes that a pipe holds after a command has enlarged it."""
UNREAD: Final = "the command no longer reads its input"
SOON: Final = 1e-3
"""Seconds after which a command that has what it needs writes again, if it does nothing in between."""
AWAKE: Final = 300e-6
"""Seconds for which such a command is waited for without sleeping: to sleep and be woken takes both sides longer."""
RARELY: Final = 16
"""Of so many times that could be worth it, one is tried when none was."""


class Pipes:
    """Our ends of a command's input and output, used from one event loop. Nothing here blocks."""

    def __init__(self, to_command: tuple[int, int], from_command: tuple[int, int]) -> None:
        self.theirs: tuple[int, ...] = (to_command[0], from_command[1])
        """The command's ends, until they are `passed`: its input and its output."""
        self._input, self._output = to_command[1], from_command[0]
        for fd in (self._input, self._output):
            os.set_blocking(fd, False)
        self._take: Callable[[bytes], object] | None = None
        self._loop: Any = None
        self._is_reading = False
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        self._wrote = 0.0
        self._luck, self._pains = 1, 1
        self._is_asleep = True
        """Whether the command has not written yet: it sleeps until it has read, and may wake on this processor."""
        self._has_processors = len(os.sched_getaffinity(0)) > 1
        """Whether the command can run meanwhile."""
        self._room: Any = None
        """The future of a writer that waits for room in the pipe."""

    # Last resort for pipes that were never closed. At interpreter exit `os` may be gone, and the system closes them.
    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._close_all()

    @classmethod
    def make(cls) -> "Pipes | None":
        """Make the pipes; None if no descriptors are left, or if SIGPIPE would end this process."""
        if signal.getsignal(signal.SIGPIPE) is not signal.SIG_IGN:
            return None
        made: list[tuple[int, int]] = []
        try:
            made.append(os.pipe())
            made.append(os.pipe())
        except OSError:
            for fd in (fd for ends in made for fd in ends):
                os.close(fd)
            return None
        return cls(*made)

    def passed(self) -> None:
        """Close the command's ends here, after the command got them."""
        theirs, self.theirs = self.theirs, ()
        for fd in theirs:
            os.close(fd)

    def read_into(self, take: Callable[[bytes], object]) -> None:
        """Read from the command into `take`, from now on."""
        self._loop, self._take = running_loop(), take
        self.resume()

    def pause(self) -> None:
        """Read no more: a command that fills its pipe is blocked."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._output)

    def resume(self) -> None:
        """Read again, unless the command has closed its output."""
        if not self._is_reading and self._take is not None:
            self._is_reading = True
            self._loop.add_reader(self._output, self._arrived)

    def linger(self) -> bytes:
        """What comes within a moment, without sleeping; nothing unless the command is quick, and has its input."""
        if self._luck <= 0 or self._take is None or not self._has_processors:
            return b""
        until, poll = perf_counter() + AWAKE, self._poll.poll
        while not poll(self._is_asleep):
            os.sched_yield()
            if perf_counter() > until:
                self._pains = min(2 * self._pains, RARELY)
                self._luck = -self._pains
                return b""
        self._pains = 1
        return self._news()

    def _arrived(self) -> None:
        take, data = self._take, self._news()
        if data and take is not None:
            take(data)

    def _news(self) -> bytes:
        if perf_counter() - self._wrote < SOON:
            self._luck += 1
        data, self._is_asleep = self._read(), False
        if data == b"":
            self.pause()
            self._take = None
        return data or b""

    def _read(self) -> bytes | None:
        """Some bytes, none at the end, or None if there is nothing yet."""
        try:
            return os.read(self._output, PIECE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def rest(self) -> bytes:
        """Read the rest of the pipe of a command that has ended."""
        data = b""
        while len(data) < WIDEST and (more := self._read()):
            data += more
        return data

    def write(self, data: "bytes | memoryview[int]") -> int:
        """Write to the input; return the number of bytes taken. Raises BrokenPipeError if no process reads."""
        self._wrote = perf_counter()
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise BrokenPipeError(error.errno, UNREAD) from None

    async def write_all(self, data: bytes) -> None:
        """Write all data, waiting for room. Raises BrokenPipeError if no process reads."""
        view = memoryview(data)
        while view := view[self.write(view) :]:
            await self._until_room()

    async def _until_room(self) -> None:
        loop, self._room = running_loop(), running_loop().create_future()
        loop.add_writer(self._input, self._has_room)
        try:
            await self._room
        finally:
            self._room = None
            if self._input >= 0:
                loop.remove_writer(self._input)

    def _has_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def close(self) -> None:
        """Close both pipes. May be called twice. A waiting writer gets a BrokenPipeError."""
        self.pause()
        self._take = None
        if self._room is not None:
            self._loop.remove_writer(self._input)
            self._has_room()
        self._close_all()

    def _close_all(self) -> None:
        fds = (*self.theirs, self._input, self._output)
        self.theirs, self._input, self._output = (), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)
