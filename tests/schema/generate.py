"""Draw plain JSON values that a schema accepts, for the subset of words that our schemas use."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from handrail.schema.navigate import resolve

Strategy = st.SearchStrategy[Any]
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


def instances(schema: Any, root: Mapping[str, Any] | None = None, depth: int = 0) -> Strategy:
    """Mostly valid values; the caller holds them against the schema."""
    root = schema if root is None else root
    schema = resolve(root, schema)
    if not isinstance(schema, Mapping):
        return anything
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return st.one_of([instances(branch, root, depth + 1) for branch in schema[word]])
    if "allOf" in schema:
        merged: dict[str, Any] = {}
        for part in schema["allOf"]:
            merged |= resolve(root, part)
        return instances(merged, root, depth + 1)
    kinds = schema.get("type", "any")
    return st.one_of([_typed(kind, schema, root, depth) for kind in (kinds if isinstance(kinds, list) else [kinds])])


def _typed(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Strategy:
    match kind:
        case "integer":
            return _integers(schema)
        case "number":
            return _integers(schema) | _floats(schema)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "string":
            return _strings(schema)
        case "array":
            return _lists(schema, root, depth)
        case "object":
            return _objects(schema, root, depth)
    return anything


def _integers(schema: Mapping[str, Any]) -> Strategy:
    low, high = schema.get("minimum", -(2**60)), schema.get("maximum", 2**60)
    low = max(low, schema.get("exclusiveMinimum", low - 1) + 1)
    high = min(high, schema.get("exclusiveMaximum", high + 1) - 1)
    step = schema.get("multipleOf", 1)
    return st.integers(-(-int(low) // 1), int(high)).map(lambda n: n // step * step if isinstance(step, int) else n)


def _floats(schema: Mapping[str, Any]) -> Strategy:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1e9))
    high = schema.get("maximum", schema.get("exclusiveMaximum", 1e9))
    return st.floats(low, high, allow_nan=False, width=64)


def _strings(schema: Mapping[str, Any]) -> Strategy:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True)
    low = schema.get("minLength", 0)
    letters = st.characters(exclude_categories=["Cs"])
    return st.text(letters, min_size=low, max_size=schema.get("maxLength", low + 6))


def _lists(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Strategy:
    if "prefixItems" in schema:
        return st.tuples(*[instances(item, root, depth + 1) for item in schema["prefixItems"]]).map(list)
    low = schema.get("minItems", 0)
    most = min(schema.get("maxItems", low + 3), low + 3)
    if depth > 4 and low == 0:
        return st.just([])
    unique = repr if schema.get("uniqueItems") else None
    items = instances(schema.get("items", True), root, depth + 1)
    return st.lists(items, min_size=low, max_size=most, unique_by=unique)


def _objects(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Strategy:
    declared, required = schema.get("properties", {}), schema.get("required", [])
    more = schema.get("additionalProperties")
    if not declared and isinstance(more, Mapping):
        keys = _strings(schema.get("propertyNames", {}))
        return st.dictionaries(keys, instances(more, root, depth + 1), max_size=0 if depth > 4 else 3)
    fixed = {name: instances(declared.get(name, True), root, depth + 1) for name in required}
    if depth > 4:
        return st.fixed_dictionaries(fixed)
    free = {name: instances(inner, root, depth + 1) for name, inner in declared.items() if name not in fixed}
    return st.fixed_dictionaries(fixed, optional=free)
