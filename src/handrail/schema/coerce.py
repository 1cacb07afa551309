"""The other ways to read one scalar: `"15"` as 15, `"yes"` as true, 15 as `"15"`."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from handrail.schema.places import View
from handrail.schema.syntax import Note

_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]{0,399}))(?:\.([0-9]{1,400}))?([eE][+-]?[0-9]{1,4})?")
_FLOATS: Final = re.compile(r"-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_TRUE: Final = frozenset({"yes", "1", "on", "true"})
_FALSE: Final = frozenset({"no", "0", "off", "false"})
LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Option:
    """One way to read a value."""

    value: Any
    rule: str
    changed: bool
    notes: list[Note] = field(default_factory=list)


def options(view: View, value: Any, written: Callable[[float], str | None]) -> Iterator[Option]:
    """Every other reading that the types of a place suggest; whether it fits is found out by the caller."""
    kinds = view.kinds or frozenset()
    if isinstance(value, str):
        if len(value) <= LONGEST:
            yield from _from_string(view, kinds, value.strip())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "string" in kinds and (text := written(value)) is not None:
            yield Option(text, "number as text", changed=True)
        if "boolean" in kinds and isinstance(value, int) and value in (0, 1):
            yield Option(value == 1, "word for true or false", changed=True)


def may_be_listed(view: View, value: Any) -> bool:
    """Whether one scalar may stand for a list of one: never a text that could be several."""
    if view.kinds != frozenset(("array",)) or value is None or isinstance(value, dict | list):
        return False
    if not isinstance(value, str):
        return True
    return bool(value.strip()) and not any(mark in value for mark in ",\n\r") and value.lstrip()[0] not in "[{`"


def _from_string(view: View, kinds: frozenset[str], word: str) -> Iterator[Option]:
    members = [m for m in view.members or () if isinstance(m, str) and m.strip().casefold() == word.casefold()]
    if len(members) == 1:
        yield Option(members[0], "spelling of a member", changed=True)
    if kinds & {"integer", "number"}:
        yield from _numbers(kinds, word)
    if "boolean" in kinds:
        lower = word.lower()
        if lower in _TRUE or lower in _FALSE:
            rule = "text read as true or false" if word in ("true", "false") else "word for true or false"
            yield Option(lower in _TRUE, rule, changed=True)


def _numbers(kinds: frozenset[str], word: str) -> Iterator[Option]:
    match = _NUMBER.fullmatch(word)
    if match is None:
        return
    whole, fraction, exponent = match.groups()
    integral = exponent is None and not (fraction or "").strip("0")
    if integral and ("integer" in kinds or fraction is None):
        yield Option(int(whole), "text read as a number", changed=True)
    elif "number" in kinds:
        yield Option(float(word), "text read as a number", changed=True)


def writer(text: str | None) -> Callable[[float], str | None]:
    """How each number was written in the text that was sent: 1.10 is not 1.1. None where that cannot be told."""
    sent: dict[float, set[str]] = {}

    def written(value: float) -> str | None:
        if isinstance(value, int):
            return str(value)
        if text is None:
            return repr(value)
        if not sent:
            for word in _FLOATS.findall(text):
                if len(word) <= LONGEST:
                    sent.setdefault(float(word), set()).add(word)
        words = sent.get(value, set())
        return next(iter(words)) if len(words) == 1 else None

    return written
