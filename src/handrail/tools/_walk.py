"""Walk the files below a directory in a stable order, without following links, leaving out what git ignores."""

import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from handrail.contract.driver import FileStat
from handrail.sandbox.sandbox import Sandbox
from handrail.schema.globs import PathGlob

GIT: Final = ".git"
GITIGNORE: Final = ".gitignore"
MAX_GITIGNORE_BYTES: Final = 1 << 20
DIRECTORIES_AT_ONCE: Final = 16
"""Number of directories that are listed concurrently: listing is mostly waiting."""
ENTRIES_PER_TURN: Final = 64
"""Number of entries between two checkpoints: a directory may be large, and its rules many."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of a .gitignore."""

    glob: PathGlob
    anchored: bool
    """Whether the pattern matches the path below its directory, not a name at any depth."""
    negated: bool
    only_directories: bool


IgnoreRules = list[tuple[str, list[IgnorePattern]]]
"""Pairs of a directory, with a trailing slash, and the patterns of its .gitignore; the outermost first."""


async def walk(sandbox: Sandbox, top: str, *, no_ignore: bool) -> AsyncIterator[FileStat]:
    """The files below `top`, a real path. Hidden files are included; with `no_ignore`, so is everything else.

    The rules of the directories above end where a repository begins.
    """
    waiting: list[tuple[str, IgnoreRules]] = [(top, [] if no_ignore else await _above(sandbox, top))]
    while waiting:
        batch, waiting = waiting[-DIRECTORIES_AT_ONCE:][::-1], waiting[:-DIRECTORIES_AT_ONCE]
        listed = await gather([partial(_entries, sandbox, directory) for directory, _ in batch])
        deeper: list[tuple[str, IgnoreRules]] = []
        for (directory, rules), entries in zip(batch, listed, strict=True):
            if not no_ignore:
                rules = await _rules(sandbox, directory, entries, rules)  # noqa: PLW2901 - those of this directory
            for number, entry in enumerate(entries, 1):
                if number % ENTRIES_PER_TURN == 0:
                    await checkpoint()
                if entry.real_path != entry.path or (not no_ignore and _is_ignored(rules, entry)):
                    continue
                if entry.type == "directory":
                    deeper.append((entry.path, rules))
                elif entry.type == "file":
                    yield entry
        waiting.extend(reversed(deeper))


async def gather(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Do all the work concurrently; the answers are in the given order. The first exception cancels the others."""
    answers: dict[int, T] = {}
    failed: list[Exception] = []

    async def ask(number: int, one: Callable[[], Awaitable[T]]) -> None:
        try:
            answers[number] = await one()
        except Exception as error:  # noqa: BLE001 - raised below on its own, not in a group
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
        return []  # it is unreadable, or was removed meanwhile


async def _rules(sandbox: Sandbox, directory: str, entries: list[FileStat], rules: IgnoreRules) -> IgnoreRules:
    paths, slash = {entry.path for entry in entries}, _with_slash(directory)
    rules = [] if slash + GIT in paths else rules
    return [*rules, (slash, await _ignore_file(sandbox, directory))] if slash + GITIGNORE in paths else rules


def _is_ignored(rules: IgnoreRules, entry: FileStat) -> bool:
    is_directory = entry.type == "directory"
    return (is_directory and entry.path.endswith(f"/{GIT}")) or (
        bool(rules) and ignored(rules, entry.path, is_directory)
    )


async def _above(sandbox: Sandbox, top: str) -> IgnoreRules:
    """The rules of the directories above within the same repository, the outermost first."""
    rules: IgnoreRules = []
    directory = top
    while directory != "/" and not await _exists(sandbox, posixpath.join(directory, GIT)):
        directory = posixpath.dirname(directory)
        patterns = await _ignore_file(sandbox, directory)
        if patterns:
            rules.insert(0, (_with_slash(directory), patterns))
    return rules


async def _exists(sandbox: Sandbox, path: str) -> bool:
    try:
        return await sandbox.exists(path)
    except OSError:
        return False


async def _ignore_file(sandbox: Sandbox, directory: str) -> list[IgnorePattern]:
    try:
        return read_ignore(await sandbox.read_bytes(posixpath.join(directory, GITIGNORE), length=MAX_GITIGNORE_BYTES))
    except OSError:
        return []


def relative_to(path: str, top: str) -> str:
    """The path relative to `top`, a directory above it."""
    return path.removeprefix(_with_slash(top))


def _with_slash(directory: str) -> str:
    return directory if directory.endswith("/") else f"{directory}/"


def read_ignore(data: bytes) -> list[IgnorePattern]:
    """The patterns of one .gitignore; malformed lines are skipped."""
    lines = data.decode("utf-8-sig", "surrogateescape").split("\n")
    return [pattern for line in lines if (pattern := _read(line.removesuffix("\r"))) is not None]


def ignored(rules: IgnoreRules, path: str, is_directory: bool) -> bool:
    """Whether git ignores the path: the last matching pattern decides, and inner files come after outer ones."""
    name = posixpath.basename(path)
    for directory, patterns in reversed(rules):
        relative = path[len(directory) :]
        for pattern in reversed(patterns):
            if pattern.only_directories and not is_directory:
                continue
            if pattern.glob.matches(relative if pattern.anchored else name):
                return not pattern.negated
    return False


def _read(line: str) -> IgnorePattern | None:
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
        return IgnorePattern(PathGlob(line), anchored, negated, only_directories)
    except ValueError:
        return None


def _trimmed(line: str) -> str:
    """The line without trailing spaces; an escaped space stays."""
    short = line.rstrip(" ")
    escapes = len(short) - len(short.rstrip("\\"))
    return f"{short} " if len(short) < len(line) and escapes % 2 else short
