"""A Driver over a backend that runs a command to its end and then gives its output.

What the backend's API has no word for raises NotTried, and its reason is kept in `LACKS`: it is not counted as broken.
The kit's own tools are no part of the backend: the directory of a check, and the program that makes attempts.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
import anyio.lowlevel

from handrail import Chunk, Command, Feature, FileStat
from handrail.testing.conformance import NotTried

LACKS: Final[set[str]] = set()
"""What was found that an API cannot express."""
AT_THE_END: Final = "it gives the output when a command has ended"
TEXT: Final = "it gives the output as text"
NOT_CLOSED: Final = "it is not closed"
NO_INPUT: Final = "a running command takes no input"
NO_DIRECTORY: Final = "a command starts in the one directory of its backend"
IN_ONE_CALL: Final = "a command is started and waited for in one call: an exit code tells that it could not start"
EVERY: Final = {
    AT_THE_END: (
        "stdout is given while the command runs", "stderr is given while the command runs",
        "a command waits for its reader", "what was printed before a kill is kept",
        "silence ends a tree and keeps its output", "too much output ends a tree",
        "a killed command that nobody read ends",
    ),
    "a command is started and waited for in one call": ("a cancelled start leaves nothing running",),
    "there is one way to end a command": (
        "TERM ends a child", "TERM ends children in the background", "TERM ends a child in its own session",
        "TERM ends a stopped child", "term is not kill",
    ),
    NO_INPUT: ("input that was not announced is a broken pipe",),
}  # fmt: skip
"""Of every backend that runs commands to their end: what it cannot express, and the checks that would ask for it."""
SHELL: Final = {"its shell is sh": ("in bash a line fails when a part of its pipeline fails",)}
TEXT_ONLY: Final = {TEXT: ("NUL and bytes that are not UTF-8 are kept",)}
UNCLOSED: Final = {NOT_CLOSED: ("wait raises when the sandbox is closed",)}
BY_CODE: Final = {
    IN_ONE_CALL: ("a missing program is FileNotFoundError", "a file that is not a program is PermissionError")
}
ONE_DIRECTORY: Final = {
    NO_DIRECTORY: (
        "a missing directory is FileNotFoundError", "a directory that is a file is NotADirectoryError",
        "a relative directory is ValueError",
    )
}  # fmt: skip
RELATIVE: Final = {
    "a path may be relative": tuple(
        f"{method} of a relative path is ValueError"
        for method in ("read", "write", "stat", "list", "make_dir", "remove")
    )
}
KILLED: Final = 137
BY_ITSELF: Final = 3.0
"""Seconds in which a command ends that waits for nothing."""
AT_ONCE: Final = 0.3
"""Seconds in which a backend refuses a command that it cannot start."""


def lacks(what: str) -> NotTried:
    """Raise what this returns where the API cannot express what a check asks for."""
    LACKS.add(what)
    return NotTried(what)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a backend gives for a command."""

    stdout: bytes | None
    """None where it is not given."""
    stderr: bytes
    code: int


class Entry:
    """What a backend tells of a file; what it does not tell cannot be asked."""

    def __init__(self, path: str, **told: object) -> None:
        self.path = path
        self.name = path.rstrip("/").rpartition("/")[2]
        vars(self).update(told)

    def __getattr__(self, name: str) -> NoReturn:
        raise lacks(f"it does not tell the {name} of a file")


class Running:
    """A command in a task: it can be ended only in the way that the backend has for it."""

    pid: int | None = None

    def __init__(self, driver: "RunToEnd", command: Command, task: "asyncio.Task[Ended]") -> None:
        self.id = str(id(self))
        self._driver, self._command, self._task = driver, command, task
        self._killed = False

    async def output(self) -> AsyncIterator[Chunk]:
        ended = await self._ended()
        if ended.stdout is None:
            raise lacks(self._driver.withholds)
        if ended.stdout:
            yield Chunk("stdout", ended.stdout)
        if ended.stderr:
            yield Chunk("stderr", ended.stderr)

    async def send(self, data: bytes | None) -> None:
        raise lacks(NO_INPUT)

    async def wait(self) -> int:
        return (await self._ended()).code

    async def signal(self, name: str) -> None:
        if self._task.done():
            return
        if self._command.timeout is not None:
            await asyncio.wait([self._task])  # the backend has a time limit of its own
        elif self._driver.cancels:
            self._killed = True
            self._task.cancel()
            await asyncio.wait([self._task])
        elif not (await asyncio.wait([self._task], timeout=BY_ITSELF))[0]:
            raise lacks("a running command cannot be ended")

    async def _ended(self) -> Ended:
        await asyncio.wait([self._task])
        if self._task.cancelled() or self._killed:
            return Ended(b"", b"", KILLED)
        return self._task.result()


class RunToEnd:
    """Subclasses say how the backend runs a command, and which of the file operations it has."""

    name = "peer"
    cancels = True
    """Whether a command ends when the call that runs it is cancelled."""
    withholds = ""
    """When the output is not given."""
    features: frozenset[Feature] = frozenset({"files", "exec"})

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace

    async def run(self, command: Command) -> Ended:
        raise NotImplementedError

    async def start(self, command: Command) -> Running:
        if command.input:
            raise lacks(NO_INPUT)
        if (command.line is None) == (command.argv is None):
            raise lacks("it takes one command")
        task = asyncio.ensure_future(self.run(command))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # not all are asked
        running = Running(self, command, task)
        await asyncio.wait([task], timeout=AT_ONCE)
        if task.done() and isinstance(task.exception(), OSError | ValueError | NotTried):
            task.result()
        return running

    async def make_dir(self, path: str) -> None:
        if not self.made_for_a_check(path):
            raise lacks("it makes no directories")

    def made_for_a_check(self, path: str) -> bool:
        """Whether it is the kit's own directory; then it is made."""
        if os.path.dirname(path) != self.workspace or not os.path.basename(path).startswith("conformance-"):
            return False
        os.makedirs(path, exist_ok=True)
        return True

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if os.path.basename(path) == "probe":  # the kit's program
            Path(path).write_bytes(data)
        else:
            await self.put(path, data)
        if mode is not None:
            os.chmod(path, mode)

    async def put(self, path: str, data: bytes) -> None:
        raise NotImplementedError

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        if start or length is not None:
            raise lacks("it reads whole files")
        return await self.get(path)

    async def get(self, path: str) -> bytes:
        raise NotImplementedError

    async def stat(self, path: str) -> FileStat:
        raise lacks("it tells nothing of one path")

    async def list(self, path: str) -> list[Any]:
        raise lacks("it lists no directory")

    async def remove(self, path: str) -> None:
        raise lacks("it removes nothing")

    async def close(self) -> None:
        raise lacks(NOT_CLOSED)


def no_options(**given: object) -> None:
    """For an opener: these options of a sandbox are not there."""
    for name, value in given.items():
        if value:
            raise lacks(f"it has no {name}")


async def in_thread(work: Any, *args: object) -> Any:
    """For a backend without async methods. What was cancelled goes on."""
    await anyio.lowlevel.checkpoint()
    return await asyncio.get_running_loop().run_in_executor(None, lambda: work(*args))
