"""Decide which files `.gitignore` leaves out, by git's own rules, in time that no pattern can blow up."""

import posixpath
from dataclasses import dataclass

from handrail.tools.wild import Wild


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
