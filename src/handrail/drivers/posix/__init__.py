"""The host driver where there is no guard, as on macOS: Python and process groups, and a report that says so."""

import errno
import math
import os
import resource
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, TypeVar

import anyio

from handrail.aio import finish
from handrail.contract.driver import Command, Feature, FileStat, Mount
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import GUARD_END_WAIT, Limits
from handrail.drivers._command import check_command, command_error, file_error
from handrail.drivers._home import make_home
from handrail.drivers._options import (
    PATH,
    GitIdentity,
    check_mounts,
    check_network,
    check_virtual_env,
    check_workspace,
    fixed_env,
)
from handrail.drivers._reports import posix_report
from handrail.drivers.posix import _starter
from handrail.drivers.posix._files import Files, Stop
from handrail.drivers.posix._link import Link, start_starter
from handrail.drivers.posix._process import PosixProcess
from handrail.drivers.scratch import make_scratch, remove_scratch
from handrail.threads import Work

Result = TypeVar("Result")
LONG_LINE: Final = 100 << 10
"""Longest line passed to the shell as an argument, in bytes; a longer one is passed in a file."""


async def open_posix(
    *, workspace: str, limits: Limits = Limits(), network: str = "full", env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (), git_identity: GitIdentity | None = None, virtual_env: str | None = None,
) -> "PosixDriver":  # fmt: skip
    """Start commands beside this process. File operations stay below the workspace, HOME, TMPDIR and the mounts.

    Raises subclasses of OSError for the workspace and the mounts, HandrailError for other options, and Unavailable
    when no process can be started.
    """
    top = check_workspace(workspace)
    check_network(network)
    venv = check_virtual_env(virtual_env)
    roots = [top, *_sources(mounts)]
    own, scratch = make_home(roots, git_identity), make_scratch()

    def release() -> None:
        remove_scratch(scratch)
        remove_scratch(own)

    try:
        link = await start_starter(scratch)
    except BaseException:
        release()
        raise
    tmp, home = _real(scratch), _real(own)
    return PosixDriver(
        link,
        files=Files([*roots, tmp, home], limits.file_size),
        workspace=top,
        tmp=tmp,
        env=fixed_env(top, tmp, env or {}, home=home, venv=venv, bin_dirs=[str(Path(sys.executable).parent)]),
        limits=_numbers(limits),
        on_close=release,
    )


async def open_own(env: Mapping[str, str] | None = None, *, privileges: bool = False) -> "PosixDriver":
    """Open a driver for this process's own programs: no limits, no files; it kills their process groups.

    Programs keep their privileges, asked for or not, because nothing here could take them away.
    Their environment is `env`, or this process's own.

    Raises Unavailable when no process can be started.
    """
    link = await start_starter(None, own_environment=True)
    return PosixDriver(link, files=Files([], None), workspace="/", tmp="/", env=env, limits=[])


class PosixDriver:
    """Runs commands through a starter, and file operations in threads."""

    def __init__(
        self, link: Link, *, files: Files, workspace: str, tmp: str, env: Mapping[str, str] | None,
        limits: Sequence[tuple[int, int]], on_close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.report = posix_report()
        self.name = self.report.driver
        self.features: frozenset[Feature] = self.report.features
        self.workspace = workspace
        self.tmp = tmp
        """The directory for temporary files."""
        self.env = None if env is None else dict(env)
        """The environment of every command; None for this process's own."""
        self.starter = link
        self._files = files
        self._limits = [(resource.RLIMIT_CORE, 0), *limits] if env is not None else []
        self._on_close = on_close
        self._busy: set[Stop] = set()
        """Stop flags of the file operations whose threads have not ended."""

    async def start(self, command: Command) -> PosixProcess:
        """Start a command. A cancelled start leaves nothing running in its group."""
        words = check_command(command, workspace=self.workspace, env=self.env)
        argv = words.argv if command.line is None else [*map(os.fsencode, _shell()), self._line(words.argv[0])]
        env = None if words.env is None else dict(variable.split(b"=", 1) for variable in words.env)
        order = {"argv": argv, "cwd": words.cwd, "env": env, "limits": self._limits}
        process = self._open(order, command)
        try:
            await process.until(lambda: process.answered)
        except BaseException:
            self.starter.abandon(process)
            raise
        if process.failed is not None:
            raise command_error(command, *process.failed, cwd=command.cwd or self.workspace)
        process.check_known()
        return process

    def _open(self, order: dict[str, Any], command: Command) -> PosixProcess:
        try:
            return self.starter.open(order, input=command.input)
        except OSError as error:
            raise command_error(command, error.errno or errno.EIO, _starter.AT_START, cwd="") from None

    def _line(self, line: bytes) -> bytes:
        """Return the line, or if it is too long for an argument, a line that runs it from a file."""
        if len(line) <= LONG_LINE:
            return line
        path = f"{self.tmp}/line-{token_hex(8)}"
        Path(path).write_bytes(line)
        return os.fsencode(f". '{path}'")

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Read a regular file, or a part of it. Raises OSError (EFBIG) if that is more than 512 MiB."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError("start and length count bytes: neither may be negative")
        return await self._in_thread(path, lambda stop: self._files.read(stop, path, start, length))

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file atomically; a cancelled write leaves the old content."""
        await self._in_thread(path, lambda stop: self._files.write(stop, path, data, mode))

    async def stat(self, path: str) -> FileStat:
        """Look up a path: type, size, mode and real path."""
        return await self._in_thread(path, lambda stop: self._files.stat(stop, path))

    async def list(self, path: str) -> list[FileStat]:
        """The entries of a directory, sorted by name. Raises OSError (EFBIG) for more than a million."""
        return await self._in_thread(path, lambda stop: self._files.list(stop, path))

    async def make_dir(self, path: str) -> None:
        """Create a directory with its parents. An existing directory is not an error."""
        await self._in_thread(path, lambda stop: self._files.make_dir(stop, path))

    async def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with everything in it."""
        await self._in_thread(path, lambda stop: self._files.remove(stop, path))

    async def close(self) -> None:
        """Kill every process group and release everything. May be called twice."""
        for stop in list(self._busy):
            stop.set()
        try:
            await self.starter.close()
            await finish(self._threads_ended)
        finally:
            self._on_close()

    async def _threads_ended(self) -> None:
        with anyio.move_on_after(GUARD_END_WAIT):
            while self._busy:  # noqa: ASYNC110 - threads leave it
                await anyio.sleep(0.001)

    async def _in_thread(self, path: str, operation: Callable[[Stop], Result]) -> Result:
        """Run a file operation in a thread. After a cancellation, the operation changes nothing more."""
        if self.starter.gone is not None:
            raise Unavailable(self.starter.gone, retryable=False)
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"{path!r} is not an absolute path, or has a NUL character in it")
        os.fsencode(path)
        stop = Stop()
        self._busy.add(stop)

        def run() -> Result:
            try:
                return operation(stop)
            finally:
                self._busy.discard(stop)

        try:
            result: Result = await Work(run).wait()
            return result
        except OSError as error:
            if error.errno == errno.ECANCELED and self.starter.gone is not None:
                raise Unavailable(self.starter.gone, retryable=False) from None
            raise file_error(error.errno or errno.EIO, path) from None
        except BaseException:
            stop.set()
            raise


@lru_cache(maxsize=1)
def _shell() -> tuple[str, ...]:
    """Return the words before a line: bash with pipefail, else sh."""
    bash = shutil.which("bash", path=PATH)
    return (bash, "-o", "pipefail", "-c") if bash else ("/bin/sh", "-c")


def _sources(mounts: Sequence[Mount]) -> list[str]:
    """Return the mounted paths. Raises HandrailError for a target other than the source."""
    resolved = check_mounts(mounts)
    for source, target, _ in resolved:
        if source != _real(target):
            raise HandrailError(f"the host driver cannot mount {source} at {target}: leave the target out")
    return [source for source, _, _ in resolved]


def _real(path: str) -> str:
    return os.path.realpath(path)


def _numbers(limits: Limits) -> list[tuple[int, int]]:
    """Return the limits that the system can enforce, as resource numbers and values."""
    cpu = None if limits.cpu is None else math.ceil(limits.cpu)
    numbers = (
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_CPU, cpu),
    )
    return [(which, number) for which, number in numbers if number is not None]
