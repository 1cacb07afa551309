"""Make a body's value plain: JSON data, with Images, ArtifactRefs and Truncated texts in it.

Values of the sandbox get the form in which the built-in tools answer; bytes that are not UTF-8 become artifacts.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import pydantic_core

from handrail.contract.driver import FileStat
from handrail.contract.limits import Caps
from handrail.contract.result import ArtifactRef, Image, Success
from handrail.contract.truncated import Truncated
from handrail.contract.wire import sendable
from handrail.lazy import Lazy
from handrail.sandbox.completed import Answer, CodeResult, Completed
from handrail.schema.describe import dotted

if TYPE_CHECKING:
    from handrail.artifacts.store import Scope
    from handrail.sandbox import dispatch as _dispatch
else:
    _dispatch = Lazy("handrail.sandbox.dispatch")

SCALARS: Final = frozenset({bool, int, type(None)})
FLAT: Final = SCALARS | {str}
KEPT: Final = SCALARS | {Image, ArtifactRef, Truncated}
COMMANDS: Final = frozenset({Completed, CodeResult})
BUILT_IN: Final = KEPT | {str, float, list, tuple, dict}
FEW: Final = 100
"""Fields of an object that are converted without being counted."""
NOTED: Final = COMMANDS | {dict, list, tuple}
"""Types of values that may hold notes of the sandbox."""
MAX_TEXT_CHARS: Final = 1 << 20
"""Characters of text that are read before others on the event loop get a turn."""
MAX_DEPTH: Final = 200
MAX_INTEGER: Final = 10**4_000
"""Larger integers cannot be written as text."""
MAX_WARNINGS: Final = 5
SAME_KEYS: Final = "stands for several keys that are the same as text; the last one is shown"
LONE_SURROGATE: Final = "has half of a character pair (a lone surrogate), shown as `?`"
MAX_AT_ONCE_COUNT: Final = 5_000
"""Values that are converted before others on the event loop get a turn."""
Path = tuple[str | int, ...]


class Odd(list[tuple[Path, str]]):
    """The path of each value that has no JSON form, and a note on it."""

    left: int = MAX_AT_ONCE_COUNT
    """Values that may still be converted."""


class NotPlain(ValueError):
    """The value has no JSON form; the message says which part."""


class NotText(Exception):
    """The value holds bytes that are not UTF-8."""


class TooLong(Exception):
    """There are more values than may be converted at once."""


def plain(value: Any, depth: int = 0, odd: Odd | None = None) -> Any:
    """JSON data that shares no mutable part with `value`. Raises NotPlain or NotText; with `odd`, TooLong.

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
    items = (value,) if kind in COMMANDS else value.values() if kind is dict else value
    if kind not in NOTED or COMMANDS.isdisjoint(map(type, items)):
        return ()
    return tuple(note for each in items if type(each) in COMMANDS for note in each.notes)


def all_notes(value: Any) -> tuple[str, ...]:
    """The sandbox's notes on commands anywhere in a value that `plain` has converted, each once."""
    kind = type(value)
    if kind in COMMANDS:
        return tuple(value.notes)
    if kind not in NOTED or FLAT.issuperset(map(type, items := value.values() if kind is dict else value)):
        return ()
    return tuple(dict.fromkeys(note for each in items for note in all_notes(each)))


def warnings_of(odd: Odd, whole: str = "the result") -> tuple[str, ...]:
    """Warnings for the model about values that are shown as text."""
    listed = [f"{f'`{dotted(path)}`' if path else whole} {what}" for path, what in odd[:MAX_WARNINGS]]
    more = len(odd) - MAX_WARNINGS
    return (*listed, *([f"and {more} more values that JSON cannot hold"] if more > 0 else []))


def _text(text: str, odd: Odd | None) -> str:
    if len(text) > MAX_TEXT_CHARS and odd is not None and not text.isascii():
        raise TooLong
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


def _spend(odd: Odd | None, count: int) -> None:
    if odd is not None:
        odd.left -= count
        if odd.left < 0:
            raise TooLong


def _mapping(value: Mapping[Any, Any], depth: int, odd: Odd | None) -> Any:
    if len(value) > FEW:  # the way below is for small objects, which nearly all are
        _spend(odd, len(value))
    if type(value) is dict and all(type(key) is str for key in value) and FLAT.issuperset(map(type, value.values())):
        if all(type(item) is not str or item.isascii() for item in value.values()) and all(map(str.isascii, value)):
            return dict(value)
    made: dict[str, Any] = {}
    if len(value) <= FEW:
        _spend(odd, len(value))
    for key, item in value.items():
        name = key_text(key, odd)
        if name in made and odd is not None:
            odd.append(((name,), SAME_KEYS))
        made[name] = _inside(name, item, depth, odd)
    return made


def key_text(key: Any, odd: Odd | None) -> str:
    """A key as a text; what is odd about it is noted."""
    noted = Odd()
    try:
        made = _text(str(key), noted) if isinstance(key, str) else plain(key, odd=noted)
    except NotText as error:  # a key cannot be stored apart
        raise NotPlain(str(error)) from None
    if odd is not None and noted:
        odd.append(((), f"has a key that {noted[0][1]}"))
    return made if isinstance(made, str) else str(made)


def _sequence(value: Any, depth: int, odd: Odd | None) -> Any:
    _spend(odd, len(value))
    kinds = set(map(type, value))
    if kinds <= SCALARS or (kinds == {float} and all(map(isfinite, value))):
        return list(value)
    return [_inside(at, item, depth, odd) for at, item in enumerate(value)]


def _other(value: Any, depth: int, odd: Odd | None) -> Any:
    made = opened(value)
    return _mapping(made, depth, odd) if type(made) is dict else plain(made, depth + 1, odd)


def opened(value: Any) -> Any:
    """Models, dataclasses, enums, dates, sets and so on as JSON data, by pydantic's rules; others as they are.

    The parts of a dataclass are not converted yet. Raises NotPlain or NotText.
    """
    if type(value) in BUILT_IN or isinstance(value, Mapping):
        return value
    if isinstance(value, Answer):
        return value.to_data()
    if isinstance(value, bytes | bytearray):
        return _decoded(value)
    if _is_record(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    try:
        return pydantic_core.to_jsonable_python(value, inf_nan_mode="constants", fallback=_refuse)
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError, UnicodeDecodeError) as error:
        raise NotPlain(str(error)[:300]) from None


def _is_record(value: Any) -> bool:
    """Whether it is an object of a plain dataclass, and not of pydantic's."""
    return is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__pydantic_serializer__")


def _decoded(data: bytes | bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotText(str(error)) from None


def _refuse(value: Any) -> Any:
    if isinstance(value, Image | ArtifactRef):
        return value
    raise NotPlain(f"{type(value).__module__}.{type(value).__qualname__} has no JSON form")


def as_builtin(value: Any, caps: Caps, *, typed: bool) -> tuple[Any, tuple[str, ...]]:
    """A value of the sandbox in a built-in tool's form, and a note on what is not shown; any other value as it is.

    A list stays a list where the tool's schema has `typed` it.
    """
    if type(value) is list and not typed:
        value = _listing(value)
    if not isinstance(value, Answer):
        return value, ()
    data = value.to_data(caps)
    count = data.get("entry_count", 0)
    left = count - len(data["entries"]) if count else 0
    return data, (f"{left} of {count} entries are not shown.",) if left else ()


def _listing(value: list[Any]) -> Any:
    """The entries of one directory, as `Sandbox.list` gives them, as a Listing."""
    if not value or any(type(each) is not FileStat for each in value):
        return value
    (where, *others) = {posixpath.dirname(each.path) for each in value}
    return value if others else _dispatch.Listing(where, tuple(value))


async def with_artifacts(artifacts: "Scope", value: Any) -> Any:
    """The value with an artifact in place of all bytes that are not UTF-8."""
    if isinstance(value, Success):
        return replace(value, value=await with_artifacts(artifacts, value.value))
    if type(value) in KEPT or isinstance(value, Answer):
        return value
    if isinstance(value, Mapping):
        return {key: await with_artifacts(artifacts, each) for key, each in value.items()}
    if _is_record(value):
        return {each.name: await with_artifacts(artifacts, getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, list | tuple):
        return [await with_artifacts(artifacts, each) for each in value]
    if isinstance(value, bytes | bytearray):
        try:
            return _decoded(value)
        except NotText:
            return await artifacts.put(bytes(value))
    return value
