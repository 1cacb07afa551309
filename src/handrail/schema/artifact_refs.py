"""Accept a reference to an artifact in place of any value, and find the references in arguments."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from handrail.schema.navigate import OWN_KEYWORDS, Schema, rewrite

MARK: Final = "$artifact"
_REFERENCE_KEYS: Final = frozenset({MARK, "size", "media_type", "name", "incomplete"})
_REFERENCE_SCHEMA: Final = {
    "type": "object",
    "properties": {MARK: {"type": "string"}, **{key: {} for key in sorted(_REFERENCE_KEYS - {MARK})}},
    "required": [MARK],
    "additionalProperties": False,
}


def is_reference(value: Any) -> bool:
    """Whether a value is `{"$artifact": ref}`, alone or with the other keys of its handle."""
    return isinstance(value, Mapping) and isinstance(value.get(MARK), str) and _REFERENCE_KEYS.issuperset(value)


def references(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The path of each reference and the artifact it names; the arguments themselves are never a reference."""
    level: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while level:
        inner: list[tuple[tuple[str | int, ...], Any]] = []
        for path, item in level:
            if path and is_reference(item):
                yield path, item[MARK]
            elif isinstance(item, Mapping):
                inner.extend(((*path, key), child) for key, child in item.items() if isinstance(child, Mapping | list))
            elif isinstance(item, list):
                inner.extend(((*path, at), child) for at, child in enumerate(item) if isinstance(child, Mapping | list))
        level = inner


def accept_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema changed so that every value below the root may be a reference."""
    return dict(rewrite(schema, _accept))


def _accept(schema: Schema) -> Schema:
    for keyword in ("properties", "patternProperties"):
        if isinstance(schema.get(keyword), Mapping):
            schema[keyword] = {name: _either(inner) for name, inner in schema[keyword].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), Mapping):
            schema[keyword] = _either(schema[keyword])
    if isinstance(schema.get("prefixItems"), list):
        schema["prefixItems"] = [_either(inner) for inner in schema["prefixItems"]]
    if "oneOf" in schema and "anyOf" not in schema:  # a reference would fit several branches
        schema["anyOf"] = schema.pop("oneOf")
    return schema


def _either(schema: Any) -> Any:
    if schema is True or schema == {}:
        return schema
    kept = {keyword: schema[keyword] for keyword in OWN_KEYWORDS if isinstance(schema, Mapping) and keyword in schema}
    return {**kept, "anyOf": [_REFERENCE_SCHEMA, schema]}
