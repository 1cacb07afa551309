"""Walk the files below a directory in a stable order, leaving out what git ignores, following no links."""

import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from handrail.contract.driver import FileStat
from handrail.sandbox.sandbox import Sandbox
from handrail.tools.ignore import Pattern, Rules, ignored, read_ignore

GIT: Final = ".git"
GITIGNORE: Final = ".gitignore"
LARGEST_IGNORE: Final = 1 << 20
TOGETHER: Final = 16
"""Directories that are asked for at once: most of the time is waiting."""
BREATH: Final = 64
"""Entries after which others get a turn: a directory may be large, and its rules many."""

T = TypeVar("T")


async def walk(sandbox: Sandbox, top: str, *, no_ignore: bool) -> AsyncIterator[FileStat]:
    """The files below `top` (a real path). Hidden ones count; those in `.git` do not, unless all do.

    Where a repository begins, the rules from above it end.
    """
    waiting: list[tuple[str, Rules]] = [(top, [] if no_ignore else await _above(sandbox, top))]
    while waiting:
        taken, waiting = waiting[-TOGETHER:][::-1], waiting[:-TOGETHER]
        listed = await together([partial(_entries, sandbox, directory) for directory, _ in taken])
        deeper: list[tuple[str, Rules]] = []
        for (directory, rules), entries in zip(taken, listed, strict=True):
            if not no_ignore:
                rules = await _rules(sandbox, directory, entries, rules)  # noqa: PLW2901 - those of this directory
            for number, entry in enumerate(entries, 1):
                if number % BREATH == 0:
                    await checkpoint()
                if entry.real_path != entry.path or (not no_ignore and _left_out(rules, entry)):
                    continue
                if entry.type == "directory":
                    deeper.append((entry.path, rules))
                elif entry.type == "file":
                    yield entry
        waiting.extend(reversed(deeper))


async def together(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The answers in the order asked, each waiting for its own. If one raises, that is raised and the others end."""
    answers: dict[int, T] = {}
    failed: list[Exception] = []

    async def ask(number: int, one: Callable[[], Awaitable[T]]) -> None:
        try:
            answers[number] = await one()
        except Exception as error:  # noqa: BLE001 - raised below as it is, not in a group
            failed.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for number, one in enumerate(work):
            group.start_soon(ask, number, one)
    if failed:
        raise failed[0]
    return [answers[number] for number in range(len(work))]


async def _entries(sandbox: Sandbox, directory: str) -> list[FileStat]:
    try:
        return await sandbox.list(directory)
    except OSError:
        return []  # it may not be read, or has gone meanwhile


async def _rules(sandbox: Sandbox, directory: str, entries: list[FileStat], rules: Rules) -> Rules:
    paths, slash = {entry.path for entry in entries}, _slash(directory)
    rules = [] if slash + GIT in paths else rules
    return [*rules, (slash, await _ignore_file(sandbox, directory))] if slash + GITIGNORE in paths else rules


def _left_out(rules: Rules, entry: FileStat) -> bool:
    is_directory = entry.type == "directory"
    return (is_directory and entry.path.endswith(f"/{GIT}")) or (
        bool(rules) and ignored(rules, entry.path, is_directory)
    )


async def _above(sandbox: Sandbox, top: str) -> Rules:
    """The rules of the directories above, from the outermost one of the same repository in."""
    rules: Rules = []
    directory = top
    while directory != "/" and not await _is_there(sandbox, posixpath.join(directory, GIT)):
        directory = posixpath.dirname(directory)
        patterns = await _ignore_file(sandbox, directory)
        if patterns:
            rules.insert(0, (_slash(directory), patterns))
    return rules


async def _is_there(sandbox: Sandbox, path: str) -> bool:
    try:
        return await sandbox.exists(path)
    except OSError:
        return False


async def _ignore_file(sandbox: Sandbox, directory: str) -> list[Pattern]:
    try:
        return read_ignore(await sandbox.read_bytes(posixpath.join(directory, GITIGNORE), length=LARGEST_IGNORE))
    except OSError:
        return []


def below(path: str, top: str) -> str:
    """The path as it is seen from `top`, above it."""
    return path.removeprefix(_slash(top))


def _slash(directory: str) -> str:
    return directory if directory.endswith("/") else f"{directory}/"
