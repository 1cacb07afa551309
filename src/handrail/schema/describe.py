"""Describe schemas and values in a few plain words."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from handrail.misuse import close_names
from handrail.schema._formats import FORMAT_SAMPLES
from handrail.schema.navigate import resolve
from handrail.schema.parse import BLANK

MAX_SHOWN_CHARS: Final = 80
_IGNORED_IN_NAMES: Final = str.maketrans("", "", "_-" + BLANK)
_ARTICLES: Final = {
    "string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false",
    "object": "an object", "array": "a list", "null": "null",
}  # fmt: skip
_LIMITS: Final = (
    ("minimum", "at least {}"), ("exclusiveMinimum", "greater than {}"),
    ("maximum", "at most {}"), ("exclusiveMaximum", "less than {}"), ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"), ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"), ("maxItems", "at most {} items"),
    ("minProperties", "at least {} keys"), ("maxProperties", "at most {} keys"), ("pattern", "matching {}"),
    ("uniqueItems", "without repeats"),
)  # fmt: skip
_NOT_EMPTY: Final = ("minLength", "minItems", "minProperties")
"""Limits that are said in words when they are 1, and left out when they are 0."""


def shorten(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """The text in at most `limit` characters, with an ellipsis if it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def show(value: Any, limit: int = MAX_SHOWN_CHARS) -> str:
    """A value as short JSON; large values are described, not written out."""
    if isinstance(value, str):
        return _quote(value, limit)
    if isinstance(value, Mapping) and len(value) > 20:
        return f"an object with {len(value)} keys"
    if isinstance(value, list | tuple) and len(value) > 20:
        return f"a list of {len(value)} items"
    try:
        return shorten(json.dumps(value, ensure_ascii=False), limit)
    except (TypeError, ValueError, RecursionError):
        return f"a value of type {type(value).__name__}"


def _quote(value: str, limit: int) -> str:
    quoted = json.dumps(value[:limit], ensure_ascii=False)
    return shorten(quoted, limit) if len(value) <= limit else shorten(quoted[:-1] + "……", limit)


def dotted(path: Iterable[str | int]) -> str:
    """`items[0].name` for ("items", 0, "name"); empty for an empty path."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else (f".{step}" if text else step)
    return shorten(text, 200)


def describe(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """A schema in words, such as `an integer, at least 1`."""
    schema = resolve(root, schema)
    if not isinstance(schema, Mapping):
        return "nothing" if schema is False else "any value"
    if "const" in schema:
        return f"exactly {show(schema['const'])}"
    if isinstance(schema.get("enum"), list):
        return _one_of(schema["enum"])
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list) and depth < 2:
        words = dict.fromkeys(describe(branch, root, depth + 1) for branch in branches[:6])
        return shorten(" or ".join(words), 200)
    return shorten(", ".join([_type(schema, root, depth), *_limits(schema), *_more(schema, root, depth)]), 200)


def _type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    types = schema.get("type")
    names = types if isinstance(types, list) else [types]
    known = [_ARTICLES[name] for name in names if isinstance(name, str) and name in _ARTICLES]
    if names == ["array"] and isinstance(schema.get("items"), Mapping) and depth < 2:
        return f"a list, each item {describe(schema['items'], root, depth + 1)}"
    if names == ["object"] and isinstance(schema.get("properties"), Mapping) and schema["properties"]:
        return f"an object with {', '.join(list(schema['properties'])[:8])}"
    return " or ".join(known) or "any value"


def _limits(schema: Mapping[str, Any]) -> list[str]:
    return [said for key, words in _LIMITS if key in schema and (said := _limit(key, words, schema[key]))]


def _limit(key: str, words: str, value: Any) -> str:
    if key == "uniqueItems" and value is not True:
        return ""
    if key in _NOT_EMPTY and value in (0, 1):
        return "not empty" if value else ""
    said = words.format(shorten(str(value), 60))
    return said.removesuffix("s") if key.startswith("max") and value == 1 else said


def _more(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[str]:
    words: list[str] = []
    if isinstance(schema.get("format"), str) and schema["format"] in FORMAT_SAMPLES:
        words.append(f"{schema['format']} such as {show(FORMAT_SAMPLES[schema['format']])}")
    if isinstance(schema.get("patternProperties"), Mapping):
        words.append(f"with keys matching {shorten(' or '.join(schema['patternProperties']), 60)}")
    if isinstance(schema.get("contains"), Mapping) and depth < 2:
        words.append(f"one of them {describe(schema['contains'], root, depth + 1)}")
    if isinstance(schema.get("not"), Mapping) and depth < 2:
        words.append(f"but not {describe(schema['not'], root, depth + 1)}")
    return words


def _one_of(members: Sequence[Any]) -> str:
    listed = ", ".join(show(member, 40) for member in members[:12])
    return f"one of {listed}" + (f" and {len(members) - 12} more" if len(members) > 12 else "")


def near(name: Any, choices: Iterable[Any]) -> str | None:
    """The one choice that `name` probably means: the same letters spelled differently, or nearly the same."""
    if not isinstance(name, str) or len(name) > 64:
        return None
    names = [choice for choice in choices if isinstance(choice, str)][:200]
    same = [other for other in names if fold(other) == fold(name)]
    if same:
        return same[0] if len(same) == 1 else None
    close = close_names(name.lower(), [other.lower() for other in names], cutoff=0.7)
    return next((other for other in names if other.lower() == close[0]), None) if close else None


def fold(name: str) -> str:
    """A name without case, `_`, `-` and white space, for comparison."""
    return name.casefold().translate(_IGNORED_IN_NAMES)
