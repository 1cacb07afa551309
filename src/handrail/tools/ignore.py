"""Decide which files `.gitignore` leaves out, by git's own rules."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of a .gitignore."""

    regex: re.Pattern[str]
    negated: bool
    only_directories: bool


def read_ignore(text: str) -> list[Pattern]:
    """The patterns of one .gitignore; lines that mean nothing are passed over."""
    patterns = []
    for line in text.splitlines():
        pattern = _read(line)
        if pattern is not None:
            patterns.append(pattern)
    return patterns


def ignored(rules: list[tuple[str, list[Pattern]]], path: str, is_directory: bool) -> bool:
    """Whether the last pattern that fits, from the outermost file to the innermost, leaves the path out.

    `rules` are pairs of a directory (with its final slash) and the patterns of its .gitignore.
    """
    for directory, patterns in reversed(rules):
        relative = path[len(directory) :]
        for pattern in reversed(patterns):
            if (is_directory or not pattern.only_directories) and pattern.regex.fullmatch(relative):
                return not pattern.negated
    return False


def _read(line: str) -> Pattern | None:
    line = re.sub(r"(?<!\\)\s+$", "", line)
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    line = line[1:] if negated else line
    only_directories = line.endswith("/")
    line = line.rstrip("/") if only_directories else line
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    try:
        regex = re.compile(("" if anchored else "(?:.*/)?") + _translate(line), re.DOTALL)
    except re.error:
        return None
    return Pattern(regex, negated, only_directories)


def _translate(glob: str) -> str:
    made, at = [], 0
    while at < len(glob):
        piece, at = _piece(glob, at)
        made.append(piece)
    return "".join(made)


def _piece(glob: str, at: int) -> tuple[str, int]:
    if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
        return "(?:.*/)?", at + 3
    if glob[at:] == "**" and at > 0 and glob[at - 1] == "/":
        return ".+", len(glob)
    char = glob[at]
    if char == "*":
        end = at
        while end < len(glob) and glob[end] == "*":
            end += 1
        return "[^/]*", end
    if char == "?":
        return "[^/]", at + 1
    if char == "\\" and at + 1 < len(glob):
        return re.escape(glob[at + 1]), at + 2
    if char == "[":
        return _class(glob, at)
    return re.escape(char), at + 1


def _class(glob: str, at: int) -> tuple[str, int]:
    begin = at + 2 if glob[at + 1 : at + 2] in ("!", "^") else at + 1
    end = glob.find("]", begin + 1)
    if end < 0:
        return r"\[", at + 1
    negated = "^" if begin == at + 2 else ""
    inner = glob[begin:end].replace("\\", "\\\\").replace("[", r"\[").replace("^", r"\^")
    return f"(?!/)[{negated}{inner}]", end + 1
