"""Convert a body's value to plain JSON data, keeping Images, ArtifactRefs and Excerpts."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final

import pydantic_core

from handrail.contract.excerpt import Excerpt
from handrail.contract.result import ArtifactRef, Image, sendable
from handrail.sandbox.completed import Completed
from handrail.schema.describe import dotted

SCALARS: Final = frozenset({bool, int, type(None)})
FLAT: Final = SCALARS | {str}
KEPT: Final = SCALARS | {Image, ArtifactRef, Excerpt}
NOTED: Final = frozenset({Completed, dict, list, tuple})
"""Types of values that may hold notes of the sandbox."""
MAX_DEPTH: Final = 200
MAX_INTEGER: Final = 10**4_000
"""Larger integers cannot be written as text."""
MAX_WARNINGS: Final = 5
LONE_SURROGATE: Final = "has half of a character pair (a lone surrogate), shown as `?`"
Odd = list[tuple[tuple[str | int, ...], str]]
"""The path of each value that has no JSON form, and a note on it."""


class NotPlain(ValueError):
    """The value has no JSON form; the message says which part."""


def plain(value: Any, depth: int = 0, odd: Odd | None = None) -> Any:
    """JSON data that shares no mutable part with `value`. Raises NotPlain.

    Values that have no JSON form but can be shown as text are noted in `odd`.
    """
    kind = type(value)
    if kind is int and not -MAX_INTEGER < value < MAX_INTEGER:
        raise NotPlain("an integer has more than 4,000 digits")
    if kind in KEPT:
        return value
    if kind is str:
        return _text(value, odd)
    if kind is float:
        return value if isfinite(value) else _not_finite(value, odd)
    if depth > MAX_DEPTH:
        raise NotPlain(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if isinstance(value, Mapping):
        return _mapping(value, depth, odd)
    if kind is list or kind is tuple:
        return _sequence(value, depth, odd)
    return _other(value, depth, odd)


def notes_of(value: Any) -> tuple[str, ...]:
    """The sandbox's notes on the commands that a body returned: one, or several in a list or an object."""
    kind = type(value)
    items = (value,) if kind is Completed else value.values() if kind is dict else value
    if kind not in NOTED or Completed not in map(type, items):
        return ()
    return tuple(note for each in items if type(each) is Completed for note in each.notes)


def warnings_of(odd: Odd, whole: str = "the result") -> tuple[str, ...]:
    """Warnings for the model about values that are shown as text."""
    listed = [f"{f'`{dotted(path)}`' if path else whole} {what}" for path, what in odd[:MAX_WARNINGS]]
    more = len(odd) - MAX_WARNINGS
    return (*listed, *([f"and {more} more values that JSON cannot hold"] if more > 0 else []))


def _text(text: str, odd: Odd | None) -> str:
    made = sendable(text)
    if made is not text and odd is not None:
        odd.append(((), LONE_SURROGATE))
    return made


def _not_finite(value: float, odd: Odd | None) -> str:
    text = str(value)
    if odd is not None:
        odd.append(
            ((), f"is {'NaN' if text == 'nan' else 'infinity'}, which JSON cannot hold, shown as the text {text}")
        )
    return text


def _inside(step: str | int, value: Any, depth: int, odd: Odd | None) -> Any:
    """Convert a nested value; the notes on it get `step` in their path."""
    before = len(odd) if odd is not None else 0
    made = plain(value, depth + 1, odd)
    if odd is not None and len(odd) > before:
        odd[before:] = [((step, *path), what) for path, what in odd[before:]]
    return made


def _mapping(value: Mapping[Any, Any], depth: int, odd: Odd | None) -> Any:
    if type(value) is dict and all(type(key) is str for key in value) and FLAT.issuperset(map(type, value.values())):
        if all(type(item) is not str or item.isascii() for item in value.values()) and all(map(str.isascii, value)):
            return dict(value)
    made: dict[str, Any] = {}
    for key, item in value.items():
        name = _key(key, odd)
        if name in made and odd is not None:
            odd.append(((name,), "stands for several keys that are the same as text; the last one is shown"))
        made[name] = _inside(name, item, depth, odd)
    return made


def _key(key: Any, odd: Odd | None) -> str:
    noted: Odd = []
    made = _text(str(key), noted) if isinstance(key, str) else plain(key, odd=noted)
    if odd is not None and noted:
        odd.append(((), f"has a key that {noted[0][1]}"))
    return made if isinstance(made, str) else str(made)


def _sequence(value: Any, depth: int, odd: Odd | None) -> Any:
    kinds = set(map(type, value))
    if kinds <= SCALARS or (kinds == {float} and all(map(isfinite, value))):
        return list(value)
    return [_inside(at, item, depth, odd) for at, item in enumerate(value)]


def _other(value: Any, depth: int, odd: Odd | None) -> Any:
    """Models, dataclasses, enums, dates, sets and so on, by pydantic's rules."""
    if isinstance(value, Completed):
        return plain(value.to_data(), depth, odd)
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__pydantic_serializer__"):
        return {each.name: _inside(each.name, getattr(value, each.name), depth, odd) for each in fields(value)}
    try:
        made = pydantic_core.to_jsonable_python(value, inf_nan_mode="constants", fallback=_refuse)
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError, UnicodeDecodeError) as error:
        raise NotPlain(str(error)[:300]) from None
    return plain(made, depth + 1, odd)


def _refuse(value: Any) -> Any:
    if isinstance(value, Image | ArtifactRef):
        return value
    raise NotPlain(f"{type(value).__module__}.{type(value).__qualname__} has no JSON form")
