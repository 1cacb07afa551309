"""Agno's Workspace toolkit as a Driver: commands, files and errors are texts for a model."""

import json
import re
from typing import Any, NoReturn

from agno.tools.workspace import Workspace

from handrail import Command
from tests.peers import run_to_end
from tests.peers.run_to_end import Ended, Entry, RunToEnd, lacks, no_options

ONE_TEXT = "stdout is given when a command succeeds, stderr when it fails, and line ends are not"
NAMED = (
    run_to_end.EVERY, run_to_end.TEXT_ONLY, run_to_end.UNCLOSED, run_to_end.ONE_DIRECTORY,
    run_to_end.RELATIVE,
    {ONE_TEXT: (
        "the two streams are kept apart", "megabytes on both streams at once are complete",
        "megabytes on stderr alone do not block", "a last line without its end is kept", "an argv needs no shell",
        "a write through a link changes what it leads to", "commands and file operations see the same files",
        "a command that has a file open keeps the old content",
    )},
)  # fmt: skip
ALL = 10**9
"""Lines of output."""
ERRORS = {
    "file not found": FileNotFoundError, "escapes workspace root": PermissionError, "No such file": FileNotFoundError,
    "Is a directory": IsADirectoryError, "not a file": IsADirectoryError, "Not a directory": NotADirectoryError,
    "Permission denied": PermissionError, "File exists": NotADirectoryError, "null byte": ValueError,
}  # fmt: skip


def refused(text: str) -> NoReturn:
    """Raise the error that its text tells of."""
    for words, error in ERRORS.items():
        if words in text:
            raise error(text)
    if "codec" in text:
        raise lacks("it reads and writes text")
    raise lacks("one answer stands for several errors")


class Driver(RunToEnd):
    name = "agno"
    cancels = False
    withholds = ONE_TEXT

    def __init__(self, workspace: str) -> None:
        super().__init__(workspace)
        self.backend = Workspace(workspace, exclude_patterns=[])

    async def run(self, command: Command) -> Ended:
        if command.env:
            raise lacks("a command has no variables of its own")
        words = ["bash", "-o", "pipefail", "-c", command.line] if command.line is not None else list(command.argv or ())
        if words and words[0].endswith("/probe"):
            words = ["sh", "-c", '"$@"; true', "sh", *words]  # it fails where it is refused, and its output is wanted
        there = Workspace(command.cwd or self.workspace, exclude_patterns=[])
        text = await there.arun_command(words, tail=ALL, timeout=command.timeout or 120)
        if text.startswith("Error running command"):
            refused(text)
        if found := re.match(r"Error \(exit (-?\d+)\): ", text):
            code = int(found[1])
            return Ended(None, text[found.end() :].encode(), code if code >= 0 else 128 - code)
        if text.startswith("Error: command timed out"):
            return Ended(b"", b"", run_to_end.KILLED)
        return Ended(f"{text}\n".encode() if text else b"", b"", 0)

    async def get(self, path: str) -> bytes:
        text = await self.backend.aread_file(path)
        if text.startswith("Error"):
            refused(text)
        lines = [line.partition("\t")[2] for line in text.split("\n")] if text else []
        return "\n".join(lines).encode()

    async def put(self, path: str, data: bytes) -> None:
        try:
            content = data.decode()
        except UnicodeDecodeError:
            raise lacks("it reads and writes text") from None
        text = await self.backend.awrite_file(path, content)
        if text.startswith("Error"):
            refused(text)

    async def list(self, path: str) -> list[Any]:
        text = await self.backend.alist_files(path)
        if text.startswith("Error: not a directory"):
            raise lacks("one answer stands for several errors")
        if text.startswith("Error"):
            refused(text)
        files = json.loads(text)["files"]
        known = {"dir": {"type": "directory"}}
        return [Entry(f"{self.backend.root}/{each['path']}", **known.get(each["type"], {})) for each in files]

    async def remove(self, path: str) -> None:
        text = await self.backend.adelete_file(path)
        if text.startswith("Error: path is a directory"):
            raise lacks("it removes files alone")
        if text.startswith("Error"):
            refused(text)


async def open_peer(*, workspace: str, **others: Any) -> Driver:
    no_options(**others)
    return Driver(workspace)
