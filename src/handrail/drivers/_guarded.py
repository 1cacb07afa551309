"""The Driver and its Process over a channel to a guard, wherever the guard was started."""

import errno
import os
import posixpath
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final, NoReturn

import anyio
import anyio.lowlevel

from handrail.contract.driver import Chunk, Command, Feature, FileStat, Guarantee, Report, SignalName
from handrail.contract.errors import Unavailable
from handrail.contract.limits import GUARD_SILENCE
from handrail.drivers._command import command_error, encode_command, file_error
from handrail.drivers._explain import Explain, Explanation, explanations, no_explanation
from handrail.drivers._limit_notes import NO_LIMITS, LimitNotes
from handrail.drivers.guard import frames
from handrail.drivers.guard.channel import Channel, Exchange
from handrail.drivers.guard.spawn import Guard
from handrail.sandbox.pipes import Pipes
from handrail.threads import in_thread

LEFT_RUNNING_NOTE: Final = (
    "The command left processes running when it ended; they were killed. "
    "To keep something running, start it as a background job."
)
_STDERR_KEPT: Final = 4096
"""Bytes of standard error kept to explain an exit code."""
_TOO_MANY: Final = (
    "the directory has too many entries to list at once (about a million fit, fewer with long paths): "
    "use a command that lists them"
)
_INPUT_UNREAD: Final = "the command no longer reads its input"
_SIGNALS: Final[Mapping[SignalName, bytes]] = {"TERM": b"\x0f", "KILL": b"\x09"}


class GuardedProcess:
    """A command under its guard."""

    def __init__(
        self, channel: Channel, exchange: Exchange, explain: Explain = no_explanation, limits: LimitNotes = NO_LIMITS
    ) -> None:
        self.id = str(exchange.id)
        self.pid = exchange.pid
        self._explain = explain
        self._limits = limits
        self._stderr_end = b""
        self._channel = channel
        self._exchange = exchange
        self._sending = anyio.Lock(fast_acquire=True)
        self._input_closed = False
        self.pipes: Pipes | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the end of the command; complete when `wait` has returned."""
        left = (LEFT_RUNNING_NOTE,) if self._flags & frames.LEFT_RUNNING else ()
        return (*left, *(each.note for each in self._explanations()))

    @property
    def advice(self) -> tuple[str, ...]:
        """Changes to the sandbox that a person could make, if the lack of them made the command fail."""
        return tuple(each.advice for each in self._explanations() if each.advice)

    @property
    def limit(self) -> str | None:
        """The limit for which the command, or a part of it, was killed."""
        return "memory" if self._flags & frames.OUT_OF_MEMORY else None

    @property
    def _flags(self) -> int:
        return self._exchange.exited[1] if self._exchange.exited else 0

    def _explanations(self) -> Iterator[Explanation]:
        code = self._exchange.exited[0] if self._exchange.exited else 0
        if self.limit is not None:
            yield self._limits.killed_for_memory()
        else:
            yield from self._limits.explanations(code, self._stderr_end)
        yield from explanations(code, self._stderr_end, self._explain)

    async def output(self) -> AsyncIterator[Chunk]:
        """Each chunk is given once. Without a reader the command is blocked after about a megabyte."""
        exchange, channel = self._exchange, self._channel
        while True:
            await channel.until(exchange, lambda: bool(exchange.chunks) or exchange.over)
            if not exchange.chunks:
                return
            stream, data = exchange.chunks.popleft()
            if stream == 2:
                self._stderr_end = (self._stderr_end + data[-_STDERR_KEPT:])[-_STDERR_KEPT:]
            channel.consumed(exchange, len(data))
            yield Chunk("stdout" if stream == 1 else "stderr", data)

    async def send(self, data: bytes | None) -> None:
        """Write to the input until the pipe has taken all. Raises BrokenPipeError if the command does not read."""
        exchange, channel = self._exchange, self._channel
        async with self._sending:
            if data is None:
                if not self._input_closed:
                    channel.post(frames.frame(frames.CLOSE, exchange.id))
                self._input_closed = True
                return
            for at in range(0, len(data), frames.INPUT_MAX):
                await self._send_piece(data[at : at + frames.INPUT_MAX])
            await channel.until(exchange, lambda: exchange.untaken == 0 or exchange.deaf or exchange.over)
            if exchange.untaken:
                raise BrokenPipeError(errno.EPIPE, _INPUT_UNREAD)

    def push(self, data: bytes) -> bool:
        """Send input without waiting, if there is room for all of it; return whether it was sent."""
        exchange = self._exchange
        full = len(data) > frames.INPUT_MAX or exchange.untaken + len(data) > frames.INPUT_WINDOW
        if full or not data or self._sending.locked() or self._input_closed or exchange.deaf or exchange.over:
            return False
        exchange.untaken += len(data)
        self._channel.post(frames.frame(frames.INPUT, exchange.id, data))
        return True

    async def _send_piece(self, piece: bytes) -> None:
        exchange, room = self._exchange, frames.INPUT_WINDOW - len(piece)
        await self._channel.until(exchange, lambda: exchange.untaken <= room or exchange.deaf or exchange.over)
        if self._input_closed or exchange.deaf or exchange.over:
            raise BrokenPipeError(errno.EPIPE, _INPUT_UNREAD)
        exchange.untaken += len(piece)
        self._channel.post(frames.frame(frames.INPUT, exchange.id, piece))

    async def wait(self) -> int:
        """Wait until the whole tree is dead; return the exit code. Raises Unavailable if the guard is gone."""
        exchange = self._exchange
        await self._channel.until(exchange, lambda: exchange.over)
        return exchange.exited[0] if exchange.exited else 127

    async def signal(self, name: SignalName) -> None:
        """Signal the whole tree. A command that has ended is not an error."""
        if not self._exchange.over:
            self._channel.post(frames.frame(frames.SIGNAL, self._exchange.id, _SIGNALS[name]))
        await anyio.lowlevel.checkpoint()


class GuardedDriver:
    """Runs commands and file operations through a guard."""

    def __init__(
        self, guard: Guard, *, report: Report, workspace: str, env: Mapping[str, str] | None, tmp: str,
        program: str, explain: Explain = no_explanation, on_close: Callable[[], None] = lambda: None,
        limits: LimitNotes = NO_LIMITS,
    ) -> None:  # fmt: skip
        self.name = report.driver
        self.report = report
        self.features: frozenset[Feature] = report.features
        self.lost: tuple[Guarantee, ...] = ()
        """The promises that a self-test found to be weaker than claimed."""
        self.workspace = workspace
        self.guard = guard
        self.program = program
        """The path of the guard's program inside; a self-test runs it as a command."""
        self.tmp = tmp
        """The directory for temporary files, inside."""
        self.env = None if env is None else dict(env)
        """The environment of every command; None for the guard's own."""
        self.spaces: Mapping[str, str] = {}
        """Directories inside that have a size of their own: `home`, and `workspace`."""
        self.silence = GUARD_SILENCE
        self._explain = explain
        self._limits = limits
        self._on_close = on_close
        self._releasing = threading.RLock()
        self._channel = guard.channel

    async def start(self, command: Command) -> GuardedProcess:
        """Start a command. A cancelled start leaves nothing running."""
        request = encode_command(command, workspace=self.workspace, env=self.env)
        return await self._started(command, self._channel.open(request))

    async def start_piped(self, command: Command) -> GuardedProcess:
        """Start a command whose input and output do not go through the guard: `pipes` of its process are our ends.

        Where they cannot be passed to the guard, start it as `start` does.
        """
        request = encode_command(command, workspace=self.workspace, env=self.env, pipes=True)
        pipes = Pipes.make()
        if pipes is None:
            return await self.start(command)
        try:
            exchange = self._channel.open_passing(request, pipes.theirs)
            pipes.passed()
            if exchange is None:
                return await self.start(command)
            process = await self._started(command, exchange)
        except BaseException:
            pipes.close()
            raise
        process.pipes = pipes
        return process

    async def _started(self, command: Command, exchange: Exchange) -> GuardedProcess:
        try:
            await self._channel.until(exchange, lambda: exchange.pid is not None or exchange.over)
        except BaseException:
            self._abandon(exchange)
            raise
        if exchange.failed is not None:
            raise command_error(command, *exchange.failed, cwd=command.cwd or self.workspace, explain=self._explain)
        return GuardedProcess(self._channel, exchange, self._explain, self._limits)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a regular file, or a part of it. Raises OSError (EFBIG) if that is more than 512 MiB."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError("start and length count bytes: neither may be negative")
        asked = frames.NO_LIMIT if length is None else length
        return await self._file(
            frames.READ, path, start=start, length=asked, most=frames.READ_MAX if length is None else length
        )

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file atomically; a cancelled write leaves the old content."""
        wanted = frames.NO_MODE if mode is None else mode
        await self._file(frames.WRITE, path, data, length=len(data), mode=wanted)

    async def stat(self, path: str) -> FileStat:
        """Look up a path: type, size, mode and real path."""
        answer = self._records(await self._file(frames.STAT, path, most=frames.STAT_MAX))
        if len(answer) != 1 or answer[0][0] or not answer[0][1]:
            self._distrust("an answer that is not one record")
        _, real, stat = answer[0]
        return FileStat(path, real, stat.type, stat.size, stat.mode, stat.mtime)

    async def list(self, path: str) -> list[FileStat]:
        """The entries of a directory, sorted by name. Raises OSError (EFBIG) for more than about a million."""
        try:
            body = await self._file(frames.LIST, path, most=frames.LIST_MAX)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise OSError(errno.EFBIG, _TOO_MANY, path) from None
            raise
        real_dir = (await self.stat(path)).real_path
        entries = []
        for name, real, stat in self._records(body):
            if not name:
                self._distrust("an entry without a name")
            real_path = real or posixpath.join(real_dir, name)
            full = posixpath.join(path, name)
            entries.append(FileStat(full, real_path, stat.type, stat.size, stat.mode, stat.mtime))
        return sorted(entries, key=lambda entry: entry.path)

    async def make_dir(self, path: str) -> None:
        """Create a directory with its parents. An existing directory is not an error."""
        await self._file(frames.MAKE_DIR, path)

    async def remove(self, path: str) -> None:
        """A file, a link, or a directory with everything in it."""
        await self._file(frames.REMOVE, path)

    async def close(self) -> None:
        """Kill every process and release everything. May be called twice."""
        try:
            await self.guard.close()
            await in_thread(self._release)  # there may be many files to remove
        finally:
            self._release()

    def _release(self) -> None:
        with self._releasing:  # who comes second waits: the program may exit when this returns
            release, self._on_close = self._on_close, lambda: None
            release()

    async def _file(
        self, op: int, path: str, data: bytes = b"", *, start: int = 0, length: int = frames.NO_LIMIT,
        mode: int = frames.NO_MODE, most: int = 0,
    ) -> bytes:  # fmt: skip
        encoded = os.fsencode(path)
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path")

        def request(id: int) -> bytes:
            return frames.file(id, op, encoded, start=start, length=length, mode=mode)

        exchange = self._channel.open(request, most=most)
        try:
            answer = await self._transfer(exchange, data)
        except BaseException:
            self._abandon(exchange)
            raise
        self._check_outcome(exchange, path)
        return answer

    async def _transfer(self, exchange: Exchange, data: bytes) -> bytes:
        """Send the data of a file operation, and collect its answer."""
        channel, answer = self._channel, bytearray()
        for at in range(0, len(data), frames.INPUT_MAX):
            piece = data[at : at + frames.INPUT_MAX]
            room = frames.INPUT_WINDOW - len(piece)
            await self._answered(exchange, lambda room=room: exchange.untaken <= room or exchange.deaf or exchange.over)  # type: ignore[misc]
            if exchange.over:
                break
            exchange.untaken += len(piece)
            channel.post(frames.frame(frames.INPUT, exchange.id, piece))
        while True:
            await self._answered(exchange, lambda: bool(exchange.chunks) or exchange.over)
            if not exchange.chunks:
                return bytes(answer)
            _, piece = exchange.chunks.popleft()
            answer += piece
            channel.consumed(exchange, len(piece))

    async def _answered(self, exchange: Exchange, ready: Callable[[], bool]) -> None:
        """Wait for the next frame about a file operation. Raises Unavailable when that takes too long."""
        if ready():
            return
        with anyio.move_on_after(self.silence) as silence:
            await self._channel.until(exchange, ready)
        if silence.cancelled_caught:
            raise Unavailable(
                f"the sandbox did not answer a file operation for {self.silence:g} s, and may be dead: "
                "the operation was abandoned; try again"
            )

    def _check_outcome(self, exchange: Exchange, path: str) -> None:
        code, flags = exchange.exited or (exchange.failed or (errno.EIO, 0))
        if exchange.failed is not None:
            raise Unavailable(f"the sandbox cannot take more work now: {os.strerror(code)}")
        if flags & (frames.BY_SIGNAL | frames.NO_ANSWER):
            raise Unavailable("the file operation ended without an answer: try again")
        if code:
            raise file_error(code, path)

    def _records(self, body: bytes) -> tuple[tuple[str, str, FileStat], ...]:
        try:
            return tuple(frames.records(body))
        except frames.BadFrame as error:
            self._distrust(error)

    def _distrust(self, wrong: object) -> NoReturn:
        self._channel.distrust(wrong)
        raise Unavailable(self._channel.gone or "", retryable=False)

    def _abandon(self, exchange: Exchange) -> None:
        """Kill a command whose caller no longer waits, and ignore the rest of its output."""
        self._channel.forget(exchange)
        self._channel.post(frames.frame(frames.SIGNAL, exchange.id, _SIGNALS["KILL"]))
