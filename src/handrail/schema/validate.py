"""Enforce a JSON Schema in about a microsecond, and explain what is wrong when asked."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jsonschema_rs as engine

from handrail.contract.errors import BadSchema
from handrail.schema._aliases import wrong_aliases
from handrail.schema._fast_path import Traits, traits_of
from handrail.schema._formats import only_checked
from handrail.schema.artifact_refs import accept_references, references
from handrail.schema.describe import dotted, shorten, show
from handrail.schema.explain import Problem, Subject, explain
from handrail.schema.navigate import (
    Location,
    Schema,
    Spec,
    Steps,
    children,
    escape,
    located,
    point,
    resolve,
    rewrite,
    spec_at,
)
from handrail.schema.parse import NotJson, count_values, parse, too_deep

__all__ = ["Problem", "Validator"]

MAX_BRANCHES_COUNT: Final = 20_000
"""Number of schemas one value may be checked against; with more, a small schema could stall the process."""
FEW_BRANCHES: Final = 100
"""Number of schemas that do not stall the process, however large the value is."""
MAX_CHECKS_COUNT: Final = 50_000_000
"""Branches times values, about half a second of work: a larger value is not checked against such a schema."""

DRAFTS: Final = frozenset(
    {
        f"json-schema.org/{draft}/schema"
        for draft in ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")
    }
)
Reason = tuple[Sequence[str | int], str]
MAX_NOT_ENFORCED_COUNT: Final = 100
_UNEXPLAINED: Final = Problem("", "the value does not fit its schema", "a value that fits", "another one")


class Validator:
    """A compiled object schema. Patterns run in linear time, and nothing is ever fetched.

    Raises BadSchema for a schema that does not compile, whose root is not an object, or that has outside references.
    """

    __slots__ = (
        "_compiled",
        "_inner",
        "_plain",
        "_referring",
        "_specs",
        "branches",
        "is_valid",
        "of",
        "schema",
        "traits",
        "typed",
    )

    schema: dict[str, Any]
    branches: int
    """Number of schemas that one value may have to be checked against."""
    typed: bool
    """Whether arguments are converted to Python types, so that some formats are checked."""
    traits: Traits
    is_valid: Callable[[Any], bool]
    """Whether an instance that does not overload the schema is valid; accepts plain JSON values only."""

    def __init__(
        self,
        schema: Mapping[str, Any],
        *,
        of: Subject = "arguments",
        typed: bool = False,
        most: int = MAX_BRANCHES_COUNT,
    ) -> None:
        """Compile a schema. `of` is what it describes; only arguments must be objects. `most` is how many branches."""
        self.of = of
        self.schema, self.branches = _copy(schema, most)
        self.typed = typed
        root = resolve(self.schema, self.schema)
        if of == "arguments" and (not isinstance(root, Mapping) or root.get("type") != "object"):
            raise BadSchema('the root of a tool\'s schema must say "type": "object"')
        self._compiled = _compile(self.schema, typed=typed)
        self._inner: engine.ValidatorMap | None = None
        self._referring: Validator | None = None
        self._plain: Validator | None = None
        self._specs: dict[Location, Spec] = {}
        self.is_valid = self._compiled.is_valid
        self.traits = traits_of(self.schema)

    @classmethod
    def lenient(cls, schema: Mapping[str, Any], *, of: Subject = "arguments") -> tuple["Validator", tuple[str, ...]]:
        """Compile as much of an outside schema as possible; the warnings say what is not enforced."""
        loosened, warnings = loosen(_copy(schema, MAX_BRANCHES_COUNT)[0], _why_not, of)
        validator = cls(loosened, of=of)
        defaults = [(*steps, "default") for steps, _ in validator.refused_defaults()]
        refused = {**dict.fromkeys(defaults, "its own schema does not accept it"), **dict(wrong_aliases(loosened))}
        left_out = [f"{_remove(loosened, steps)} is left out: {why}" for steps, why in refused.items()]
        return (cls(loosened, of=of) if left_out else validator), (*warnings, *left_out)

    def check_defaults(self) -> None:
        """Raise BadSchema for a default that its own schema refuses."""
        for steps, default in self.refused_defaults():
            parameter = f"parameter {steps[1]!r}" if steps[:1] == ("properties",) else "the schema"
            where = f" at {dotted(steps)}" if len(steps) > 2 else ""
            message = "that does not fit: its own schema does not accept it"
            raise BadSchema(f"{parameter} has a default{where}, {show(default)}, {message}")

    def check_aliases(self) -> None:
        """Raise BadSchema for an alias that is a declared name, or that two properties share."""
        for _, why in wrong_aliases(self.schema) if self.traits.aliases else ():
            raise BadSchema(why)

    def refused_defaults(self) -> Iterator[tuple[Steps, Any]]:
        """Locations of defaults that the schema refuses; null always means that nothing was given."""
        for steps, schema in located(self.schema):
            default = schema.get("default")
            pointer = "#" + "".join(f"/{escape(str(step))}" for step in steps)
            if default is not None and not self.fits((pointer,), default):
                yield steps, default

    def problems(self, instance: Any) -> list[Problem]:
        """Problems of an instance, in the order of the schema; empty if the instance is valid."""
        if self.overloaded_by(instance):
            return [self.overload(instance)]
        if self.is_valid(instance):
            return []
        if self._plain is not None:
            filled_in = {dotted(path) for path, _ in references(instance)}
            inside = tuple(f"{path}{step}" for path in filled_in for step in ".[")
            found = self._plain.problems(instance)
            problems = [one for one in found if one.path not in filled_in and not one.path.startswith(inside)]
            if problems:
                return problems
        return explain(self.schema, self.fits, instance, self.of) or [_UNEXPLAINED]

    def overloaded_by(self, instance: Any) -> bool:
        """Whether the schema has so many branches that a value of this size would stall the process."""
        most = MAX_CHECKS_COUNT // self.branches
        return self.branches > FEW_BRANCHES and count_values(instance, most) > most

    def overload(self, instance: Any) -> Problem:
        """The problem of a value that is not checked because of its size."""
        most = f"at most {MAX_CHECKS_COUNT // self.branches:,} values, as its schema has {self.branches:,} branches"
        where = f"the {self.of}" if self.of != "text" else "the value"
        return Problem("", f"{where} cannot be checked: there may be {most}", most, show(instance))

    def spec(self, location: Location) -> Spec:
        """The schema's keywords at a location; cached."""
        result = self._specs.get(location)
        if result is None:
            result = self._specs[location] = spec_at(self.schema, location)
        return result

    def fits(self, location: Location, value: Any) -> bool:
        """Whether a value fits the schema at a location such as `("#/properties/path",)`."""
        if self._inner is None:
            checked, checks = _as_checked(self.schema, typed=self.typed)
            self._inner = engine.validator_map_for(
                checked,
                pattern_options=engine.RegexOptions(),
                offline=True,
                formats=checks,
                validate_formats=self.typed,
            )
        inner = [self._inner.get(pointer) for pointer in location]
        return all(one is None or one.is_valid(value) for one in inner)

    @property
    def with_references(self) -> "Validator":
        """A validator of the same schema in which every inner value may be `{"$artifact": ref}`."""
        if self._referring is None:
            self._referring = Validator(accept_references(self.schema), typed=self.typed, most=10 * MAX_BRANCHES_COUNT)
            self._referring._plain = self
        return self._referring


def _cost(root: Mapping[str, Any], schema: Any, known: dict[str, int]) -> int:
    """How many schemas one value may have to be checked against; a recursive reference counts once."""
    if not isinstance(schema, Mapping):
        return 0
    checked = {keyword: inner for keyword, inner in schema.items() if keyword not in ("$defs", "definitions")}
    total = 1 + sum(_cost(root, inner, known) for inner in children(checked))
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = 1
            known[reference] = _cost(root, point(root, reference), known)
        total += known[reference]
    return total


def _compile(schema: Mapping[str, Any], *, typed: bool = False) -> engine.Validator:
    checked, checks = _as_checked(schema, typed=typed)
    try:
        return engine.validator_for(
            checked,
            pattern_options=engine.RegexOptions(),
            offline=True,
            formats=checks,
            validate_formats=typed,
        )
    except engine.ValidationError as error:
        where = dotted(error.instance_path)
        raise BadSchema(f"the schema does not compile{f' at {where}' if where else ''}: {_reason(error)}") from error
    except (ValueError, TypeError, RecursionError, engine.ReferencingError) as error:
        raise BadSchema(f"the schema does not compile: {shorten(str(error), 200)}") from error


def _as_checked(schema: Mapping[str, Any], *, typed: bool) -> tuple[dict[str, Any], dict[str, Callable[[str], bool]]]:
    """The schema to compile, and the checks of its formats.

    One that names no draft, or an unknown one, is read by the latest draft.
    """
    draft = schema.get("$schema")
    known = isinstance(draft, str) and draft.rstrip("#").partition("://")[2] in DRAFTS
    checked = {keyword: value for keyword, value in schema.items() if known or keyword != "$schema"}
    return only_checked(checked, _checker) if typed else (checked, {})


def _checker(schema: Schema) -> Callable[[str], bool]:
    """A check of a text that holds JSON; its schema, which may refer to itself, is compiled by the first text."""
    compiled: list[Validator] = []

    def check(text: str) -> bool:
        try:
            value = parse(text)
        except NotJson:
            return False
        if not compiled:
            compiled.append(Validator(schema, of="text", typed=True))
        return compiled[0].is_valid(value)

    return check


def _why_not(schema: dict[str, Any]) -> Reason | None:
    try:
        _compile(schema)
    except BadSchema as bad:
        cause = bad.__cause__
        if isinstance(cause, engine.ValidationError):
            return cause.instance_path, _reason(cause)
        return (), str(bad)
    return None


def _reason(error: engine.ValidationError) -> str:
    reason = shorten(error.message, 200)
    if "egex" in reason:
        return f"{reason}; patterns must run in linear time, so there is no look-around and no back-reference"
    if "etriev" in reason or "registry" in reason:
        return "a $ref leads outside the schema, which is never fetched"
    return reason


def _copy(schema: Mapping[str, Any], most: int) -> tuple[dict[str, Any], int]:
    """A copy, and how many branches it has."""
    if not isinstance(schema, Mapping):
        raise BadSchema(f"a tool's schema is an object, not {type(schema).__name__}")
    try:
        copy = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(f"the schema is not JSON: {error}") from None
    if too_deep(copy):
        raise BadSchema("the schema is nested too deeply")
    try:
        cost = _cost(copy, copy, {})
    except RecursionError:
        raise BadSchema("the schema is nested too deeply") from None
    if cost > most:
        raise BadSchema(f"the schema has more than {most:,} branches when its references are written out")
    return dict(copy), cost


def loosen(
    schema: Schema, why_not: Callable[[Schema], Reason | None], of: Subject = "arguments"
) -> tuple[Schema, tuple[str, ...]]:
    """A schema that compiles, and a warning for each thing that is not enforced. Raises BadSchema if there is none."""
    warnings: list[str] = []
    schema = _local_only(schema, warnings)
    for _ in range(MAX_NOT_ENFORCED_COUNT):
        reason = why_not(schema)
        if reason is None:
            return (_as_object(schema, warnings) if of == "arguments" else schema), tuple(warnings)
        where, words = reason
        removed = _remove(schema, where)
        if removed is None:
            raise BadSchema(f"the schema does not compile, even leniently: {words}")
        warnings.append(f"{removed} is not enforced: {words}")
    raise BadSchema(f"the schema has more than {MAX_NOT_ENFORCED_COUNT} things that do not compile")


def _local_only(schema: Schema, warnings: list[str]) -> Schema:
    def change(inner: Schema) -> Schema:
        reference = inner.get("$ref")
        if reference is None or (isinstance(reference, str) and _leads_somewhere(schema, reference)):
            return inner
        warnings.append(f"$ref {show(reference)} is not enforced: it leads nowhere inside the schema")
        return {keyword: value for keyword, value in inner.items() if keyword != "$ref"}

    return dict(rewrite(schema, change))


def _leads_somewhere(schema: Schema, reference: str) -> bool:
    return reference == "#" or (reference.startswith("#/") and point(schema, reference) != {})


def _remove(schema: Schema, where: Sequence[str | int]) -> str | None:
    """Remove the innermost keyword on the path; its path in words, or None if there is none."""
    steps = list(where)
    while steps:
        here: Any = schema
        for step in steps[:-1]:
            here = here[step]
        if isinstance(here, dict) and steps[-1] in here:
            del here[steps[-1]]
            return f"`{dotted(steps)}`"
        steps.pop()
    return None


def _as_object(schema: Schema, warnings: list[str]) -> Schema:
    if schema.get("type") == "object":
        return schema
    if "type" in schema:
        warnings.append(f"`type` {show(schema['type'])} is not enforced: the arguments are always an object")
    return {**schema, "type": "object"}
