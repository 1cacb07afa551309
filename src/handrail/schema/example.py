"""Make the smallest arguments that a schema accepts, to show a model what to send."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from handrail.schema.sample import sample
from handrail.schema.validate import Validator
from handrail.schema.walk import resolve

_DEEPEST: Final = 8
_MOST_ITEMS: Final = 20


def example(validator: Validator) -> dict[str, Any] | None:
    """Arguments with the required fields only, which validate; None where none were found."""
    try:
        for candidate in _objects(resolve(validator.schema, validator.schema), validator.schema, 0):
            if validator.is_valid(candidate):
                return candidate
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None
    return None


def _objects(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    yield _object(schema, root, depth)
    for branches in (schema.get("anyOf"), schema.get("oneOf")):
        for branch in (branches if isinstance(branches, list) else [])[:6]:
            inner = resolve(root, branch)
            if isinstance(inner, Mapping):
                yield {**_object(schema, root, depth), **_object(inner, root, depth)}
    whole: dict[str, Any] = {}
    for part in schema.get("allOf") or ():
        inner = resolve(root, part)
        whole |= _object(inner, root, depth) if isinstance(inner, Mapping) else {}
    yield {**_object(schema, root, depth), **whole}


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    return {
        str(name): value(known.get(name, True), root, depth + 1)
        for name in (required if isinstance(required, list) else ())
    }


def value(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """One small value that probably fits a schema; the caller validates the whole."""
    schema = resolve(root, schema)
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "text"
    for keyword in ("const", "default"):
        if keyword in schema and schema[keyword] is not None:
            return schema[keyword]
    for keyword in ("examples", "enum"):
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            return schema[keyword][0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(keyword), list) and schema[keyword]:
            merged = {name: held for name, held in schema.items() if name != keyword}
            for part in schema["allOf"] if keyword == "allOf" else [_branch(schema[keyword], root)]:
                inner = resolve(root, part)
                merged |= inner if isinstance(inner, Mapping) else {}
            return value(merged, root, depth + 1)
    return _typed(schema, root, depth)


def _branch(branches: list[Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    found = [resolve(root, branch) for branch in branches]
    usable = [branch for branch in found if isinstance(branch, Mapping) and branch.get("type") != "null"]
    return usable[0] if usable else {"type": "null"}


def _typed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    match kind:
        case "integer" | "number":
            return _number(schema, whole=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            return _list(schema, root, depth)
        case "object":
            return _filled(next(_objects(schema, root, depth)), schema, root, depth)
    return _string(schema)


def _filled(made: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """With as many further keys as a map must have."""
    others, names = schema.get("additionalProperties", True), schema.get("propertyNames")
    for at in range(min(int(schema.get("minProperties", 0)), _MOST_ITEMS) - len(made)):
        name = str(value(names, root, depth + 1)) if isinstance(names, Mapping) else f"key{at + 1}"
        made[name] = value(others, root, depth + 1)
    return made


def _string(schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("pattern"), str):
        return sample(schema["pattern"]) or "text"
    text = "text"
    least, most = schema.get("minLength", 0), schema.get("maxLength", len(text) + 10_000)
    return (text + "x" * min(max(int(least) - len(text), 0), 10_000))[: int(most)]


def _number(schema: Mapping[str, Any], *, whole: bool) -> Any:
    step = schema.get("multipleOf", 1)
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None:
        low_open = "exclusiveMinimum" in schema and "minimum" not in schema
        if not whole and high is not None and "multipleOf" not in schema:
            return float(low + (high - low) / 2)
        found = -(-low // step) * step
        return found + step if low_open and found <= low else found
    if high is None:
        return step if step != 1 else 1
    found = min(high // step * step, step)
    return found - step if "exclusiveMaximum" in schema and found >= high else found


def _another(item: Any, made: list[Any]) -> Any:
    """An item that is not in the list yet, where that is easy."""
    if isinstance(item, str):
        return f"{item}{len(made)}"
    return item + len(made) if isinstance(item, int | float) else item


def _list(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[Any]:
    first = schema.get("prefixItems")
    made = [value(item, root, depth + 1) for item in (first if isinstance(first, list) else [])[:_MOST_ITEMS]]
    least = min(int(schema.get("minItems", 0)), _MOST_ITEMS)
    items = schema.get("items", True)
    while len(made) < least:
        item = value(items, root, depth + 1)
        made.append(_another(item, made) if item in made and schema.get("uniqueItems") else item)
    return made
