"""Parse JSON strictly: every text has one meaning, and no text can exhaust the stack."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any, Final, Never

from handrail.contract.wire import to_wire

DEEPEST_VALUE: Final = 128
"""Levels of nesting that are accepted."""
TOO_DEEP: Final = f"arguments nested deeper than {DEEPEST_VALUE} levels"
MAX_DIGITS_COUNT: Final = 4300
"""Number of digits in a number that are accepted."""
LONG_TEXT: Final = 2_000
LETTERS_PER_VALUE: Final = 100
"""Length of text whose check takes as long as one more value, in characters."""
MAX_SIMPLE_KEYS_COUNT: Final = 50
ODD_SPACE: Final = (
    "\v\f\x85\xa0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
"""White space that JSON does not allow, including the byte order mark and zero-width characters."""
BLANK: Final = " \t\r\n" + ODD_SPACE
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class NotJson(ValueError):
    """A text that is not strict JSON: what is wrong with it, and at which character."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


def parse(text: str) -> Any:
    """The value of a strict JSON text.

    Raises NotJson for anything else, and for duplicate keys at any level, NaN, Infinity, numbers too large,
    lone surrogates, and nesting deeper than DEEPEST_VALUE.
    """
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        raise NotJson(error.msg, error.pos) from None
    except RecursionError:
        raise NotJson(f"nested deeper than {DEEPEST_VALUE} levels") from None
    except StopIteration as error:
        raise NotJson("Expecting value", error.value) from None
    except NotJson:
        raise
    except ValueError:  # an integer beyond the interpreter's own limit
        raise NotJson("a number is too large") from None
    if len(text) > LONG_TEXT and _is_simple(value):
        return value
    if (not text.isascii() or "\\u" in text) and _has_lone_surrogate(text, value):
        raise NotJson("it has half of a character pair (a lone surrogate)")
    if len(text) > DEEPEST_VALUE and text.count("{") + text.count("[") > DEEPEST_VALUE and too_deep(value):
        raise NotJson(f"nested deeper than {DEEPEST_VALUE} levels")
    return value


def _is_simple(value: Any) -> bool:
    """Whether an object is flat and all ASCII: cheaper to check than the long text."""
    if type(value) is not dict or len(value) > MAX_SIMPLE_KEYS_COUNT:
        return False
    return all(
        key.isascii() and (item.isascii() if type(item) is str else type(item) is not dict and type(item) is not list)
        for key, item in value.items()
    )


def _decode(text: str) -> Any:
    if text[:1] == "{":  # nearly every call: no white space around the object to search for
        value, end = _scan(text, 0)
        if end == len(text):
            return value
    return _decoder.decode(text)


def count_values(value: Any, most: float = inf) -> int:
    """How many values there are in a value, itself and keys included; a long text counts as several.

    It stops soon after `most`.
    """
    count, waiting = 0, [value]
    while waiting and count <= most:
        each = waiting.pop()
        count += 1
        if isinstance(each, str):
            count += len(each) // LETTERS_PER_VALUE
        elif isinstance(each, dict):
            count += len(each)
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
    return count


def too_deep(value: Any, limit: int = DEEPEST_VALUE) -> bool:
    """Whether lists and dicts are nested deeper than `limit`; safe for any depth."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def plain(value: Any) -> str | None:
    """Why a Python value is not plain JSON, or None when it is. Safe for any depth and for circular values."""
    level: list[Any] = [value]
    for _ in range(DEEPEST_VALUE + 2):
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                inner.extend(item)
                inner.extend(item.values())
                reason = None if all(type(key) is str for key in item) else "an object has a key that is not a string"
            elif kind is list or kind is tuple:
                inner.extend(item)
                reason = None
            else:
                reason = _unfit(item, kind)
            if reason is not None:
                return reason
        if not inner:
            return None
        level = inner
    return f"nested deeper than {DEEPEST_VALUE} levels"


def _unfit(item: Any, kind: type) -> str | None:
    if kind is str:
        lone = not item.isascii() and _LONE_SURROGATE.search(item)
        return "it has half of a character pair (a lone surrogate)" if lone else None
    if kind is float:
        return None if isfinite(item) else "NaN and Infinity are not JSON"
    if kind is int:
        return "a number is too large" if item.bit_length() > MAX_DIGITS_COUNT * 3 else None
    return None if item is None or kind is bool else f"{kind.__name__} is not JSON"


def recordable(arguments: str | Mapping[str, Any]) -> Any:
    """A copy of a call's arguments for an event, because a mapping may change; a text if it cannot be copied."""
    if isinstance(arguments, str):
        return arguments
    try:
        return TOO_DEEP if too_deep(dict(arguments)) else to_wire(arguments)
    except Exception:  # noqa: BLE001 - not a mapping, or of a class that raises; preflight refuses it
        return f"a {type(arguments).__name__} that cannot be read"


def canonical(value: Any) -> str:
    """Compact JSON with sorted keys: equal values give equal texts. Values that are not JSON are written with `str`."""
    return _encode(value)


def arguments_hash(arguments: str | Mapping[str, Any]) -> str:
    """A hash that ignores spacing and the order of keys; a hash of the raw text if it is not JSON."""
    text: str
    try:
        text = canonical(parse(arguments) if isinstance(arguments, str) else arguments)
    except (ValueError, TypeError, RecursionError):
        text = arguments if isinstance(arguments, str) else _flat(arguments)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _show(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _flat(arguments: Mapping[str, Any]) -> str:
    return " ".join(sorted(f"{key!s}:{type(value).__name__}" for key, value in arguments.items()))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotJson(f"the key {twice[:80]!r} appears twice")
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise NotJson("a number is too large")
    return number


def _constant(name: str) -> Never:
    raise NotJson(f"{name} is not JSON")


def _has_lone_surrogate(text: str, value: Any) -> bool:
    if _LONE_SURROGATE.search(text):
        return True
    if "\\ud" not in text and "\\uD" not in text:
        return False
    reason = plain(value)
    return reason is not None and "surrogate" in reason


_decoder: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant)
_scan: Final[Callable[[str, int], tuple[Any, int]]] = _decoder.scan_once  # type: ignore[attr-defined]
_encode: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_show).encode
