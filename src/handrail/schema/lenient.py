"""Make a schema from outside compile by leaving out what cannot be enforced, and say what that was."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from handrail.contract.errors import BadSchema
from handrail.schema.walk import Schema, point, rewrite
from handrail.schema.words import dotted, show

Reason = tuple[Sequence[str | int], str]
MOST_REMOVED: Final = 100


def loosen(schema: Schema, why_not: Callable[[Schema], Reason | None]) -> tuple[Schema, tuple[str, ...]]:
    """A schema that compiles, and a warning for each thing that is not enforced. Raises BadSchema when hopeless."""
    warnings: list[str] = []
    schema = _local_only(schema, warnings)
    for _ in range(MOST_REMOVED):
        reason = why_not(schema)
        if reason is None:
            return _as_object(schema, warnings), tuple(warnings)
        where, words = reason
        removed = _remove(schema, where)
        if removed is None:
            raise BadSchema(f"the schema does not compile, not even leniently: {words}")
        warnings.append(f"{removed} is not enforced: {words}")
    raise BadSchema(f"the schema has more than {MOST_REMOVED} things that do not compile")


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
    """Take out the innermost keyword on the way; its place in words, or None where there is none."""
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
