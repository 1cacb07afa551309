"""pydantic-ai's LocalWorkspaceBackend as a Driver."""

from typing import Any

from pydantic_ai.workspaces import LocalWorkspaceBackend, WorkspaceTimeoutError

from handrail import Command
from tests.peers import run_to_end
from tests.peers.run_to_end import Ended, Entry, RunToEnd, no_options

NAMED = (
    run_to_end.EVERY, run_to_end.SHELL, run_to_end.TEXT_ONLY, run_to_end.UNCLOSED, run_to_end.BY_CODE,
    run_to_end.ONE_DIRECTORY,
)  # fmt: skip


class Driver(RunToEnd):
    name = "pydantic-ai"

    def __init__(self, workspace: str, env: dict[str, str]) -> None:
        super().__init__(workspace)
        self.env = env
        self.backend = LocalWorkspaceBackend(workspace, env=env)

    async def run(self, command: Command) -> Ended:
        there = LocalWorkspaceBackend(command.cwd or self.workspace, env=self.env)
        words, shell = (command.line, True) if command.line is not None else (command.argv, False)
        try:
            ran = await there.run(words or (), shell=shell, env=dict(command.env), timeout=command.timeout)
        except WorkspaceTimeoutError as over:
            return Ended(over.stdout.encode(), over.stderr.encode(), run_to_end.KILLED)
        return Ended(ran.stdout.encode(), ran.stderr.encode(), ran.exit_code)

    async def get(self, path: str) -> bytes:
        return await self.backend.read_bytes(path)

    async def put(self, path: str, data: bytes) -> None:
        await self.backend.write_bytes(path, data)

    async def stat(self, path: str) -> Any:
        return await self._entry(await self.backend.stat(path), path)

    async def list(self, path: str) -> list[Any]:
        return [await self._entry(each, each.path) for each in await self.backend.list_dir(path)]

    async def _entry(self, told: Any, path: str) -> Entry:
        known: dict[str, Any] = {"type": "directory"} if told.is_dir else {}
        if told.size is not None:
            known["size"] = told.size
        return Entry(path, real_path=await self.backend.realpath(path), **known)

    async def make_dir(self, path: str) -> None:
        await self.backend.make_dir(path)

    async def remove(self, path: str) -> None:
        await self.backend.remove(path)


async def open_peer(*, workspace: str, env: Any = None, **others: Any) -> Driver:
    no_options(**others)
    return Driver(workspace, dict(env or {}))
