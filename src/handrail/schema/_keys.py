"""Interpret the keys of an object: another spelling of a declared key, a wrapper, a flag, an echoed schema."""

from collections.abc import Mapping
from typing import Any, Final

from handrail.schema.describe import fold
from handrail.schema.navigate import Location, Spec, aliases_of, children
from handrail.schema.parse import NotJson, parse
from handrail.schema.validate import Validator

WRAPPERS: Final = ("properties", "arguments", "parameters", "args", "input")
_SCHEMA_KEYWORDS: Final = ("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const")


def known(validator: Validator, spec: Spec) -> set[str]:
    """Every key that is declared for an object, in at least one branch."""
    result, waiting, seen = set(spec.properties), [spec], set[str]()
    while waiting:
        for _, group in waiting.pop().branches:
            for inner in group:
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(validator.spec((inner,)))
                    result.update(waiting[-1].properties)
    return result


def respelled(validator: Validator, spec: Spec, value: Mapping[str, Any]) -> dict[str, str]:
    """Map each unknown key that can only mean one absent declared key to that key.

    If the schema allows additional keys, an unknown key is taken literally unless a required one is missing.
    """
    declared = spec.properties
    if spec.patterned or spec.others or all(name in declared for name in value):
        return {}
    everything = known(validator, spec)
    meant: dict[str, set[str]] = {}
    for name in (*everything, *spec.aliases):
        meant.setdefault(fold(name), set()).add(spec.aliases.get(name, name))
    taken = everything | spec.aliases.keys()  # an alias in its own spelling is not a guess, or is not single
    sent = _by_fold(name for name in value if name not in taken and not name.lstrip().startswith("-"))
    wanted = declared.keys() if spec.closed or spec.silent else set(spec.required) & declared.keys()
    found: dict[str, list[str]] = {}
    for folded, written in sent.items():
        choices = meant.get(folded, set())
        if len(choices) == 1 and (target := next(iter(choices))) in wanted and target not in value:
            found.setdefault(target, []).extend(written)
    return {written[0]: target for target, written in found.items() if len(written) == 1}


def dashed(validator: Validator, spec: Spec, value: Mapping[str, Any]) -> list[str]:
    """Unknown keys that are a declared key behind a dash, such as `-path`: their meaning is not clear."""
    dashed = [name for name in value if name.lstrip().startswith("-") and name not in spec.properties]
    everything = known(validator, spec) if dashed else set[str]()
    meant = _by_fold(everything)
    return [name for name in dashed if name not in everything and fold(name) in meant]


def unwrapped(validator: Validator, spec: Spec, value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object inside a wrapper: an undeclared key, alone in its object, around declared keys."""
    if len(value) != 1 or (name := next(iter(value))) not in WRAPPERS or name in known(validator, spec):
        return None
    inner = _decoded(value[name])
    if not isinstance(inner, dict) or _is_schemas(validator, spec, inner):
        return None
    return inner if holds_declared(validator, spec, inner) else None


def holds_declared(validator: Validator, spec: Spec, value: Mapping[str, Any]) -> bool:
    """Whether an object has a declared key, possibly in another spelling."""
    declared = known(validator, spec) | spec.aliases.keys()
    return not declared.isdisjoint(value) or bool(respelled(validator, spec, value))


def may_be_pair(value: Any) -> bool:
    """Whether an object may be a single key-value pair, such as `{"name": "HOME", "value": "/root"}`."""
    return isinstance(value, dict) and len(value) == 2 and any(isinstance(item, str) for item in value.values())


def echoes(validator: Validator, location: Location, value: Any, *, least: int) -> bool:
    """Whether a value repeats its own schema: the whole of it, or at least `least` keywords."""
    if not isinstance(value, dict) or not any(keyword in value for keyword in _SCHEMA_KEYWORDS):
        return False
    own = [schema for _, schema in validator.spec(location).schemas]
    if len(value) < least and value not in own:
        return False
    return all(any(key in schema and schema[key] == item for schema in own) for key, item in value.items())


def echoed(validator: Validator, spec: Spec, value: Mapping[str, Any]) -> list[str]:
    """The keys that hold the schema shown to the model instead of a value."""
    declared = spec.properties
    result = [name for name in value if name in declared and echoes(validator, declared[name], value[name], least=2)]
    wrapped = [name for name in WRAPPERS if name in value and name not in declared]
    return result + [name for name in wrapped if _is_schemas(validator, spec, _decoded(value[name]))]


def _decoded(value: Any) -> Any:
    """A value; for a text that holds JSON, the value in it."""
    try:
        return parse(value) if isinstance(value, str) else value
    except NotJson:
        return value


def _is_schemas(validator: Validator, spec: Spec, value: Any) -> bool:
    """Whether every key is declared and holds its own schema."""
    declared = spec.properties
    if not isinstance(value, dict) or not value:
        return False
    return all(name in declared and echoes(validator, declared[name], item, least=1) for name, item in value.items())


def _by_fold(names: Any) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for name in names:
        result.setdefault(fold(name), []).append(name)
    return result


def declared_keys(schema: Mapping[str, Any]) -> frozenset[str]:
    """Every property that a schema names, at any level, folded."""
    names: set[str] = set()
    waiting: list[Mapping[str, Any]] = [schema]
    while waiting:
        here = waiting.pop()
        waiting.extend(children(here))
        if isinstance(here.get("properties"), Mapping):
            for name, inner in here["properties"].items():
                names.update(map(fold, (name, *aliases_of(inner))))
    return frozenset(names)
