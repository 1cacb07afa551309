"""Pipes to a command on this machine, with nothing in between."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from handrail.aio import running_loop

PIECE: Final = 64 << 10
"""Bytes read at a time: what a pipe holds."""
WIDEST: Final = 1 << 20
"""Bytes that a pipe holds after a command has enlarged it."""
UNREAD: Final = "the command no longer reads its input"


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
        self._room: Any = None
        """The future of a writer that waits for room in the pipe."""

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._close_all()

    @classmethod
    def make(cls) -> "Pipes | None":
        """Make both pipes; None where no descriptors are left, or where a broken pipe would end this process."""
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
        """Close the command's ends here, because the command has its own copies now."""
        theirs, self.theirs = self.theirs, ()
        for fd in theirs:
            os.close(fd)

    def read_into(self, take: Callable[[bytes], object]) -> None:
        """Give what the command writes to `take`, from now on."""
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

    def _arrived(self) -> None:
        take, data = self._take, self._read()
        if data == b"":  # the end of a pipe stays readable: the event loop would call this without a pause
            self.pause()
            self._take = None
        elif data and take is not None:
            take(data)

    def _read(self) -> bytes | None:
        """Some bytes; no bytes at the end of the pipe; None if there is nothing yet."""
        try:
            return os.read(self._output, PIECE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def rest(self) -> bytes:
        """The bytes that a command which has ended left in its pipe."""
        data = b""
        while len(data) < WIDEST and (more := self._read()):
            data += more
        return data

    def write(self, data: "bytes | memoryview[int]") -> int:
        """Write to its input; returns how many bytes the pipe took. Raises BrokenPipeError if nothing reads it."""
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise BrokenPipeError(error.errno, UNREAD) from None

    async def write_all(self, data: bytes) -> None:
        """Write all of it, waiting for room. Raises BrokenPipeError if nothing reads the pipe."""
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
        """Close our ends; may be called twice. A writer that waits gets a BrokenPipeError."""
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
