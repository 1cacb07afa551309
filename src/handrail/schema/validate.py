"""Enforce a JSON Schema in about a microsecond, and say what is wrong in plain words when asked."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import jsonschema_rs as engine

from handrail.contract.errors import BadSchema
from handrail.schema.parse import too_deep
from handrail.schema.walk import resolve
from handrail.schema.words import describe, dotted, near, shorten, show

MOST_PROBLEMS: Final = 50
_MISSING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the arguments."""

    path: str
    """Dotted, such as `items[0].name`; empty for the arguments as a whole."""
    message: str
    expected: str
    received: str


class Validator:
    """A compiled object schema. Patterns run in linear time, and nothing is ever fetched.

    Raises BadSchema for a schema that does not compile, whose root is no object, or that refers elsewhere.
    """

    __slots__ = ("_compiled", "is_valid", "schema")

    schema: dict[str, Any]
    is_valid: Callable[[Any], bool]
    """Whether an instance fits; takes plain JSON values only."""

    def __init__(self, schema: Mapping[str, Any], *, any_root: bool = False) -> None:
        """`any_root` is for what a tool returns, which may be anything."""
        self.schema = _copy(schema)
        root = resolve(self.schema, self.schema)
        if not any_root and (not isinstance(root, Mapping) or root.get("type") != "object"):
            raise BadSchema('the root of a tool\'s schema must say "type": "object"')
        self._compiled = compile_schema(self.schema)
        self.is_valid = self._compiled.is_valid

    def problems(self, instance: Any) -> list[Problem]:
        """Everything that is wrong, in the order of the schema; empty when the instance is valid."""
        found: list[Problem] = []
        for error in islice(self._compiled.iter_errors(instance), MOST_PROBLEMS):
            found.extend(islice(_explain(error, self.schema), MOST_PROBLEMS))
        return found[:MOST_PROBLEMS]


def compile_schema(schema: Mapping[str, Any]) -> engine.Validator:
    """The engine's own object for any schema. Raises BadSchema with the reason."""
    known = schema.get("$schema")
    detect = isinstance(known, str) and known.startswith(("http://json-schema.org/", "https://json-schema.org/"))
    make = engine.validator_for if detect else engine.Draft202012Validator
    try:
        return make(dict(schema), pattern_options=engine.RegexOptions(), offline=True, validate_formats=False)
    except engine.ValidationError as error:
        where = dotted(error.instance_path)
        reason = _schema_reason(error)
        raise BadSchema(f"the schema does not compile{f' at {where}' if where else ''}: {reason}") from None
    except (ValueError, TypeError, RecursionError, engine.ReferencingError) as error:
        raise BadSchema(f"the schema does not compile: {shorten(str(error), 200)}") from None


def _schema_reason(error: engine.ValidationError) -> str:
    reason = error.message
    if "egex" in reason:
        return f"{reason}; patterns must run in linear time, so there is no look-around and no back-reference"
    if "etriev" in reason or "registry" in reason:
        return f"a $ref leads outside the schema, and nothing is fetched ({shorten(reason, 120)})"
    return shorten(reason, 200)


def _copy(schema: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise BadSchema(f"a tool's schema is an object, not {type(schema).__name__}")
    try:
        copy = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(f"the schema is not JSON: {error}") from None
    if too_deep(copy):
        raise BadSchema("the schema is nested too deeply")
    return dict(copy)


def _explain(error: engine.ValidationError, root: Mapping[str, Any]) -> Iterator[Problem]:
    path, kind, details = tuple(error.instance_path), error.kind.name, error.kind.as_dict()
    schema = _at(root, error.evaluation_path[:-1])
    if kind == "required":
        name = str(details.get("property"))
        wanted = describe(_properties(schema, root).get(name, True), root)
        yield Problem(dotted((*path, name)), f"`{dotted((*path, name))}` is missing", wanted, _MISSING)
    elif kind in ("additionalProperties", "unevaluatedProperties"):
        yield from _unknown(error, path, list(_properties(schema, root)), details.get("unexpected") or [])
    else:
        yield _wrong(error, path, describe(schema, root), details)


def _unknown(
    error: engine.ValidationError, path: tuple[str | int, ...], declared: list[str], unexpected: list[str]
) -> Iterator[Problem]:
    instance = error.instance if isinstance(error.instance, dict) else {}
    wanted = f"only {', '.join(declared[:20])}" if declared else "no keys at all"
    missing = [name for name in declared if name not in instance]
    for name in unexpected[:MOST_PROBLEMS]:
        where, meant = dotted((*path, shorten(name))), near(name, missing)
        hint = f": you sent `{shorten(name)}`, the schema has `{meant}`" if meant else ""
        yield Problem(where, f"`{where}` is not known{hint}", wanted, show(instance.get(name)))


def _wrong(
    error: engine.ValidationError, path: tuple[str | int, ...], wanted: str, details: Mapping[str, Any]
) -> Problem:
    where = dotted(path)
    subject = f"`{where}`" if where else "the whole of the arguments"
    meant = near(error.instance, details.get("options") or ())
    hint = f": you sent {show(error.instance)}, did you mean {show(meant)}?" if meant else ""
    return Problem(where, f"{subject} must be {wanted}{hint}", wanted, show(error.instance))


def _at(root: Mapping[str, Any], steps: list[str | int]) -> Any:
    here: Any = root
    for step in steps:
        if step == "$ref":
            here = resolve(root, here)
        elif isinstance(here, Mapping) and str(step) in here:
            here = here[str(step)]
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
        else:
            return True
    return here


def _properties(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = resolve(root, schema)
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) else {}
