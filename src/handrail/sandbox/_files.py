"""File operations of a sandbox. Relative paths start at its directory; errors are subclasses of OSError."""

import errno
import os
import posixpath
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

import anyio

from handrail.aio import OwnLoop, finish, in_background, on_own_loop
from handrail.contract.driver import FileStat
from handrail.contract.errors import BrokenDriver, Unavailable
from handrail.contract.limits import KILL_WAIT
from handrail.sandbox._state import SandboxState
from handrail.sandbox.checks import resolve, whole

_Answer = TypeVar("_Answer")
_Entries = list[FileStat]


class Files:
    """The file operations of a Sandbox. They raise OSError or a subclass, or Unavailable when the sandbox is gone."""

    _state: SandboxState
    _cwd: str

    @property
    def own_loop(self) -> OwnLoop:
        """The event loop that the sandbox belongs to; its methods may be awaited on any other loop."""
        return self._state.own_loop

    @on_own_loop
    async def read_bytes(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a range of it."""
        whole(start, "start")
        whole(length, "length")
        target = await self._target(path)
        data = await self._answer(self._state.driver.read(target, start=start, length=length))
        if not isinstance(data, bytes):
            raise BrokenDriver(f"The driver's read gave {type(data).__name__}, not bytes.")
        return data

    async def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        """Read a file as text, with unchanged line endings. Raises UnicodeDecodeError if it cannot be decoded."""
        return (await self.read_bytes(path)).decode(encoding)

    @on_own_loop
    async def write_bytes(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file atomically; missing parents are created."""
        if mode is not None and not (isinstance(mode, int) and 0 <= mode <= 0o7777):
            raise ValueError(f"mode is {mode!r}; give permissions such as 0o644.")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ValueError(f"data is bytes, not {type(data).__name__}; write_text takes text.")
        target = await self._target(path)
        await self._answer(self._state.driver.write(target, bytes(data), mode=mode))

    async def write_text(self, path: str, text: str, *, mode: int | None = None, encoding: str = "utf-8") -> None:
        """Write text with unchanged line endings."""
        if not isinstance(text, str):
            raise ValueError(f"text is a string, not {type(text).__name__}; write_bytes takes bytes.")
        await self.write_bytes(path, text.encode(encoding), mode=mode)

    @on_own_loop
    async def stat(self, path: str) -> FileStat:
        """Look up a path: type, size, mode and real path."""
        target = await self._target(path)
        return await self._answer(self._state.driver.stat(target))

    async def exists(self, path: str) -> bool:
        """Whether there is anything at this path; a dangling link counts."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    @on_own_loop
    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents. Not an error if it exists."""
        target = await self._target(path)
        await self._answer(self._state.driver.make_dir(target))

    @on_own_loop
    async def remove(self, path: str) -> None:
        """Remove a file, a link (not its target), or a directory with everything in it."""
        target = await self._target(path)
        await self._answer(self._state.driver.remove(target))

    @on_own_loop
    async def list(self, path: str = ".") -> _Entries:
        """List the entries of a directory, sorted by name."""
        target = await self._target(path)
        return await self._answer(self._state.driver.list(target))

    async def _target(self, path: str) -> str:
        """Return the absolute path for the driver. `..` is resolved as the kernel does, after following links."""
        self._state.check_open()
        absolute = resolve(self._cwd, path)
        if ".." not in absolute:
            return absolute
        target, is_real = "/", True
        for name in absolute.split("/")[1:]:
            if name != "..":
                target, is_real = posixpath.join(target, name), False
            else:
                target, is_real = posixpath.dirname(target if is_real else await self._real_directory(target)), True
        return target

    async def _real_directory(self, path: str) -> str:
        stat = await self._answer(self._state.driver.stat(path))
        if stat.type != "directory":
            number = errno.ENOENT if stat.type == "symlink" else errno.ENOTDIR
            raise OSError(number, os.strerror(number), path)
        return stat.real_path

    async def _answer(self, request: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Wait for the driver's answer, in bounded time; a request without an answer is cancelled."""
        # The request has a task of its own: a driver that ignores cancellation would otherwise hold up the caller's
        # limit and cancellation.
        asked = _Asked(request)
        task = in_background(asked.run())
        try:
            with anyio.move_on_after(self._state.file_wait):
                await asked.over.wait()
        finally:
            if not asked.over.is_set():
                task.cancel()
                await finish(asked.stopped)
        return asked.answer(self._state.file_wait)


class _Asked(Generic[_Answer]):
    """A request to the driver and its answer."""

    def __init__(self, request: Coroutine[Any, Any, _Answer]) -> None:
        self.over = anyio.Event()
        self._request = request
        self._answers: list[_Answer] = []
        self._error: Exception | None = None

    async def run(self) -> None:
        try:
            self._answers.append(await self._request)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            self._error = error
        finally:
            self._request.close()
            self.over.set()

    async def stopped(self) -> None:
        """Wait a moment for a driver that was told to stop."""
        with anyio.move_on_after(KILL_WAIT):
            await self.over.wait()

    def answer(self, waited: float) -> _Answer:
        """Return the answer, or raise the driver's exception, or Unavailable if there is neither."""
        if self._answers:
            return self._answers[0]
        error = self._error
        if isinstance(error, OSError | ValueError | Unavailable | BrokenDriver):
            raise error
        if error is not None:
            raise BrokenDriver(f"The driver broke its contract: {type(error).__name__}: {error}") from error
        raise Unavailable(f"The sandbox did not answer a file operation within {waited:g} s. It may be dead.")
