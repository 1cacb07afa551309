"""One short text that a pattern matches, for examples; None where the pattern is too clever."""

import re
import re._parser as grammar  # type: ignore[import-not-found,unused-ignore]  # the parse tree has no public name
from collections.abc import Iterable
from typing import Any, Final

LONGEST: Final = 200
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": "a", "CATEGORY_NOT_WORD": "-", "CATEGORY_NOT_SPACE": "a",
}  # fmt: skip
_TRIED: Final = "a0A_-./ @:~"


def sample(pattern: str) -> str | None:
    """A text in which the pattern is found, not checked against anything else."""
    if len(pattern) > LONGEST:
        return None
    try:
        text = _sequence(grammar.parse(pattern))
        return text if len(text) <= LONGEST and re.search(pattern, text) else None
    except (re.error, KeyError, ValueError, RecursionError, OverflowError, TypeError):
        return None


def _sequence(items: Iterable[Any]) -> str:
    return "".join(_one(str(kind), details) for kind, details in items)


def _one(kind: str, details: Any) -> str:
    match kind:
        case "LITERAL":
            return chr(details)
        case "NOT_LITERAL":
            return next(letter for letter in _TRIED if ord(letter) != details)
        case "ANY":
            return "a"
        case "IN":
            return _member(details)
        case "BRANCH":
            return _sequence(details[1][0])
        case "SUBPATTERN":
            return _sequence(details[-1])
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, inner = details
            return _sequence(inner) * min(max(int(low), 1 if int(high) else 0), LONGEST)
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return ""
    raise ValueError(kind)


def _member(details: Any) -> str:
    kind, held = str(details[0][0]), details[0][1]
    if kind == "NEGATE":
        refused = re.compile("[" + "".join(map(_written, details[1:])) + "]")
        return next(letter for letter in _TRIED if not refused.match(letter))
    if kind == "RANGE":
        return chr(held[0])
    return chr(held) if kind == "LITERAL" else _CATEGORIES[str(held)]


def _written(item: Any) -> str:
    kind, held = str(item[0]), item[1]
    if kind == "RANGE":
        return f"{re.escape(chr(held[0]))}-{re.escape(chr(held[1]))}"
    if kind == "LITERAL":
        return re.escape(chr(held))
    letter = {"DIGIT": "d", "WORD": "w", "SPACE": "s"}[str(held).rsplit("_", 1)[-1]]
    return f"\\{letter.upper() if 'NOT' in str(held) else letter}"
