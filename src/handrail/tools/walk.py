"""Walk the files below a directory in a stable order, leaving out what git ignores, following no links."""

import posixpath
from collections.abc import AsyncIterator
from typing import Final

from handrail.contract.driver import FileStat
from handrail.sandbox.sandbox import Sandbox
from handrail.tools.ignore import Pattern, ignored, read_ignore

GITIGNORE: Final = ".gitignore"
LARGEST_IGNORE: Final = 1 << 20
Rules = list[tuple[str, list[Pattern]]]


async def walk(sandbox: Sandbox, top: str, *, no_ignore: bool) -> AsyncIterator[FileStat]:
    """The files below `top` (a real path), sorted by path. Hidden files count; `.git` does not, unless all do."""
    rules = [] if no_ignore else await _above(sandbox, top)
    waiting: list[tuple[str, Rules]] = [(top, rules)]
    while waiting:
        directory, rules = waiting.pop()
        try:
            entries = await sandbox.list(directory)
        except OSError:
            continue  # it may not be read, or has gone meanwhile
        if not no_ignore and any(posixpath.basename(entry.path) == GITIGNORE for entry in entries):
            rules = [*rules, (_slash(directory), await _ignore_file(sandbox, posixpath.join(directory, GITIGNORE)))]
        below: list[tuple[str, Rules]] = []
        for entry in entries:
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
    return (is_directory and name == ".git") or ignored(rules, path, is_directory)


async def _above(sandbox: Sandbox, top: str) -> Rules:
    """The rules of the directories above, from the outermost one in."""
    rules: Rules = []
    directory = posixpath.dirname(top)
    while True:
        patterns = await _ignore_file(sandbox, posixpath.join(directory, GITIGNORE))
        if patterns:
            rules.insert(0, (_slash(directory), patterns))
        if directory == "/":
            return rules
        directory = posixpath.dirname(directory)


async def _ignore_file(sandbox: Sandbox, path: str) -> list[Pattern]:
    try:
        data = await sandbox.read_bytes(path, length=LARGEST_IGNORE)
    except OSError:
        return []
    return read_ignore(data.decode("utf-8", "replace"))


def _slash(directory: str) -> str:
    return directory if directory.endswith("/") else f"{directory}/"
