"""Inspect's sandbox `local` as a Driver: it has commands, read_file and write_file."""

import os
from typing import Any

from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

from handrail import Command
from tests.peers import run_to_end
from tests.peers.run_to_end import Ended, Entry, RunToEnd, lacks, no_options

NAMED = (run_to_end.EVERY, run_to_end.TEXT_ONLY, run_to_end.UNCLOSED, run_to_end.RELATIVE)


class Driver(RunToEnd):
    name = "inspect"

    def __init__(self, workspace: str) -> None:
        super().__init__(workspace)
        self.backend = LocalSandboxEnvironment()

    async def run(self, command: Command) -> Ended:
        words = ["bash", "-o", "pipefail", "-c", command.line] if command.line is not None else list(command.argv or ())
        cwd = command.cwd or self.workspace
        try:
            ran = await self.backend.exec(
                words, cwd=cwd, env=dict(command.env), timeout=command.timeout, concurrency=False
            )
        except TimeoutError:
            return Ended(b"", b"", run_to_end.KILLED)
        code = ran.returncode if ran.returncode >= 0 else 128 - ran.returncode
        return Ended(ran.stdout.encode(), ran.stderr.encode(), code)

    async def get(self, path: str) -> bytes:
        return await self.backend.read_file(path, text=False)

    async def put(self, path: str, data: bytes) -> None:
        await self.backend.write_file(path, data)

    async def list(self, path: str) -> list[Any]:
        """For the kit, which looks for names; by a command, as its users do."""
        ran = await self.backend.exec(["ls", "-A", "--zero", "--", path])
        if ran.returncode or not os.path.isdir(path):
            raise lacks("it lists no directory")
        return [Entry(f"{path.rstrip('/')}/{name}") for name in ran.stdout.split("\0") if name]


async def open_peer(*, workspace: str, **others: Any) -> Driver:
    no_options(**others)
    return Driver(workspace)
