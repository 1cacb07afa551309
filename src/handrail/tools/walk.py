"""Walk the files below a directory in a stable order, leaving out what git ignores, following no links."""

import posixpath
from collections.abc import AsyncIterator
from typing import Final

from anyio.lowlevel import checkpoint

from handrail.contract.driver import FileStat
from handrail.sandbox.sandbox import Sandbox
from handrail.tools.ignore import Pattern, Rules, ignored, read_ignore

GIT: Final = ".git"
GITIGNORE: Final = ".gitignore"
LARGEST_IGNORE: Final = 1 << 20
BREATH: Final = 64
"""Entries after which others get a turn: a directory may be large, and its rules many."""


async def walk(sandbox: Sandbox, top: str, *, no_ignore: bool) -> AsyncIterator[FileStat]:
    """The files below `top` (a real path). Hidden ones count; those in `.git` do not, unless all do.

    Where a repository begins, the rules from above it end.
    """
    rules = [] if no_ignore else await _above(sandbox, top)
    waiting: list[tuple[str, Rules]] = [(top, rules)]
    while waiting:
        directory, rules = waiting.pop()
        try:
            entries = await sandbox.list(directory)
        except OSError:
            continue  # it may not be read, or has gone meanwhile
        if not no_ignore:
            names = {posixpath.basename(entry.path) for entry in entries}
            rules = [] if GIT in names else rules
            if GITIGNORE in names:
                rules = [*rules, (_slash(directory), await _ignore_file(sandbox, directory))]
        below: list[tuple[str, Rules]] = []
        for number, entry in enumerate(entries, 1):
            if number % BREATH == 0:
                await checkpoint()
            name = posixpath.basename(entry.path)
            path = posixpath.join(directory, name)
            is_directory = entry.type == "directory"
            if entry.real_path != path or (not no_ignore and _left_out(rules, path, name, is_directory)):
                continue
            if is_directory:
                below.append((path, rules))
            elif entry.type == "file":
                yield entry
        waiting.extend(reversed(below))


def _left_out(rules: Rules, path: str, name: str, is_directory: bool) -> bool:
    return (is_directory and name == GIT) or ignored(rules, path, is_directory)


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


def _slash(directory: str) -> str:
    return directory if directory.endswith("/") else f"{directory}/"
