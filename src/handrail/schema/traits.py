"""What a schema is like as a whole, found once, so that a valid call passes quickly."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from handrail.schema.walk import children, resolve


@dataclass(frozen=True, slots=True)
class Traits:
    """Whether a valid call may still need a look inside."""

    declared: frozenset[str]
    """The parameters."""
    open: bool
    """Whether unknown parameters are accepted."""
    nested: frozenset[str]
    """The parameters whose values must be looked into for blanks and whole floats."""
    unusual: bool
    """Whether the quick look is never enough: branches at the root, or an open object inside."""


def traits_of(schema: Mapping[str, Any]) -> Traits:
    """Never fails."""
    root = resolve(schema, schema)
    if not isinstance(root, Mapping):
        return Traits(frozenset(), open=False, nested=frozenset(), unusual=True)
    properties = root.get("properties")
    declared = properties if isinstance(properties, Mapping) else {}
    is_open = root.get("additionalProperties", True) is True and "patternProperties" not in root and bool(declared)
    unusual = any(word in root for word in ("anyOf", "oneOf", "allOf", "if", "patternProperties"))
    unusual = unusual or isinstance(root.get("additionalProperties"), Mapping)
    unusual = unusual or any(_is_open(inner) for inner in _all(schema) if inner is not root)
    nested = {name for name, inner in declared.items() if _nests(schema, inner, nested=False, left=6)}
    return Traits(frozenset(declared), is_open, frozenset(nested), unusual)


def _all(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    waiting = [schema]
    while waiting:
        here = waiting.pop()
        yield here
        waiting.extend(children(here))


def _is_open(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("properties")) and schema.get("additionalProperties", True) is True


def _nests(root: Mapping[str, Any], schema: Any, *, nested: bool, left: int) -> bool:
    schema = resolve(root, schema)
    if not isinstance(schema, Mapping):
        return False
    if left == 0 or _has_optional_text(root, schema) or (nested and _whole(schema)):
        return True
    nested = nested or any(word in schema for word in ("items", "prefixItems", "properties", "additionalProperties"))
    return any(_nests(root, inner, nested=nested, left=left - 1) for inner in children(schema))


def _has_optional_text(root: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether a blank could stand where it means nothing."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return False
    needed = required if isinstance(required, list) else []
    return any(name not in needed and _text(resolve(root, inner)) for name, inner in properties.items())


def _text(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return kind in ("string", None) or (isinstance(kind, list) and "string" in kind)


def _whole(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "integer" or (isinstance(kind, list) and "integer" in kind)
