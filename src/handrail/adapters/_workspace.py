"""A sandbox as a workspace of pydantic-ai: commands and files by the rules of its WorkspaceBackend."""

import errno
import os
import posixpath
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    SupportsCommands,
    SupportsFilesystem,
    WorkspaceBackend,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from handrail.contract.driver import FileStat, StreamName
from handrail.contract.errors import Unavailable
from handrail.contract.limits import DEFAULT_CAPS
from handrail.sandbox.completed import EXIT_CANNOT_RUN, EXIT_NOT_FOUND, Completed
from handrail.sandbox.sandbox import Sandbox


class SandboxWorkspace(WorkspaceBackend, SupportsCommands, SupportsFilesystem):
    """A workspace over an open sandbox. The opener of the sandbox closes it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._ref = WorkspaceRef(provider="handrail", id=f"{sandbox.report.driver}:{sandbox.cwd}")

    @property
    def ref(self) -> WorkspaceRef:
        return self._ref

    async def working_dir(self) -> str:
        try:
            async with self._available():
                return (await self._sandbox.stat(".")).real_path
        except (FileNotFoundError, NotADirectoryError) as error:
            raise WorkspaceUnavailableError(f"the directory {self._sandbox.cwd} is gone") from error

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("a text needs shell=True, and a list of words shell=False")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout!r}; give seconds above 0, or None")
        try:
            async with self._available():
                done = await self._sandbox.run(command, env=env, timeout=timeout)
        except (FileNotFoundError, PermissionError) as error:
            await self.working_dir()  # raises where it is the directory that is missing
            code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_RUN
            return CommandResult(exit_code=code, stdout="", stderr=f"{error.strerror or error}\n")
        stdout, stderr = _text(done, "stdout"), _text(done, "stderr")
        if done.ended_by == "timeout":
            raise WorkspaceTimeoutError(
                f"stopped after {timeout:g} s, with all it started", stdout=stdout, stderr=stderr
            )
        if lost := done.spool.discarded():
            raise WorkspaceOutputLimitError(
                f"{lost} bytes of the output were not kept", limit=DEFAULT_CAPS.spool, stdout=stdout, stderr=stderr
            )
        return CommandResult(exit_code=done.exit_code, stdout=stdout, stderr=stderr)

    async def read_bytes(self, path: str) -> bytes:
        async with self._available():
            return await self._sandbox.read_bytes(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        async with self._available():
            await self._sandbox.write_bytes(path, data)

    async def stat(self, path: str) -> FileEntry:
        async with self._available():
            found = await self._sandbox.stat(path)
        if found.type == "symlink":  # it leads nowhere
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _entry(found)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        async with self._available():
            return [_entry(each) for each in await self._sandbox.list(path)]

    async def make_dir(self, path: str) -> None:
        async with self._available():
            await self._sandbox.make_dir(path)

    async def remove(self, path: str) -> None:
        root, name = await self.working_dir(), posixpath.basename(path)
        async with self._available():
            parent = (await self._sandbox.stat(posixpath.dirname(path) if name else path)).real_path
            target = posixpath.join(parent, name)
            if f"{root}/".startswith(f"{target.rstrip('/')}/"):
                raise ValueError(f"{path} is the working directory or holds it; it cannot be removed")
            await self._sandbox.remove(path)

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    @asynccontextmanager
    async def _available(self) -> AsyncIterator[None]:
        try:
            yield
        except Unavailable as error:
            raise WorkspaceUnavailableError(str(error)) from error


def _text(done: Completed, stream: StreamName) -> str:
    """All that a command printed on a stream: an answer to the model would be cut, a workspace's is not."""
    return done.spool.read(stream=stream).decode("utf-8", "replace")


def _entry(found: FileStat) -> FileEntry:
    size = found.size if found.type == "file" else None
    return FileEntry(name=found.name, path=found.path, is_dir=found.type == "directory", size=size)
