"""Match relative paths against a file glob with `**` and braces, as shells and ripgrep do."""

import posixpath
from typing import Final

from handrail.tools.wild import Wild

MOST: Final = 200
"""Alternatives that braces may make."""


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
