"""Walk a JSON Schema by its grammar, so that a property called `title` is never taken for the keyword."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

Schema = dict[str, Any]
Change = Callable[[Schema], Schema]

ONE: Final = ("additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else",
              "unevaluatedProperties", "unevaluatedItems", "additionalItems")  # fmt: skip
"""Keywords that hold one schema."""
MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
"""Keywords that hold a list of schemas; `items` did so in old drafts."""
NAMED: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords that hold schemas by name."""
DEEPEST: Final = 200
"""Schemas nested deeper than this are refused where they are compiled."""


def children(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every schema directly inside this one; `true` and `false` are left out."""
    for keyword in ONE:
        if isinstance(schema.get(keyword), Mapping):
            yield schema[keyword]
    for keyword in MANY:
        if isinstance(schema.get(keyword), list):
            yield from (item for item in schema[keyword] if isinstance(item, Mapping))
    for keyword in NAMED:
        if isinstance(schema.get(keyword), Mapping):
            yield from (item for item in schema[keyword].values() if isinstance(item, Mapping))


def rewrite(schema: Any, change: Change) -> Any:
    """A copy in which `change` was applied to every schema, the inner ones first; the order of keys is kept."""
    if not isinstance(schema, Mapping):
        return schema
    copy: Schema = {}
    for keyword, value in schema.items():
        if keyword in NAMED and isinstance(value, Mapping):
            copy[keyword] = {name: rewrite(item, change) for name, item in value.items()}
        elif keyword in MANY and isinstance(value, list):
            copy[keyword] = [rewrite(item, change) for item in value]
        elif keyword in ONE:
            copy[keyword] = rewrite(value, change)
        else:
            copy[keyword] = value
    return change(copy)


def resolve(root: Mapping[str, Any], schema: Any) -> Any:
    """Follow local `$ref`s until there is none; {} for one that leads nowhere or round in a circle."""
    seen: set[str] = set()
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
        reference = schema["$ref"]
        if reference in seen:
            return {}
        seen.add(reference)
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        target = point(root, reference)
        schema = {**target, **beside} if beside and isinstance(target, Mapping) else target
    return schema


def point(root: Mapping[str, Any], reference: str) -> Any:
    """What a local reference such as `#/$defs/Item` points to; {} when there is nothing."""
    if not reference.startswith("#"):
        return {}
    here: Any = root
    for step in filter(None, reference[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and (name in here or unquote(name) in here):
            here = here[name] if name in here else here[unquote(name)]
        elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        else:
            return {}
    return here
