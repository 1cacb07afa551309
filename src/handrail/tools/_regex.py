"""Compile a pattern to what `rg --crlf` would match on one line, in linear time.

The engine is the one that ripgrep is built on, in the form in which pydantic checks patterns. ripgrep changes a pattern
before it compiles it: nothing in it may match a part of a line end. The same is done here, by rewriting.
"""

import re
from collections.abc import Callable
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

NEVER_MATCHED: Final = "\r"
"""A character that no pattern matches, so it also stands for bytes that are not text."""
WITHIN_LINE: Final = r"&&[^\r\n]"
_ESCAPE: Final = re.compile(
    r"\\(?:[pP]\{[^}]*\}|[pP].|[xuU]\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)"
)
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?[:)]")
_LINE_END: Final = "The pattern is matched against one line at a time; use $ for its end, and remove the line break."
_REFUSED_FLAGS: Final = {
    "(?x)": "write the pattern without spaces and comments",
    "(?R)": "a line's end may always be CRLF",
    "(?-u)": "files are searched as text",
    "(?-m)": "^ and $ are the start and the end of a line",
}


class Regex:
    """A compiled pattern. Raises ValueError for one that is invalid, or that ripgrep would refuse."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        pattern = f"(?i){pattern}" if ignore_case else pattern
        _compiled(pattern)  # so that an error is about the pattern as it was sent
        text = within_line(pattern, "$")
        self.with_returns = within_line(pattern, r"(?:\r?$)")
        """The same pattern for lines that may end in a carriage return, as ripgrep finds them in a file."""
        self.matches = _compiled(text)
        """Whether a line without its line end matches."""
        self.may_match = _compiled(f"(?m){text}")
        """Whether a line in a block of lines may match; False if none does."""


def _compiled(pattern: str) -> Callable[[str], bool]:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].strip()
        if "size limit" in reason:
            reason = "it is too large; use smaller counts"
        elif "invalid UTF-8" in reason:
            reason = f"(?-u) is not supported: {_REFUSED_FLAGS['(?-u)']}"
        raise ValueError(f"The pattern is not a valid regular expression: {reason.rstrip('.')}.") from None


def within_line(pattern: str, end: str) -> str:
    """Rewrite a valid pattern so that it matches no part of a line end, and `$` is `end`.

    Raises ValueError for a pattern that names a line end.
    """
    made: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            piece, at = _escape(pattern, at)
        elif char == "[":
            after = _class_end(pattern, at)
            piece, at = f"[{pattern[at:after]}{WITHIN_LINE}]", after
        else:
            _check(pattern, at)
            piece, at = {".": r"[^\r\n]", "$": end}.get(char, char), at + 1
        made.append(piece)
    return "".join(made)


def _escape(pattern: str, at: int) -> tuple[str, int]:
    found = _ESCAPE.match(pattern, at)
    if found is None:  # a backslash before a line break
        raise ValueError(_LINE_END)
    text, kind = found.group(), found.group()[1]
    if kind in "dDwWsSpP":
        return f"[{text}{WITHIN_LINE}]", found.end()
    if kind in "Az":
        anchor = "^ for the start" if kind == "A" else "$ for the end"
        raise ValueError(f"The pattern has {text}, which grep does not support: use {anchor} of a line.")
    if kind in "nr" or (kind in "xuU" and int(text[2:].strip("{}"), 16) in (ord("\r"), ord("\n"))):
        raise ValueError(_LINE_END)
    return text, found.end()


def _class_end(pattern: str, at: int) -> int:
    """The end of the character class that begins here. Classes nest, and a ] that comes first is literal."""
    depth = 0
    while True:
        if pattern[at] == "[":
            depth += 1
            at += 1 + (pattern[at + 1] == "^")
            at += pattern[at] == "]"
        elif pattern[at] == "]":
            depth, at = depth - 1, at + 1
            if not depth:
                return at
        else:
            at += 2 if pattern[at] == "\\" else 1


def _check(pattern: str, at: int) -> None:
    if pattern[at] in "\r\n":
        raise ValueError(_LINE_END)
    if pattern[at] == "(" and (flags := _FLAGS.match(pattern, at)):
        sent = {f"(?{flag})" for flag in flags.group(1)} | {f"(?-{flag})" for flag in flags.group(2) or ""}
        for flag in sorted(sent & _REFUSED_FLAGS.keys()):
            raise ValueError(f"The pattern has {flag}, which grep does not support: {_REFUSED_FLAGS[flag]}.")
