"""Walk the files below a directory in a stable order, leaving out what git ignores, following no links."""

import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from handrail.contract.driver import FileStat
from handrail.sandbox.sandbox import Sandbox
from handrail.tools._glob_match import Wild

GIT: Final = ".git"
GITIGNORE: Final = ".gitignore"
LARGEST_IGNORE: Final = 1 << 20
TOGETHER: Final = 16
"""Directories that are asked for at once: most of the time is waiting."""
BREATH: Final = 64
"""Entries after which others get a turn: a directory may be large, and its rules many."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of a .gitignore."""

    wild: Wild
    anchored: bool
    """Whether it means the path below its directory, not the name at any depth."""
    negated: bool
    only_directories: bool


Rules = list[tuple[str, list[Pattern]]]
"""Pairs of a directory, with its final slash, and the patterns of its .gitignore; the outermost first."""


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


def read_ignore(data: bytes) -> list[Pattern]:
    """The patterns of one .gitignore; lines that mean nothing are passed over."""
    lines = data.decode("utf-8-sig", "surrogateescape").split("\n")
    return [pattern for line in lines if (pattern := _read(line.removesuffix("\r"))) is not None]


def ignored(rules: Rules, path: str, is_directory: bool) -> bool:
    """Whether the last pattern that fits, from the outermost file to the innermost, leaves the path out."""
    name = posixpath.basename(path)
    for directory, patterns in reversed(rules):
        relative = path[len(directory) :]
        for pattern in reversed(patterns):
            if pattern.only_directories and not is_directory:
                continue
            if pattern.wild.matches(relative if pattern.anchored else name):
                return not pattern.negated
    return False


def _read(line: str) -> Pattern | None:
    line = _trimmed(line)
    if line.startswith("#"):
        return None
    negated = line.startswith("!")
    line = line.removeprefix("!")
    only_directories = line.endswith("/")
    line = line.removesuffix("/")
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    try:
        return Pattern(Wild(line), anchored, negated, only_directories)
    except ValueError:
        return None


def _trimmed(line: str) -> str:
    """Without the spaces at its end; one behind a backslash stays, unless that is itself behind one."""
    short = line.rstrip(" ")
    escapes = len(short) - len(short.rstrip("\\"))
    return f"{short} " if len(short) < len(line) and escapes % 2 else short
