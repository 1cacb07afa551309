"""Match relative paths against globs as git and ripgrep do, without backtracking that a glob could make slow."""

import posixpath
import re
from collections.abc import Callable
from typing import Final

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.policy.patterns import between_stars

POSIX_CLASSES: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": "\t ", "cntrl": "\\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\t\n\x0b\x0c\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
MAX_ALTERNATIVES_COUNT: Final = 200
"""Number of patterns that the braces of one glob may expand to."""
NameTest = Callable[[str], object] | None
"""Whether a name matches one part of a glob; None stands for `**`, any number of directories."""


class PathGlob:
    """A glob for a whole path. `*` and `?` match within a name; `**` matches any number of names.

    A backslash makes the next character literal. Raises ValueError for a malformed glob.
    """

    def __init__(self, glob: str) -> None:
        self._parts: list[NameTest] = [None if part == "**" else _part(part) for part in glob.split("/")]

    def matches(self, path: str) -> bool:
        """Whether the path matches. On a mismatch it resumes at the last `**`: going further back cannot help."""
        parts, names = self._parts, path.split("/")
        at = part_at = 0
        star = mark = -1
        while at < len(names):
            part = parts[part_at] if part_at < len(parts) else _never
            if part is None:
                star, mark, part_at = part_at, at, part_at + 1
                if part_at == len(parts):
                    return True
            elif part(names[at]):
                at, part_at = at + 1, part_at + 1
            elif star >= 0:
                mark += 1
                at, part_at = mark, star + 1
            else:
                return False
        return part_at == len(parts)


def _never(name: str) -> bool:
    return False


def _part(glob: str) -> NameTest:
    return between_stars(glob, _piece).fullmatch if re.search(r"[*?\[\\]", glob) else glob.__eq__


def _piece(glob: str, at: int) -> tuple[str, int]:
    char = glob[at]
    if char == "?":
        return ".", at + 1
    if char == "[":
        return _set(glob, at)
    if char != "\\":
        return re.escape(char), at + 1
    if at + 1 == len(glob):
        raise ValueError("The glob ends in a backslash.")
    return re.escape(glob[at + 1]), at + 2


def _set(glob: str, start: int) -> tuple[str, int]:
    """The regular expression of a `[…]` class; a `]` that comes first in it is literal."""
    negated = glob[start + 1 : start + 2] in ("!", "^")
    at = first = start + 2 if negated else start + 1
    made: list[str] = []
    while at < len(glob) and (glob[at] != "]" or at == first):
        if glob.startswith("[:", at) and (end := glob.find(":]", at)) > 0 and glob[at + 2 : end] in POSIX_CLASSES:
            made.append(POSIX_CLASSES[glob[at + 2 : end]])
            at = end + 2
            continue
        low, at = _member(glob, at)
        high = low
        if glob[at : at + 1] == "-" and glob[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(glob, at + 1)
        if low > high:
            raise ValueError(f"The glob has the range {low}-{high}, which runs backwards.")
        made.append(re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}")
    if at >= len(glob):
        raise ValueError("The glob has a [ without its ]; for a literal [ write [[].")
    return f"[{'^' if negated else ''}{''.join(made)}]", at + 1


def _member(glob: str, at: int) -> tuple[str, int]:
    at += glob[at] == "\\" and at + 1 < len(glob)
    return glob[at], at + 1


class FileGlob:
    """A glob with braces. Without a slash it matches names at any depth; with one, the path below the directory.

    Raises ValueError for a malformed glob.
    """

    def __init__(self, glob: str) -> None:
        self._names: list[PathGlob] = []
        self._paths: list[PathGlob] = []
        for each in expand(glob):
            if "/" in each:
                anchored = posixpath.normpath(each).lstrip("/")
                self._paths.append(PathGlob(f"{anchored}/**" if each.endswith("/") else anchored))
            else:
                self._names.append(PathGlob(each))

    def matches(self, relative: str) -> bool:
        name = relative.rpartition("/")[2]
        return any(glob.matches(name) for glob in self._names) or any(glob.matches(relative) for glob in self._paths)


def expand(glob: str) -> list[str]:
    """Expand `a{b,c{d,e}}` to `ab`, `acd`, `ace`. Raises ValueError for more than MAX_ALTERNATIVES_COUNT patterns."""
    done: list[str] = []
    waiting = [glob]
    while waiting:
        current = waiting.pop()
        braces = _innermost(current)
        if braces is None:
            done.append(current)
        else:
            begin, end = braces
            waiting.extend(current[:begin] + part + current[end + 1 :] for part in current[begin + 1 : end].split(","))
        if len(done) + len(waiting) > MAX_ALTERNATIVES_COUNT:
            raise ValueError(f"The braces expand to more than {MAX_ALTERNATIVES_COUNT} patterns.")
    return sorted(set(done))


def _innermost(glob: str) -> tuple[int, int] | None:
    """The first pair of braces that holds a comma and no other braces; escaped braces do not count."""
    begin = -1
    for at, char in enumerate(glob):
        if at and glob[at - 1] == "\\":
            continue
        if char == "{":
            begin = at
        elif char == "}" and begin >= 0:
            if "," in glob[begin:at]:
                return begin, at
            begin = -1
    return None


def file_glob(pattern: str, field: str) -> FileGlob:
    """Compile a glob that the model sent. Raises ToolFailed on the field it came from."""
    if not pattern.strip():
        raise ToolFailed(Failure("invalid_args", "The pattern is empty.", field=field, expected="such as **/*.py"))
    if ".." in pattern.split("/"):
        message = f"A {field} cannot contain `..`: name the directory to search in `path`, and send the rest here."
        raise ToolFailed(Failure("invalid_args", message, field=field, expected="such as **/*.py"))
    try:
        return FileGlob(pattern.removeprefix("./"))
    except ValueError as error:
        raise ToolFailed(Failure("invalid_args", str(error), field=field)) from None
