"""Write a regular expression so that both engines read it alike: ripgrep's own, and the one inside this library.

Shorthands become ASCII sets, and what one of them would read as a nested set is written out. Bytes that are not UTF-8
match nothing but themselves: one engine never sees them, to the other they are U+FFFD. Both run in linear time.
"""

from typing import Final

SETS: Final = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": "\t\n\x0b\x0c\r ",
    "D": "\\x00-/:-\ufffc\ufffe-\U0010ffff",
    "W": "\\x00-/:-@\\[-\\^`{-\ufffc\ufffe-\U0010ffff",
    "S": "\\x00-\x08\x0e-\x1f!-\ufffc\ufffe-\U0010ffff",
}
POSIX: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": "\t ", "cntrl": "\\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\t\n\x0b\x0c\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
DAMAGED: Final = "\ufffd"
ANCHORS: Final = {"A": "^", "z": "$", "Z": "$"}


def portable(pattern: str, *, ignore_case: bool = False) -> str:
    """The pattern for either engine. Raises ValueError for one that could only match across lines."""
    made: list[str] = ["(?i)"] if ignore_case else []
    at, inside = 0, False
    while at < len(pattern):
        piece, at, inside = _inside(pattern, at) if inside else _outside(pattern, at)
        made.append(piece)
    return "".join(made)


def _outside(pattern: str, at: int) -> tuple[str, int, bool]:
    char, following = pattern[at], pattern[at + 1 : at + 2]
    if char == "\n" or (char == "\\" and following == "n"):
        raise ValueError("A pattern is matched against one line at a time; leave the line break out.")
    if char == "\\" and following in SETS:
        return f"[{SETS[following]}]", at + 2, False
    if char == "\\" and following in ANCHORS:
        return ANCHORS[following], at + 2, False
    if char == "\\":
        return pattern[at : at + 2], at + 2, False
    if char != "[":
        return f"[^{DAMAGED}]" if char == "." else char, at + 1, False
    negated = following == "^"
    end = at + 2 if negated else at + 1
    opened = f"[^{DAMAGED}" if negated else "["
    if pattern[end : end + 1] == "]":  # first in a set, it stands for itself
        return f"{opened}\\]", end + 1, True
    return opened, end, True


def _inside(pattern: str, at: int) -> tuple[str, int, bool]:
    char, following = pattern[at], pattern[at + 1 : at + 2]
    if char == "]":
        return char, at + 1, False
    if char == "\\" and following in SETS:
        return SETS[following], at + 2, True
    if char == "\\":
        return pattern[at : at + 2], at + 2, True
    if char == "[" and following == ":" and (end := pattern.find(":]", at)) > 0:
        name = pattern[at + 2 : end]
        if name not in POSIX:
            raise ValueError(f"There is no set [:{name[:30]}:].")
        return POSIX[name], end + 2, True
    nested = char in "[&~" or (char == "-" and following == "-")
    return (f"\\{char}" if nested else char), at + 1, True
