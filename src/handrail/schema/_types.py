"""Turn Python annotations into JSON Schemas that are strict and short."""

import sys
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from inspect import unwrap
from operator import or_
from types import UnionType
from typing import Annotated, Any, Final, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import ByteSize
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from handrail.contract.errors import BadSchema
from handrail.contract.result import ArtifactRef, Failure, Image, Success
from handrail.schema.navigate import OWN_KEYWORDS, Schema, children, rewrite

_CONTRACT = (Success, Failure, Image, ArtifactRef, bytes)
"""Types that a body may return without a check by a schema: bytes become a text, or an artifact."""
_make_dict: Any = typing_extensions.TypedDict
_REQUIRED = (Required, typing_extensions.Required)
_QUALIFIERS = (*_REQUIRED, NotRequired, typing_extensions.NotRequired)
_NEEDS_MODERN = sys.version_info < (3, 12)
_DEFINITIONS: Final = "#/$defs/"
_MAY_STAND_BESIDE_REF: Final = frozenset(
    {"$ref", "default", "description", "title", "examples", "deprecated", *OWN_KEYWORDS}
)
"""Keywords that mean the same beside a `$ref` and in its target."""
_NUMBER_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_TEXT_BOUNDS: Final = frozenset({"minLength", "maxLength", "pattern"})
_LIST_BOUNDS: Final = frozenset({"minItems", "maxItems"})
_WRONG_BOUNDS: Final = {
    "string": _NUMBER_BOUNDS | _LIST_BOUNDS,
    "array": _NUMBER_BOUNDS | _TEXT_BOUNDS,
    "integer": _TEXT_BOUNDS | _LIST_BOUNDS,
    "number": _TEXT_BOUNDS | _LIST_BOUNDS,
    "boolean": _TEXT_BOUNDS | _LIST_BOUNDS,
}
"""Bounds that do not apply to a type."""
_IGNORED_BOUNDS: Final = {"ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length"}
"""Keywords that pydantic leaves in a schema for a bound that does not apply to the type."""

_SIZE_PATTERN: Final = r"^\s*[0-9]{1,15}\s*([A-Za-z]*|\.[0-9]{1,9}\s*[KMGTPEkmgtpe][A-Za-z]*)\s*$"
"""A complete size in whole bytes: pydantic's own pattern reads `1,000` as 1."""
_NUMBER_KEY: Final = {"pattern": r"^(0|-?(0\.|[1-9][0-9]{0,14}\.)[0-9]{0,14}[1-9]|-?[1-9][0-9]{0,14})$"}
_KEY_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "int": {"pattern": "^-?(0|[1-9][0-9]{0,17})$"},
    "float": _NUMBER_KEY,
    "decimal": _NUMBER_KEY,
    "bool": {"enum": ["true", "false"]},
    "date": {"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
}
"""One spelling for each key that is not text, so that two keys never become the same."""
_SIZE_KEY: Final = {"anyOf": [{"pattern": _SIZE_PATTERN}, _KEY_SCHEMAS["int"]]}


def resolve_hints(function: Callable[..., Any], local_names: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve every annotation to a type, with names of enclosing scopes. Raises BadSchema naming the parameter."""
    inner = unwrap(getattr(function, "__func__", function))
    inner = inner if hasattr(inner, "__annotations__") else getattr(type(function), "__call__", function)  # noqa: B004
    names = {**_closure(inner), **local_names}
    try:
        return get_type_hints(inner, localns=names, include_extras=True)
    except Exception as whole:  # noqa: BLE001 - an annotation is code, and may raise anything
        for name, annotation in getattr(inner, "__annotations__", {}).items():
            try:
                alone = type("alone", (), {"__annotations__": {name: annotation}})
                get_type_hints(alone, globalns=getattr(inner, "__globals__", {}), localns=names)
            except Exception as error:  # noqa: BLE001 - the same
                raise BadSchema(f"parameter {name!r} has an annotation that cannot be read: {error}") from None
        raise BadSchema(f"the annotations cannot be read: {whole}") from None


def _closure(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    result: dict[str, Any] = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            result[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return result


def is_contract(annotation: Any) -> bool:
    """Whether an annotation contains a result, image or artifact reference of the contract."""
    if isinstance(annotation, type) and issubclass(annotation, _CONTRACT):
        return True
    return any(is_contract(argument) for argument in get_args(annotation))


def modern(annotation: Any, known: dict[Any, Any] | None = None) -> Any:
    """The same annotation with every `typing.TypedDict` replaced by one that pydantic accepts on this Python."""
    known = {} if known is None else known
    if not _NEEDS_MODERN:
        return annotation
    if typing.is_typeddict(annotation) or typing_extensions.is_typeddict(annotation):
        return known[annotation] if annotation in known else _modern_dict(annotation, known)
    arguments = get_args(annotation)
    changed = tuple(modern(item, known) if not isinstance(item, list) else item for item in arguments)
    if all(old is new for old, new in zip(arguments, changed, strict=True)):
        return annotation
    origin = get_origin(annotation)
    if origin is Annotated:
        return Annotated[(changed[0], *annotation.__metadata__)]
    if origin in (UnionType, Union):
        return reduce(or_, changed)
    return origin[changed] if origin is not None else annotation


def _modern_dict(old: Any, known: dict[Any, Any]) -> Any:
    """A copy that is registered before its fields are read, because they may refer to it."""
    made = known[old] = _make_dict(old.__name__, {})
    fields: dict[str, Any] = {}
    required: set[str] = set()
    for name, hint in get_type_hints(old, include_extras=True).items():
        origin = get_origin(hint)
        fields[name] = modern(get_args(hint)[0] if origin in _QUALIFIERS else hint, known)
        if origin in _REQUIRED or (origin not in _QUALIFIERS and name in old.__required_keys__):
            required.add(name)
    made.__annotations__ = fields
    made.__required_keys__, made.__optional_keys__ = frozenset(required), frozenset(fields.keys() - required)
    made.__doc__, made.__module__ = old.__doc__, old.__module__
    if hasattr(old, "__pydantic_config__"):
        made.__pydantic_config__ = old.__pydantic_config__
    return made


class Strict(GenerateJsonSchema):
    """Generate schemas that say what a type really accepts where pydantic's own do not; never warns."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        names = self._key_schema(schema.get("keys_schema", {"type": "any"}))
        if names and (names is _KEY_SCHEMAS["int"] or self.mode == "validation"):
            made["propertyNames"] = dict(names)
        return made

    def _key_schema(self, schema: Any) -> Mapping[str, Any] | None:
        """Schema of a key of this type that gives it one reading; None if any text will do."""
        kind = schema["type"]
        if kind == "str" and schema.get("pattern") == ByteSize.byte_string_pattern:
            return {"pattern": _SIZE_PATTERN}
        if kind == "union":
            branches = [
                self._key_schema(choice[0] if isinstance(choice, tuple) else choice) for choice in schema["choices"]
            ]
            return {"anyOf": [dict(branch) for branch in branches if branch]} if all(branches) else None
        inner = schema.get("schema") if kind == "nullable" or kind.startswith("function-") else None
        return _KEY_SCHEMAS.get(kind) if inner is None else self._key_schema(inner)

    def union_schema(self, schema: core_schema.UnionSchema) -> JsonSchemaValue:
        """Refuse, by TypeError, a size beside a text: pydantic reads `1,000` as the size 1 instead of as the text."""
        choices = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
        sizes = [choice for choice in choices if self._key_schema(choice) == _SIZE_KEY]
        others = [self.generate_inner(choice) for choice in choices if choice not in sizes]
        if sizes and any(not made or (made.get("type") == "string" and "enum" not in made) for made in others):
            raise TypeError("a ByteSize and a text cannot be told apart in a union")
        return super().union_schema(schema)

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Refuse, by TypeError, a type that would import a module the model names, before the call is approved."""
        if getattr(schema.get("function", {}).get("function"), "__name__", "") == "import_string":
            raise TypeError("an ImportString imports code while the arguments are still being checked")
        return super().generate_inner(schema)

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        made = super().str_schema(schema)
        return {**made, "pattern": _SIZE_PATTERN} if made.get("pattern") == ByteSize.byte_string_pattern else made

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Mark a number that becomes a Decimal: unlike a float, a Decimal represents every integer."""
        made = super().decimal_schema(schema)
        for branch in made.get("anyOf", ()):
            if branch.get("type") == "number":
                branch["format"] = "decimal"
        return made

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        return {**super().complex_schema(schema), "pattern": r"^[0-9eEjJ+.()\s-]+$"}


def tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Close every object that lists its properties unless its type allows more keys; drop generated titles."""
    return _inlined(dict(rewrite(schema, _tidy_one)))


def _tidy_one(schema: Schema) -> Schema:
    if isinstance(schema.get("title"), str):
        del schema["title"]
    branches = schema.get("anyOf") or []
    if {"type": "string", "format": "fraction"} in branches:  # the float 0.1 is not exactly a tenth
        schema["anyOf"] = [{"type": "integer"} if branch == {"type": "number"} else branch for branch in branches]
    if "properties" in schema and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    return schema


def misplaced(schema: Any) -> str | None:
    """A bound that does not apply to its type, or None."""
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    wrong = (_WRONG_BOUNDS.get(kind, frozenset()) if isinstance(kind, str) else frozenset()) & schema.keys()
    wrong |= {keyword for keyword in _IGNORED_BOUNDS & schema.keys() if isinstance(schema[keyword], int | float)}
    if wrong:
        return f"a bound ({min(wrong)}) that does not apply to its type"
    return next(filter(None, map(misplaced, children(schema))), None)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline definitions that are used once and do not refer to themselves."""
    definitions = schema.get("$defs") or {}
    once = _used_once(schema, definitions)

    def change(inner: Schema) -> Schema:
        mapping = inner.get("discriminator", {}).get("mapping")
        if mapping:
            left = {tag: target for tag, target in mapping.items() if target.removeprefix(_DEFINITIONS) not in once}
            others = {keyword: value for keyword, value in inner["discriminator"].items() if keyword != "mapping"}
            inner["discriminator"] = {**others, "mapping": left} if left else others
        name = inner.get("$ref", "").removeprefix(_DEFINITIONS)
        if name not in once:
            return inner
        target = rewrite(definitions[name], change)
        both = [one["description"] for one in (inner, target) if one.get("description")]
        beside = {keyword: value for keyword, value in inner.items() if keyword != "$ref"}
        return {**target, **beside, **({"description": "\n\n".join(dict.fromkeys(both))} if both else {})}

    kept = {name: rewrite(definition, change) for name, definition in definitions.items() if name not in once}
    rest = rewrite({keyword: value for keyword, value in schema.items() if keyword != "$defs"}, change)
    return {"$defs": kept, **rest} if kept else dict(rest)


def _used_once(schema: Schema, definitions: Mapping[str, Any]) -> set[str]:
    uses = Counter(name for name, _ in _references(schema))
    plainly = {name for name, inner in _references(schema) if inner.keys() <= _MAY_STAND_BESIDE_REF}
    inside = {name: {used for used, _ in _references(definition)} for name, definition in definitions.items()}
    return {name for name in definitions if uses[name] == 1 and name in plainly and not _is_recursive(name, inside)}


def _is_recursive(name: str, inside: Mapping[str, set[str]]) -> bool:
    """Whether a definition refers to itself, directly or not."""
    seen: set[str] = set()
    waiting = list(inside[name])
    while waiting:
        here = waiting.pop()
        if here not in seen:
            seen.add(here)
            waiting.extend(inside.get(here, ()))
    return name in seen


def _references(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The name of each definition that is referred to, and the schema that refers to it."""
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"].removeprefix(_DEFINITIONS), schema
    for inner in children(schema):
        yield from _references(inner)
