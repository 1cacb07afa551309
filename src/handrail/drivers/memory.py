"""A driver for tests: files in memory and commands that follow a script. It runs nothing, and claims no execution."""

import errno
import os
import posixpath
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import anyio

from handrail.contract.driver import Chunk, Command, Feature, FileStat, Mount, SignalName
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits

NOT_SCRIPTED: Final = 127
_KILLED: Final = 137
_TERMINATED: Final = 143
_OWNER_WRITES: Final = 0o200


@dataclass(frozen=True, slots=True)
class Script:
    """A scripted command: print, wait, and exit."""

    stdout: str | bytes = b""
    stderr: str | bytes = b""
    exit_code: int = 0
    chunks: Sequence[Chunk] = ()
    """Chunks printed after stdout and stderr, one by one."""
    pause: float = 0.0
    """Seconds before each chunk."""
    delay: float = 0.0
    """Seconds between the last print and the exit."""
    hang: bool = False
    """Never exit unless signalled."""
    deaf: bool = False
    """Ignore TERM."""
    echo: bool = False
    """Print its input until that is closed; this comes before the chunks."""
    notes: tuple[str, ...] = ()


Answer = Script | str | bytes | int
"""A script; or in short its output as text or bytes, or its exit code."""
Commands = Mapping[str | tuple[str, ...], Answer] | Callable[[Command], Answer | None]


class MemoryProcess:
    """A command that follows its script."""

    def __init__(self, id: str, script: Script, input: bool) -> None:
        self.id = id
        self.pid: int | None = None
        self.notes = script.notes
        self.signals: list[SignalName] = []
        """Signals that were sent to the command."""
        self._script = script
        self._code: int | None = None
        self._over = anyio.Event()
        self._input: list[bytes | None] = [] if input else [None]
        self._fed = anyio.Event()
        self._taken = False

    async def output(self) -> AsyncIterator[Chunk]:
        self._taken = True
        script = self._script
        async for chunk in self._print():
            yield chunk
            if self._code is not None:
                return
        await self._rest(script.delay)
        if script.hang:
            await self._over.wait()
        self._end(script.exit_code)

    async def send(self, data: bytes | None) -> None:
        if self._code is not None:
            raise BrokenPipeError(errno.EPIPE, "the command has ended")
        self._input.append(data)
        self._fed.set()

    async def wait(self) -> int:
        if not self._taken:
            async for _ in self.output():
                pass
        await self._over.wait()
        return 0 if self._code is None else self._code

    async def signal(self, name: SignalName) -> None:
        self.signals.append(name)
        if name == "KILL":
            self._end(_KILLED)
        elif not self._script.deaf:
            self._end(_TERMINATED)

    async def _print(self) -> AsyncIterator[Chunk]:
        script = self._script
        if script.stdout:
            yield Chunk("stdout", _bytes(script.stdout))
        if script.stderr:
            yield Chunk("stderr", _bytes(script.stderr))
        if script.echo:
            async for data in self._read_input():
                yield Chunk("stdout", data)
        for chunk in script.chunks:
            await self._rest(script.pause)
            if self._code is None:
                yield chunk

    async def _read_input(self) -> AsyncIterator[bytes]:
        while self._code is None:
            while self._input:
                data = self._input.pop(0)
                if data is None:
                    return
                yield data
            self._fed = anyio.Event()
            await self._fed.wait()

    async def _rest(self, seconds: float) -> None:
        if seconds > 0:
            with anyio.move_on_after(seconds):
                await self._over.wait()

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
        self._over.set()
        self._fed.set()


@dataclass(slots=True)
class _File:
    data: bytes
    mode: int = 0o644
    mtime: float = field(default_factory=time.time)


class MemoryDriver:
    """Implements contract.driver.Driver. A command without a script exits with 127 and a message.

    `files` maps paths to content; relative ones begin in the workspace. `commands` maps a line, or an argv as a
    tuple, to what it does, or is a function of the Command.

    Example:
        ```python
        driver = MemoryDriver({"/workspace/a.txt": b"hello"}, commands={"make": "built\\n"})
        async with open_sandbox(driver) as sandbox:
            print(await sandbox.read_text("a.txt"), (await sandbox.run("make")).stdout)
        #> hello built
        ```
    """

    name = "memory"
    features: frozenset[Feature] = frozenset({"files", "atomic_write", "range_read", "file_isolation"})

    def __init__(
        self,
        files: Mapping[str, bytes | str] | None = None,
        commands: Commands | None = None,
        *,
        workspace: str = "/workspace",
    ) -> None:
        self.workspace = workspace
        self.started: list[Command] = []
        """Every command, as the driver was given it."""
        self.processes: list[MemoryProcess] = []
        self._commands: Commands = {} if commands is None else commands
        self._files: dict[str, _File] = {}
        self._directories: dict[str, float] = {"/": time.time()}
        self._numbers = count(1)
        self._closed = False
        self._make(workspace)
        for path, content in (files or {}).items():
            self._put(posixpath.normpath(posixpath.join(workspace, path)), _bytes(content), None)

    async def start(self, command: Command) -> MemoryProcess:
        self._check_open()
        if command.cwd is not None and command.cwd not in self._directories:
            raise _error(errno.ENOTDIR if command.cwd in self._files else errno.ENOENT, command.cwd)
        process = MemoryProcess(f"memory-{next(self._numbers)}", self._script(command), command.input)
        self.started.append(command)
        self.processes.append(process)
        return process

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        if start < 0 or (length is not None and length < 0):
            raise ValueError("start and length count bytes: neither may be negative")
        data = self._file(path).data
        return data[start:] if length is None else data[start : start + length]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._check_open(path)
        self._put(path, data, mode)

    async def stat(self, path: str) -> FileStat:
        self._check_open(path)
        if path in self._directories:
            return FileStat(path, path, "directory", 0, 0o755, self._directories[path])
        file = self._file(path)
        return FileStat(path, path, "file", len(file.data), file.mode, file.mtime)

    async def list(self, path: str) -> list[FileStat]:
        self._check_open(path)
        if path not in self._directories:
            self._file(path)
            raise _error(errno.ENOTDIR, path)
        inside = _children(path, self._directories) + _children(path, self._files)
        return [await self.stat(child) for child in sorted(inside)]

    async def make_dir(self, path: str) -> None:
        self._check_open(path)
        self._make(path)

    async def remove(self, path: str) -> None:
        self._check_open(path)
        if path not in self._directories:
            self._file(path)
        for table in (self._files, self._directories):
            for gone in [each for each in table if each == path or each.startswith(path.rstrip("/") + "/")]:
                del table[gone]
        self._make("/")

    async def close(self) -> None:
        self._closed = True
        for process in self.processes:
            await process.signal("KILL")

    def _script(self, command: Command) -> Script:
        key: str | tuple[str, ...] = command.line if command.line is not None else command.argv or ()
        answer = self._commands(command) if callable(self._commands) else self._commands.get(key)
        if answer is None:
            return Script(stderr=f"memory: no script for {key!r}\n", exit_code=NOT_SCRIPTED)
        if isinstance(answer, int):
            return Script(exit_code=answer)
        return Script(stdout=answer) if isinstance(answer, str | bytes) else answer

    def _file(self, path: str) -> _File:
        self._check_open(path)
        if path in self._files:
            return self._files[path]
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        self._check_parents(path)
        raise _error(errno.ENOENT, path)

    def _put(self, path: str, data: bytes, mode: int | None) -> None:
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        self._check_parents(path)
        self._make(posixpath.dirname(path))
        old = self._files.get(path)
        if old and not old.mode & _OWNER_WRITES:
            raise _error(errno.EACCES, path)
        self._files[path] = _File(data, mode if mode is not None else old.mode if old else 0o644)

    def _make(self, path: str) -> None:
        if path in self._files:
            raise _error(errno.EEXIST, path)
        self._check_parents(path)
        while path not in self._directories:
            self._directories[path] = time.time()
            path = posixpath.dirname(path)

    def _check_parents(self, path: str) -> None:
        while path != "/":
            path = posixpath.dirname(path)
            if path in self._files:
                raise _error(errno.ENOTDIR, path)

    def _check_open(self, path: str = "/") -> None:
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"{path!r} is not an absolute path")
        if self._closed:
            raise Unavailable("The memory driver is closed.", retryable=False)


def _children(path: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name != "/" and posixpath.dirname(name) == path]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


async def open_memory(
    *,
    workspace: str = "/workspace",
    limits: Limits = Limits(),
    network: str = "none",
    env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
    files: Mapping[str, str | bytes] | None = None,
    commands: Commands | None = None,
) -> MemoryDriver:
    """A MemoryDriver; its own options are `files` and `commands`. It ignores limits, network, env and mounts."""
    return MemoryDriver(files, commands, workspace=workspace)
