"""Match texts and paths against globs, in linear time: those of rules, and those of files as git and ripgrep read them.

The two dialects differ on purpose. In a rule, which guards something, a backslash and an unclosed `[` are literal, so
that every text is a glob and `escape` can write any text as one. In a file glob a backslash escapes, braces list
alternatives, and a malformed glob is an error that the model is told.
"""

import posixpath
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure

SPECIAL: Final = frozenset("*?[")
"""Characters that are not literal in a rule's glob."""
_STARS: Final = re.compile(r"\*+")
Piece = Callable[[str, int], tuple[str, int]]
"""Given a glob and an index: the regular expression of the element there, and the index of the next element."""
POSIX_CLASSES: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": "\t ", "cntrl": "\\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\t\n\x0b\x0c\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
MAX_ALTERNATIVES_COUNT: Final = 200
"""Number of patterns that the braces of one glob may expand to."""
NameTest = Callable[[str], object] | None
"""Whether a name matches one part of a glob; None stands for `**`, any number of directories."""


def glob_matches(glob: str, text: str) -> bool:
    """Whether a text matches: `*` is anything, `?` one character, `[*]` the character itself. Takes linear time."""
    return _text(glob).fullmatch(text) is not None


def path_matches(glob: str, path: str, base: str) -> bool:
    """Whether a path matches; both are relative to `base` and are cleared of `.`, `..` and double slashes."""
    return _path(absolute_glob(glob, base)).fullmatch(absolute(path, base)) is not None


def absolute(path: str, base: str) -> str:
    """The path made absolute and normalised, without looking at any file."""
    made = posixpath.normpath(posixpath.join(base, path))
    return "/" + made.lstrip("/")


def absolute_glob(glob: str, base: str) -> str:
    """The same for a glob; special characters in `base` are literal, and a trailing slash means everything below."""
    return absolute(f"{glob}**" if glob.endswith("/") else glob, escape(base))


def escape(text: str) -> str:
    """The glob that matches exactly this text."""
    return "".join(f"[{char}]" if char in SPECIAL else char for char in text)


def literal(glob: str) -> str | None:
    """The one text that a glob matches, or None when it matches several."""
    plain = re.sub(r"\[([*?\[])\]", "", glob)
    return None if SPECIAL.intersection(plain) else re.sub(r"\[([*?\[])\]", r"\1", glob)


def check_glob(glob: str) -> None:
    """Raise ValueError for a glob that has no meaning."""
    _text(glob)


def between_stars(glob: str, piece: Piece) -> re.Pattern[str]:
    """Compile a glob whose `*` is anything so that it matches in linear time; `piece` reads everything but stars.

    Between two stars the first position where the middle matches is as good as any, so nothing is tried twice.
    """
    parts: list[list[str]] = [[]]
    at = 0
    while at < len(glob):
        if glob[at] == "*":
            at = _STARS.match(glob, at).end()  # type: ignore[union-attr]
            parts.append([])
        else:
            read, at = piece(glob, at)
            parts[-1].append(read)
    first, *middle = ("".join(part) for part in parts)
    last = f".*{middle.pop()}" if middle else ""
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle) + last, re.DOTALL)


@lru_cache(maxsize=1024)
def _text(glob: str) -> re.Pattern[str]:
    return between_stars(glob, _rule_piece)


@lru_cache(maxsize=1024)
def _path(glob: str) -> re.Pattern[str]:
    made, at = [], 0
    while at < len(glob):
        if glob.startswith("/**/", at):
            piece, at = "/(?:.*/)?", at + 4
        elif glob[at:] == "/**":
            piece, at = "(?:/.*)?", len(glob)
        elif glob.startswith("**", at):
            piece, at = ".*", at + 2
        elif glob[at] == "*":
            piece, at = "[^/]*", at + 1
        else:
            one, at = _rule_piece(glob, at)
            piece = f"(?!/){one}" if one[0] in ".[" else one
        made.append(piece)
    return re.compile("".join(made), re.DOTALL)


def _rule_piece(glob: str, at: int) -> tuple[str, int]:
    """The regular expression of the character or class at `at`, and the index after it."""
    if glob[at] == "?":
        return ".", at + 1
    if glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
        return _rule_class(glob[at + 1 : end]), end + 1
    return re.escape(glob[at]), at + 1


def _rule_class(inner: str) -> str:
    negated = inner[0] in "!^" and len(inner) > 1
    made, rest = "", inner[1:] if negated else inner
    while rest:
        if len(rest) > 2 and rest[1] == "-":
            if rest[0] > rest[2]:
                raise ValueError(f"[{inner}] has a range that runs backwards")
            made, rest = f"{made}{re.escape(rest[0])}-{re.escape(rest[2])}", rest[3:]
        else:
            made, rest = made + re.escape(rest[0]), rest[1:]
    return f"[{'^' if negated else ''}{made}]"


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
    return between_stars(glob, _file_piece).fullmatch if re.search(r"[*?\[\\]", glob) else glob.__eq__


def _file_piece(glob: str, at: int) -> tuple[str, int]:
    char = glob[at]
    if char == "?":
        return ".", at + 1
    if char == "[":
        return _file_class(glob, at)
    if char != "\\":
        return re.escape(char), at + 1
    if at + 1 == len(glob):
        raise ValueError("The glob ends in a backslash.")
    return re.escape(glob[at + 1]), at + 2


def _file_class(glob: str, start: int) -> tuple[str, int]:
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
