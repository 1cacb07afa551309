"""deepagents' LocalShellBackend as a Driver: commands run in a thread, and every answer is one text."""

import shlex
from typing import Any, NoReturn

from deepagents.backends import LocalShellBackend

from handrail import Command
from tests.peers import run_to_end
from tests.peers.run_to_end import Ended, Entry, RunToEnd, in_thread, lacks, no_options

ONE_TEXT = "both streams are one text, to which it adds words of its own"
NAMED = (
    run_to_end.EVERY, run_to_end.SHELL, run_to_end.TEXT_ONLY, run_to_end.UNCLOSED, run_to_end.BY_CODE,
    run_to_end.ONE_DIRECTORY, run_to_end.RELATIVE,
    {ONE_TEXT: (
        "the two streams are kept apart", "megabytes on both streams at once are complete",
        "megabytes on stderr alone do not block", "an ended line may be silent",
    )},
    {"it takes lines for a shell alone": (
        "an argv needs no shell", "an empty argv is ValueError", "NUL in an argument is ValueError",
    )},
)  # fmt: skip
ERRORS = {
    "file_not_found": FileNotFoundError, "permission_denied": PermissionError, "is_directory": IsADirectoryError,
}  # fmt: skip
SILENT = "<no output>"


def refused(error: str, path: str) -> NoReturn:
    """Raise what its code stands for; one code stands for several."""
    if "not found" in error or "path_not_found" in error:
        raise FileNotFoundError(2, error, path)
    if "not_a_directory" in error:
        raise NotADirectoryError(20, error, path)
    if error not in ERRORS:
        raise lacks("one answer stands for several errors")
    raise ERRORS[error](1, error, path)


class Driver(RunToEnd):
    name = "deepagents"
    cancels = False

    def __init__(self, workspace: str, env: dict[str, str]) -> None:
        super().__init__(workspace)
        self.env = {"PATH": "/usr/bin:/bin", **env}
        self.backend = LocalShellBackend(workspace, virtual_mode=False, env=self.env)

    async def run(self, command: Command) -> Ended:
        if command.env:
            raise lacks("a command has no variables of its own")
        line = command.line if command.line is not None else f"exec {shlex.join(command.argv or ())}"
        there = LocalShellBackend(command.cwd or self.workspace, virtual_mode=False, env=self.env)
        ran = await in_thread(lambda: there.execute(line, timeout=command.timeout))
        output = ran.output
        if ran.exit_code:
            output = output.removesuffix(f"\n\nExit code: {ran.exit_code}")
            if output != SILENT and not output.startswith("[stderr]"):
                output += "\n"  # it takes the last one away
        code = ran.exit_code if ran.exit_code >= 0 else 128 - ran.exit_code
        return Ended(b"" if output == SILENT else output.encode(), b"", code)

    async def get(self, path: str) -> bytes:
        [got] = await in_thread(self.backend.download_files, [path])
        return refused(got.error, path) if got.error else got.content

    async def put(self, path: str, data: bytes) -> None:
        [got] = await in_thread(self.backend.upload_files, [(path, data)])
        if got.error:
            refused(got.error, path)

    async def list(self, path: str) -> list[Any]:
        got = await in_thread(self.backend.ls, path)
        if got.entries is None:
            refused(got.error, path)
        return [Entry(each["path"].rstrip("/"), **_known(each)) for each in got.entries]

    async def remove(self, path: str) -> None:
        got = await in_thread(self.backend.delete, path)
        if got.error:
            refused(got.error, path)


def _known(told: Any) -> dict[str, Any]:
    return {"type": "directory"} if told.get("is_dir") else {"size": told["size"]} if "size" in told else {}


async def open_peer(*, workspace: str, env: Any = None, **others: Any) -> Driver:
    no_options(**others)
    return Driver(workspace, dict(env or {}))
