"""Match texts and paths against globs: in paths `*` stops at a slash and `**` does not."""

import posixpath
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

SPECIAL: Final = frozenset("*?[")
_STARS: Final = re.compile(r"\*+")
Piece = Callable[[str, int], tuple[str, int]]
"""Translator of one element of a glob: the element's regular expression, and the index of the next element."""


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
    return between_stars(glob, _piece)


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
            one, at = _piece(glob, at)
            piece = f"(?!/){one}" if one[0] in ".[" else one
        made.append(piece)
    return re.compile("".join(made), re.DOTALL)


def _piece(glob: str, at: int) -> tuple[str, int]:
    """The regular expression of the character or class at `at`, and the index after it."""
    if glob[at] == "?":
        return ".", at + 1
    if glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
        return _class(glob[at + 1 : end]), end + 1
    return re.escape(glob[at]), at + 1


def _class(inner: str) -> str:
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
