"""The UnixLocalSandboxClient of the OpenAI Agents SDK as a Driver."""

import io
from pathlib import Path
from typing import Any

from agents.sandbox.errors import ExecTimeoutError, InvalidManifestPathError, SandboxError
from agents.sandbox.manifest import Environment, Manifest
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient

from handrail import Command
from tests.peers import run_to_end
from tests.peers.run_to_end import Ended, Entry, RunToEnd, lacks, no_options

NAMED = (run_to_end.EVERY, run_to_end.SHELL, run_to_end.UNCLOSED, run_to_end.ONE_DIRECTORY, run_to_end.RELATIVE)


def raised(error: SandboxError) -> BaseException:
    """What happened below, which is what our contract names."""
    if isinstance(error, InvalidManifestPathError):
        return PermissionError(13, str(error))
    cause = error.__cause__
    return cause if isinstance(cause, OSError | ValueError) else error


async def session_in(directory: str, env: dict[str, str]) -> Any:
    client = UnixLocalSandboxClient(inherit_host_environment=False)
    session = await client.create(manifest=Manifest(root=directory, environment=Environment(value=env)))
    await session.start()
    return session


class Driver(RunToEnd):
    name = "openai-agents"
    cancels = False

    def __init__(self, workspace: str, env: dict[str, str], session: Any) -> None:
        super().__init__(workspace)
        self.env, self.session = env, session

    async def run(self, command: Command) -> Ended:
        if command.env:
            raise lacks("a command has no variables of its own")
        words = (command.line,) if command.line is not None else command.argv or ()
        there = await session_in(command.cwd, self.env) if command.cwd else self.session
        try:
            ran = await there.exec(*words, shell=command.line is not None, timeout=command.timeout)
        except ExecTimeoutError:
            return Ended(b"", b"", run_to_end.KILLED)
        except SandboxError as error:
            raise raised(error) from None
        return Ended(ran.stdout, ran.stderr, ran.exit_code if ran.exit_code >= 0 else 128 - ran.exit_code)

    async def get(self, path: str) -> bytes:
        return await self._asked(self._read(path))

    async def _read(self, path: str) -> bytes:
        return bytes((await self.session.read(Path(path))).read())

    async def put(self, path: str, data: bytes) -> None:
        await self._asked(self.session.write(Path(path), io.BytesIO(data)))

    async def list(self, path: str) -> list[Any]:
        found = await self._asked(self.session.ls(path))
        return [
            Entry(each.path, type=each.kind.value, size=each.size) if each.kind.value != "symlink" else Entry(each.path)
            for each in found
        ]

    async def make_dir(self, path: str) -> None:
        await self._asked(self.session.mkdir(path, parents=True))

    async def remove(self, path: str) -> None:
        await self._asked(self.session.rm(path, recursive=True))

    async def _asked(self, work: Any) -> Any:
        try:
            return await work
        except SandboxError as error:
            raise raised(error) from None


async def open_peer(*, workspace: str, env: Any = None, **others: Any) -> Driver:
    no_options(**others)
    given = dict(env or {})
    return Driver(workspace, given, await session_in(workspace, given))
