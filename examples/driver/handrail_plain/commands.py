"""The command half of a driver: a process group for each command, read and fed through plain pipes."""

import errno
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import IO, Literal

import anyio
import anyio.to_thread

from handrail import Chunk, Command, Unavailable

MAX_LINE_BYTES = 4 << 20
SHORT_LINE = 100_000
"""Bytes that one argument of a program may have."""
PIECE = 1 << 16
LOOK = 0.01
"""Seconds between two looks at whether a command has ended."""


class PlainProcess:
    """A running command. Its signals reach its process group, not what left it: so `tree_kill` is not claimed."""

    def __init__(self, popen: "subprocess.Popen[bytes]", commands: "Commands") -> None:
        self.id = str(popen.pid)
        self.pid: int | None = popen.pid
        self.popen = popen
        self._commands = commands

    @property
    def pipes(self) -> list[IO[bytes]]:
        return [pipe for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr) if pipe is not None]

    @property
    def over(self) -> bool:
        """Whether it has ended and everything was read."""
        return self.popen.poll() is not None and all(pipe.closed for pipe in self.pipes)

    async def output(self) -> AsyncIterator[Chunk]:
        """A pipe that nobody reads blocks the command: that is the back-pressure."""
        streams: dict[int, tuple[Literal["stdout", "stderr"], IO[bytes]]] = {}
        for name, pipe in (("stdout", self.popen.stdout), ("stderr", self.popen.stderr)):
            if pipe is not None and not pipe.closed:
                streams[pipe.fileno()] = ("stdout" if name == "stdout" else "stderr", pipe)
        while streams:
            ready = await anyio.to_thread.run_sync(_readable, list(streams))
            self._check_open()
            for fd in ready:
                data = os.read(fd, PIECE)
                if data:
                    yield Chunk(streams[fd][0], data)
                else:
                    streams.pop(fd)[1].close()
        await self.wait()

    async def send(self, data: bytes | None) -> None:
        pipe = self.popen.stdin
        if data is None:
            if pipe is not None and not pipe.closed:
                pipe.close()
            return
        if pipe is None or pipe.closed or self.popen.poll() is not None:
            raise BrokenPipeError(errno.EPIPE, "the command takes no input")
        view = memoryview(data)
        while view:
            ready = await anyio.to_thread.run_sync(_writable, pipe.fileno())
            if self.popen.poll() is not None:
                raise BrokenPipeError(errno.EPIPE, "the command has ended")
            view = view[os.write(pipe.fileno(), view[:PIECE]) :] if ready else view

    async def wait(self) -> int:
        while (code := self.popen.poll()) is None:
            self._check_open()
            await anyio.sleep(LOOK)
        self._check_open()
        await self.send(None)
        return code if code >= 0 else 128 - code

    async def signal(self, name: Literal["TERM", "KILL"]) -> None:
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGTERM if name == "TERM" else signal.SIGKILL)
        await anyio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._commands.killed:
            raise Unavailable("the sandbox is closed", retryable=False)


def _readable(fds: list[int]) -> list[int]:
    return select.select(fds, (), (), LOOK)[0]


def _writable(fd: int) -> bool:
    return bool(select.select((), [fd], (), LOOK)[1])


class Commands:
    """Starts processes, and kills those that still run."""

    def __init__(self) -> None:
        super().__init__()
        self.killed = False
        self._started: list[PlainProcess] = []

    def started(self, command: Command, *, cwd: str, env: Mapping[str, str]) -> PlainProcess:
        """Start a command, or say why not."""
        argv = _argv(command, cwd)
        os.listdir(cwd)  # raises what the contract lists for a directory that is missing, a file, or closed
        popen = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE if command.input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        if popen.stdin is not None:
            os.set_blocking(popen.stdin.fileno(), False)
        self._started = [each for each in self._started if not each.over]
        self._started.append(PlainProcess(popen, self))
        return self._started[-1]

    def kill_all(self) -> None:
        """End every group and close every pipe."""
        self.killed = True
        for process in self._started:
            if process.popen.poll() is None:
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait()
            for pipe in process.pipes:
                pipe.close()


def _argv(command: Command, cwd: str) -> list[str]:
    """The words to run. Raises ValueError for what no system can run."""
    if (command.argv is None) == (command.line is None):
        raise ValueError("give either argv or line")
    if not cwd.startswith("/"):
        raise ValueError(f"{cwd!r} is not an absolute path")
    if not all(name and "=" not in name for name in command.env):
        raise ValueError("a variable needs a name")
    if command.argv is not None:
        if not command.argv or not command.argv[0]:
            raise ValueError("argv is empty")
        return list(command.argv)
    line = command.line or ""
    if not line.strip() or "\0" in line or len(line) > MAX_LINE_BYTES:
        raise ValueError("a line is not blank, has no NUL, and is at most 4 MiB long")
    shell = ["bash", "-o", "pipefail"]
    if len(line.encode()) < SHORT_LINE:
        return [*shell, "-c", line]
    with tempfile.NamedTemporaryFile("w", delete=False, encoding="utf-8") as script:
        script.write(f'rm -f "$0"\n{line}')
    return [*shell, script.name]
