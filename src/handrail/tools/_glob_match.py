"""Match relative paths against globs, in time that no glob can blow up."""

import posixpath
import re
from collections.abc import Callable
from typing import Final

from handrail.policy.glob import between_stars

POSIX: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": "\t ", "cntrl": "\\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\t\n\x0b\x0c\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
MOST: Final = 200
"""Alternatives that braces may make."""
Part = Callable[[str], object] | None
"""Whether one name fits; None stands for `**`, any number of directories."""


class Wild:
    """`*` and `?` stay inside a name, `**` between slashes is any number of names, and at the end everything below.

    What follows a backslash stands for itself. Raises ValueError for a glob that has no meaning.
    """

    def __init__(self, glob: str) -> None:
        self._parts: list[Part] = [None if part == "**" else _part(part) for part in glob.split("/")]

    def matches(self, path: str) -> bool:
        """Goes back no further than to the last `**`, for nothing before it can be gained by that."""
        parts, names = self._parts, path.split("/")
        at = place = 0
        star = mark = -1
        while at < len(names):
            part = parts[place] if place < len(parts) else _nothing
            if part is None:
                star, mark, place = place, at, place + 1
                if place == len(parts):
                    return True
            elif part(names[at]):
                at, place = at + 1, place + 1
            elif star >= 0:
                mark += 1
                at, place = mark, star + 1
            else:
                return False
        return place == len(parts)


def _nothing(name: str) -> bool:
    return False


def _part(glob: str) -> Part:
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
    """`[…]` as a regular expression; the first `]` in it stands for itself."""
    negated = glob[start + 1 : start + 2] in ("!", "^")
    at = first = start + 2 if negated else start + 1
    made: list[str] = []
    while at < len(glob) and (glob[at] != "]" or at == first):
        if glob.startswith("[:", at) and (end := glob.find(":]", at)) > 0 and glob[at + 2 : end] in POSIX:
            made.append(POSIX[glob[at + 2 : end]])
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
        raise ValueError("The glob has a [ that is never closed; for the character itself write [[].")
    return f"[{'^' if negated else ''}{''.join(made)}]", at + 1


def _member(glob: str, at: int) -> tuple[str, int]:
    at += glob[at] == "\\" and at + 1 < len(glob)
    return glob[at], at + 1


class FileGlob:
    """A glob without a slash means the name, at any depth; with one, the path below the directory.

    Raises ValueError for one that has no meaning.
    """

    def __init__(self, glob: str) -> None:
        self._names: list[Wild] = []
        self._paths: list[Wild] = []
        for each in expand(glob):
            if "/" in each:
                anchored = posixpath.normpath(each).lstrip("/")
                self._paths.append(Wild(f"{anchored}/**" if each.endswith("/") else anchored))
            else:
                self._names.append(Wild(each))

    def matches(self, relative: str) -> bool:
        name = relative.rpartition("/")[2]
        return any(glob.matches(name) for glob in self._names) or any(glob.matches(relative) for glob in self._paths)


def expand(glob: str) -> list[str]:
    """`a{b,c{d,e}}` as `ab`, `acd`, `ace`. Raises ValueError for more than MOST of them."""
    done: list[str] = []
    waiting = [glob]
    while waiting:
        current = waiting.pop()
        found = _innermost(current)
        if found is None:
            done.append(current)
        else:
            begin, end = found
            waiting.extend(current[:begin] + part + current[end + 1 :] for part in current[begin + 1 : end].split(","))
        if len(done) + len(waiting) > MOST:
            raise ValueError(f"The braces make more than {MOST} patterns.")
    return sorted(set(done))


def _innermost(glob: str) -> tuple[int, int] | None:
    """The first pair of braces that holds a comma and no other braces; what follows a backslash is no brace."""
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
