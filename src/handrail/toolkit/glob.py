"""Match texts and paths against globs, the same way everywhere: `*` stops at a slash in paths, `**` does not."""

import posixpath
import re
from functools import lru_cache
from typing import Final

SPECIAL: Final = frozenset("*?[")


def glob_matches(glob: str, text: str) -> bool:
    """Text against a glob: `*` is anything, `?` one character, `[*]` the character itself."""
    return _compile(glob, False).fullmatch(text) is not None


def path_matches(glob: str, path: str, base: str) -> bool:
    """A path against a glob; both are taken from `base` when relative, and cleared of `.`, `..` and double slashes."""
    return _compile(absolute(glob, base), True).fullmatch(absolute(path, base)) is not None


def absolute(path: str, base: str) -> str:
    """Absolute and normalised, without looking at any file."""
    made = posixpath.normpath(posixpath.join(base, path))
    return "/" + made.lstrip("/")


def escape(text: str) -> str:
    """The glob that means exactly this text."""
    return "".join(f"[{char}]" if char in SPECIAL else char for char in text)


def literal(glob: str) -> str | None:
    """The one text a glob means, or None when it means several."""
    plain = re.sub(r"\[([*?\[])\]", "", glob)
    return None if SPECIAL.intersection(plain) else re.sub(r"\[([*?\[])\]", r"\1", glob)


@lru_cache(maxsize=1024)
def _compile(glob: str, is_path: bool) -> re.Pattern[str]:
    made, at = [], 0
    while at < len(glob):
        piece, at = _piece(glob, at, is_path)
        made.append(piece)
    return re.compile("".join(made), re.DOTALL)


def _piece(glob: str, at: int, is_path: bool) -> tuple[str, int]:
    """The regular expression of what begins at `at`, and where the next begins."""
    one = "[^/]" if is_path else "."
    if is_path and glob.startswith("/**/", at):
        return "/(?:.*/)?", at + 4
    if is_path and glob[at:] == "/**":
        return "(?:/.*)?", len(glob)
    if glob.startswith("**", at):
        return ".*", at + 2
    char = glob[at]
    if char == "*":
        return f"{one}*", at + 1
    if char == "?":
        return one, at + 1
    if char == "[" and (end := glob.find("]", at + 2)) > 0:
        inner = glob[at + 1 : end]
        negated = inner.startswith(("!", "^")) and len(inner) > 1
        body = re.escape(inner[1:] if negated else inner).replace(r"\-", "-")
        return f"[{'^' if negated else ''}{body}]", end + 1
    return re.escape(char), at + 1
