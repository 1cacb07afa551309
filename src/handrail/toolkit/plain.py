"""Turn whatever a body returned into plain JSON data, keeping Images, ArtifactRefs and Excerpts, or say why not."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final

from handrail.contract.result import ArtifactRef, Excerpt, Image
from handrail.lazy import Lazy
from handrail.sandbox.completed import Completed

SCALARS: Final = frozenset({bool, int, type(None)})
FLAT: Final = SCALARS | {str}
KEPT: Final = SCALARS | {Image, ArtifactRef, Excerpt}
DEEPEST: Final = 200
LARGEST: Final = 10**4_000
"""Integers beyond it cannot be written as text."""


_pydantic = Lazy("pydantic_core")


class NotPlain(ValueError):
    """The value has no JSON form; the message says which part of it."""


def plain(value: Any, depth: int = 0) -> Any:
    """JSON data, of which nobody else holds a part that could change. Raises NotPlain."""
    kind = type(value)
    if kind is int and not -LARGEST < value < LARGEST:
        raise NotPlain("an integer has more than 4,000 digits")
    if kind in KEPT:
        return value
    if kind is str:
        return _text(value)
    if kind is float:
        return value if isfinite(value) else str(value)
    if depth > DEEPEST:
        raise NotPlain(f"it is nested deeper than {DEEPEST} levels, or contains itself")
    if isinstance(value, Mapping):
        return _mapping(value, depth)
    if kind is list or kind is tuple:
        return _sequence(value, depth)
    return _other(value, depth)


def notes_of(value: Any) -> tuple[str, ...]:
    """What the sandbox noted on the commands that a body returned: one, or several in a list or an object."""
    kind = type(value)
    held = (value,) if kind is Completed else value.values() if kind is dict else value
    if kind not in (Completed, dict, list, tuple) or Completed not in map(type, held):
        return ()
    return tuple(note for each in held if type(each) is Completed for note in each.notes)


def _text(value: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return value


def _mapping(value: Mapping[Any, Any], depth: int) -> Any:
    if type(value) is dict and all(type(key) is str for key in value) and FLAT.issuperset(map(type, value.values())):
        if all(type(item) is not str or item.isascii() for item in value.values()):
            return dict(value)
    return {_key(key): plain(item, depth + 1) for key, item in value.items()}


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _text(str(key))
    made = plain(key)
    return made if isinstance(made, str) else str(made)


def _sequence(value: Any, depth: int) -> Any:
    if SCALARS.issuperset(map(type, value)):
        return list(value)
    return [plain(item, depth + 1) for item in value]


def _other(value: Any, depth: int) -> Any:
    """Models, dataclasses, enums, dates, sets and the like, by pydantic's rules."""
    if isinstance(value, Completed):
        return plain(value.to_data(), depth)
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__pydantic_serializer__"):
        return {each.name: plain(getattr(value, each.name), depth + 1) for each in fields(value)}
    try:
        made = _pydantic.to_jsonable_python(value, inf_nan_mode="strings", fallback=_refuse)
    except (_pydantic.PydanticSerializationError, ValueError, RecursionError, UnicodeDecodeError) as error:
        raise NotPlain(str(error)[:300]) from None
    return plain(made, depth + 1)


def _refuse(value: Any) -> Any:
    if isinstance(value, Image | ArtifactRef):
        return value
    raise NotPlain(f"{type(value).__module__}.{type(value).__qualname__} has no JSON form")
