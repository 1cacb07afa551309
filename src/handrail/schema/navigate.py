"""Navigate a JSON Schema: walk it by its grammar, follow references, read what it says at a location.

A location is a tuple of pointers such as `#/properties/path`; a value fits a location if it fits every one of them.
Walking by the grammar means that a property called `title` is never taken for the keyword.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

Schema = dict[str, Any]
Change = Callable[[Schema], Schema]

OWN_KEYWORDS: Final = ("aliases", "blank", "consequential", "only_reads")
"""Keywords for Handrail, not for the model."""
HOLD_ONE_SCHEMA: Final = ("additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else",
              "unevaluatedProperties", "unevaluatedItems", "additionalItems", "contentSchema")  # fmt: skip
"""Keywords that hold one schema."""
HOLD_SCHEMAS: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
"""Keywords that hold a list of schemas; `items` did so in old drafts."""
HOLD_NAMED_SCHEMAS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords that hold schemas by name."""

Location = tuple[str, ...]
Steps = tuple[str | int, ...]
ROOT: Final[Location] = ("#",)


def children(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every schema directly inside this one; `true` and `false` are left out."""
    return (inner for _, inner in _inner(schema) if isinstance(inner, Mapping))


def located(schema: Mapping[str, Any], steps: Steps = ()) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """This schema and every schema inside it, each with the steps that lead there; references are not followed."""
    yield steps, schema
    for more, inner in _inner(schema):
        if isinstance(inner, Mapping):
            yield from located(inner, (*steps, *more))


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[Steps, Any]]:
    for keyword in HOLD_ONE_SCHEMA:
        yield (keyword,), schema.get(keyword)
    for keyword in HOLD_SCHEMAS:
        if isinstance(schema.get(keyword), list):
            yield from (((keyword, at), item) for at, item in enumerate(schema[keyword]))
    for keyword in HOLD_NAMED_SCHEMAS:
        if isinstance(schema.get(keyword), Mapping):
            yield from (((keyword, name), item) for name, item in schema[keyword].items())


def rewrite(schema: Any, change: Change) -> Any:
    """A copy with `change` applied to every schema, inner ones first; the order of keys is kept."""
    if not isinstance(schema, Mapping):
        return schema
    copy: Schema = {}
    for keyword, value in schema.items():
        if keyword in HOLD_NAMED_SCHEMAS and isinstance(value, Mapping):
            copy[keyword] = {name: rewrite(item, change) for name, item in value.items()}
        elif keyword in HOLD_SCHEMAS and isinstance(value, list):
            copy[keyword] = [rewrite(item, change) for item in value]
        elif keyword in HOLD_ONE_SCHEMA:
            copy[keyword] = rewrite(value, change)
        else:
            copy[keyword] = value
    return change(copy)


def resolve(root: Mapping[str, Any], schema: Any) -> Any:
    """Follow local `$ref`s to the end; {} for one that leads nowhere or in a circle."""
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
    """The target of a local reference such as `#/$defs/Item`; {} if there is none."""
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


def aliases_of(schema: Any) -> tuple[str, ...]:
    """The other names of a property, as its own schema declares them, or one branch of it: `Name | None`."""
    if not isinstance(schema, Mapping):
        return ()
    branches = schema.get("anyOf")
    schemas = [schema, *(branches if isinstance(branches, list) else ())]
    lists = [each.get("aliases") for each in schemas if isinstance(each, Mapping)]
    return tuple(name for names in lists if isinstance(names, list) for name in names if isinstance(name, str))


@dataclass(frozen=True)
class Spec:
    """Everything a schema says at one location, through `$ref` and `allOf`; branches are listed, not chosen."""

    schemas: tuple[tuple[str, Mapping[str, Any]], ...]
    branches: tuple[tuple[str, Location], ...]
    """Each `anyOf` or `oneOf`: its own pointer, and those of its branches."""

    def has(self, keyword: str) -> bool:
        """Whether a keyword is present here."""
        return any(keyword in schema for _, schema in self.schemas)

    def get(self, keyword: str) -> Any:
        """The value of a keyword, from the outermost schema that has it; None if none has."""
        return next((schema[keyword] for _, schema in self.schemas if keyword in schema), None)

    @cached_property
    def kinds(self) -> frozenset[str] | None:
        """The JSON types that are accepted here; None for any."""
        result: frozenset[str] | None = None
        for _, schema in self.schemas:
            kinds = _kinds(schema)
            if kinds is not None:
                result = kinds if result is None else result & kinds
        return result

    @cached_property
    def members(self) -> list[Any] | None:
        """The members of the enum, or the one constant; None if there is neither."""
        if any("const" in schema for _, schema in self.schemas):
            return [self.get("const")]
        members = self.get("enum")
        return members if isinstance(members, list) else None

    @cached_property
    def required(self) -> list[str]:
        """The names of the required properties."""
        lists = [schema["required"] for _, schema in self.schemas if isinstance(schema.get("required"), list)]
        return [name for names in lists for name in names if isinstance(name, str)]

    @cached_property
    def properties(self) -> dict[str, Location]:
        """Each declared property and its location."""
        result: dict[str, Location] = {}
        for pointer, schema in self.schemas:
            if isinstance(schema.get("properties"), Mapping):
                for name in schema["properties"]:
                    result[name] = (*result.get(name, ()), f"{pointer}/properties/{escape(name)}")
        return result

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Each alias and the property it is declared for; without those that are properties or have two meanings."""
        meanings: dict[str, set[str]] = {}
        for _, schema in self.schemas:
            properties = schema.get("properties")
            for name, inner in properties.items() if isinstance(properties, Mapping) else ():
                for alias in aliases_of(inner):
                    meanings.setdefault(alias, set()).add(name)
        single = {alias: next(iter(names)) for alias, names in meanings.items() if len(names) == 1}
        return {alias: name for alias, name in single.items() if alias not in self.properties}

    @cached_property
    def closed(self) -> bool:
        """Whether unknown keys are refused outright."""
        return any(schema.get("additionalProperties") is False for _, schema in self.schemas)

    @cached_property
    def patterned(self) -> bool:
        """Whether keys may be declared by a pattern."""
        return any("patternProperties" in schema for _, schema in self.schemas)

    @cached_property
    def silent(self) -> bool:
        """Whether the schema says nothing about unknown keys, so that they pass without being wanted."""
        wanted = self.get("unevaluatedProperties") not in (None, False)
        return not wanted and not self.has("additionalProperties") and not self.patterned

    @cached_property
    def others(self) -> Location:
        """The location of the values of undeclared keys; empty if anything or nothing is accepted."""
        return self._inner("additionalProperties")

    def item(self, at: int) -> Location:
        """The location of a list's item; empty if anything is accepted."""
        first = [f"{pointer}/{at}" for pointer, length in self._first_items if at < length]
        return tuple(first) or self._other_items

    @cached_property
    def _first_items(self) -> list[tuple[str, int]]:
        """Each list of schemas for the first items, and its length."""
        return [
            (f"{pointer}/{keyword}", len(schema[keyword]))
            for pointer, schema in self.schemas
            for keyword in ("prefixItems", "items")
            if isinstance(schema.get(keyword), list)
        ]

    @cached_property
    def _other_items(self) -> Location:
        return self._inner("items")

    def _inner(self, keyword: str) -> Location:
        return tuple(f"{p}/{keyword}" for p, schema in self.schemas if isinstance(schema.get(keyword), Mapping))


def spec_at(root: Mapping[str, Any], location: Location) -> Spec:
    """Read what a schema says at a location; circular references are followed once."""
    schemas: dict[str, Mapping[str, Any]] = {}
    branches: dict[str, Location] = {}
    waiting = list(location)
    while waiting:
        pointer = waiting.pop(0)
        schema = point(root, pointer)
        if pointer in schemas or not isinstance(schema, Mapping):
            continue
        schemas[pointer] = schema
        waiting.extend(_further(pointer, schema))
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                inner = tuple(f"{pointer}/{keyword}/{at}" for at in range(len(schema[keyword])))
                branches[f"{pointer}/{keyword}"] = inner
    return Spec(tuple(schemas.items()), tuple(branches.items()))


def kind_of(value: Any) -> str:
    """The JSON type of a value; a whole number is an `integer`."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if value is None:
        return "null"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array" if isinstance(value, list | tuple) else "other"


def takes(root: Mapping[str, Any], location: Location, kind: str, known: dict[Location, bool] | None = None) -> bool:
    """Whether a JSON type is accepted at a location, in at least one branch.

    `known` holds the answers so far: branches that share what they refer to are as many as their paths there.
    """
    known = {} if known is None else known
    if location not in known:
        known[location] = True  # where a branch leads back to it
        spec = spec_at(root, location)
        kinds = spec.kinds
        fits = kinds is None or kind in kinds or (kind == "integer" and "number" in kinds)
        known[location] = fits and all(
            any(takes(root, (inner,), kind, known) for inner in group) for _, group in spec.branches
        )
    return known[location]


def only_members(root: Mapping[str, Any], location: Location, known: dict[Location, bool] | None = None) -> bool:
    """Whether a text at a location must be a member of an enum, in every branch that accepts text."""
    known = {} if known is None else known
    if location not in known:
        known[location] = False  # where a branch leads back to it
        spec, takers = spec_at(root, location), dict[Location, bool]()
        groups = [[inner for inner in group if takes(root, (inner,), "string", takers)] for _, group in spec.branches]
        known[location] = spec.members is not None or any(
            group and all(only_members(root, (inner,), known) for inner in group) for group in groups
        )
    return known[location]


def _further(pointer: str, schema: Mapping[str, Any]) -> Iterator[str]:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        yield reference
    if isinstance(schema.get("allOf"), list):
        yield from (f"{pointer}/allOf/{at}" for at in range(len(schema["allOf"])))


def _kinds(schema: Mapping[str, Any]) -> frozenset[str] | None:
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return frozenset((kinds,))
    if isinstance(kinds, list):
        return frozenset(kind for kind in kinds if isinstance(kind, str))
    members = [schema["const"]] if "const" in schema else schema.get("enum")
    return frozenset(map(kind_of, members)) if isinstance(members, list) else None


def escape(name: str) -> str:
    """A name as a step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")
