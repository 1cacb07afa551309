"""Derive a schema from a typed function: the function accepts whatever the schema accepts."""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NotRequired, Union, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, Field, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError, to_jsonable_python

from handrail.contract.errors import BadSchema
from handrail.lazy import Lazy
from handrail.schema._types import Strict, is_contract, misplaced, modern, resolve_hints, tidy
from handrail.schema.describe import dotted, shorten, show
from handrail.schema.explain import Convert, NotConvertible, Problem
from handrail.schema.navigate import OWN_KEYWORDS, escape, kind_of
from handrail.schema.validate import Validator

if TYPE_CHECKING:
    import docstring_parser as _docstrings
else:  # docstrings of one line do not need it
    _docstrings = Lazy("docstring_parser")

__all__ = ["Derived", "NotConvertible", "derive"]

_PLAIN = (str, int, bool, type(None))
_CONTAINERS = (list, tuple, dict, set, frozenset)
_HARMLESS_KEYWORDS = frozenset({"type", "default", "description", *OWN_KEYWORDS})
_NO_DEFAULT: Any = inspect.Parameter.empty
_REFUSED: Mapping[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "it takes any number of values (*args); write a list: `values: list[str]`",
    inspect.Parameter.VAR_KEYWORD: "it takes any names (**kwargs); write each name, or `values: dict[str, str]`",
    inspect.Parameter.POSITIONAL_ONLY: "it can only be given by position; leave out the `/`",
}
_UNKNOWN_TYPE: Final = re.compile(r"Unable to generate pydantic-core schema for (.+?)\. Set ")
_make_dict: Any = typing_extensions.TypedDict


@dataclass(frozen=True, slots=True)
class Derived:
    """Schema and description by a function's signature and docstring."""

    description: str
    parameters: dict[str, Any]
    output: dict[str, Any] | None
    """Schema of the returned value; None if the return annotation says nothing that could be checked."""
    convert: Convert
    """Function that converts plain JSON to the function's own types. Raises NotConvertible."""
    context_parameter: str | None
    """Name of the parameter that the runtime fills in, not the model."""


def derive(function: Callable[..., Any], *, injected: type, local_names: Mapping[str, Any] | None = None) -> Derived:
    """Read signature and docstring. Raises BadSchema naming the parameter that has no schema."""
    origin, bound = (function.func, function.keywords) if isinstance(function, partial) else (function, {})
    documented = read_docstring(inspect.getdoc(origin))
    hints = resolve_hints(origin, local_names or {})
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    context: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        if name in bound:  # by a partial
            continue
        annotation = _annotation(name, parameter, hints)
        if _is_injected(annotation, injected):
            if context is not None:
                raise BadSchema(f"parameters {context!r} and {name!r} are both the {injected.__name__}")
            context = name
            continue
        if parameter.default is not _NO_DEFAULT and not isinstance(parameter.default, FieldInfo):
            defaults[name] = parameter.default
        fields[name] = _field(annotation, parameter.default, documented.parameters.get(name))
    adapter, raw = _adapter(fields)
    schema = tidy(raw)
    _write_defaults(schema, fields, defaults)
    _check_defaults(schema, fields, defaults)
    return Derived(documented.description, schema, _output(hints), _converter(adapter), context)


def _annotation(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    if parameter.kind in _REFUSED:
        raise BadSchema(f"parameter {name!r} cannot be in a schema: {_REFUSED[parameter.kind]}")
    if name not in hints:
        wanted = "Context" if name in ("context", "ctx") else "str"
        raise BadSchema(f"parameter {name!r} has no annotation, so it has no schema; write `{name}: {wanted}`, say")
    return hints[name]


def _is_injected(annotation: Any, injected: type) -> bool:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if _is_union(annotation):
        others = [argument for argument in get_args(annotation) if argument is not type(None)]
        return len(others) == 1 and _is_injected(others[0], injected)
    return annotation is injected or get_origin(annotation) is injected


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _field(annotation: Any, default: Any, description: str | None) -> Any:
    optional = default is not _NO_DEFAULT and not isinstance(default, FieldInfo)
    annotation = modern(_without_sentinel(annotation, default) if optional else annotation)
    extras: list[Any] = [default] if isinstance(default, FieldInfo) else []
    infos = [item for item in (*get_args(annotation)[1:], *extras) if isinstance(item, FieldInfo)]
    description = _beside(annotation) or description
    if description and not any(info.description for info in infos):
        extras.append(Field(description=description))
    for extra in extras:
        annotation = Annotated[annotation, extra]
    given = any(not info.is_required() for info in infos)
    return NotRequired[annotation] if optional or given else annotation


def _beside(annotation: Any) -> str | None:
    """The text of `Annotated[int, "text"]`, also if that is a member of a union."""
    for inner in (annotation, *(get_args(annotation) if _is_union(annotation) else ())):
        for item in getattr(inner, "__metadata__", ()):
            text = item if isinstance(item, str) else getattr(item, "documentation", None)
            if isinstance(text, str) and text.strip():
                return text.strip()
    return None


def _is_sentinel(default: Any) -> bool:
    """Whether a default only means that nothing was given: it cannot be written as JSON."""
    if type(default) in (*_PLAIN, float, *_CONTAINERS):
        return False
    try:
        to_jsonable_python(default)
    except Exception:  # noqa: BLE001 - it has no JSON form, for whatever reason
        return True
    return False


def _without_sentinel(annotation: Any, default: Any) -> Any:
    """The annotation without the sentinel that is its default and that a model cannot send."""
    if not _is_union(annotation) or not _is_sentinel(default):
        return annotation
    left = [item for item in get_args(annotation) if item is not default and item is not type(default)]
    return reduce(or_, left) if left else annotation


def _adapter(fields: Mapping[str, Any]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    try:
        return _build(fields)
    except Exception as whole:  # noqa: BLE001 - a type may raise anything while it is read
        for name, annotation in fields.items():
            try:
                _build({name: annotation})
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this parameter's
                raise BadSchema(f"parameter {name!r} has no schema: {_reason(error)}") from None
        raise BadSchema(f"the parameters have no schema: {_reason(whole)}") from None


def _build(fields: Mapping[str, Any]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    shape = _make_dict("arguments", dict(fields))
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    schema = adapter.json_schema(schema_generator=Strict)
    json.dumps(schema, allow_nan=False)
    if wrong := misplaced(schema):
        raise BadSchema(wrong)
    return adapter, schema


def _reason(error: BaseException) -> str:
    """The line that names the cause: the last one of a SchemaError, which lists what was being built first."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, PydanticSchemaGenerationError) and (unknown := _UNKNOWN_TYPE.match(lines[0])):
        return f"{unknown[1]} is not a type that JSON can hold; write a dataclass, a TypedDict or a pydantic model"
    line = lines[-1].strip().removeprefix("error: ") if isinstance(error, SchemaError) else lines[0]
    return shorten(line, 200)


def _write_defaults(schema: dict[str, Any], fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    names = dict(zip(fields, schema.get("properties", {}), strict=True))
    for name, default in defaults.items():
        if not _is_sentinel(default):
            described = schema["properties"][names[name]]
            described["default"] = default if type(default) in _PLAIN else _as_json(name, fields[name], default)


def _as_json(name: str, annotation: Any, default: Any) -> Any:
    (inner,) = get_args(annotation)  # it is NotRequired[...]
    try:
        made = TypeAdapter(inner).dump_python(default, mode="json", warnings="error", by_alias=True)
        json.dumps(made, allow_nan=False)
        return made
    except Exception as error:  # noqa: BLE001 - a type may raise anything while it is written
        raise BadSchema(
            f"parameter {name!r} has a default that cannot be written into a schema: {_reason(error)}"
        ) from None


def _check_defaults(schema: dict[str, Any], fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise BadSchema for a default that its own type refuses; None always means that nothing was given."""
    doubtful = [name for name, described in schema.get("properties", {}).items() if _is_doubtful(described)]
    if not doubtful:
        return
    names = dict(zip(schema["properties"], fields, strict=True))
    checks = Validator(schema)
    for name in doubtful:
        default, own = schema["properties"][name]["default"], names[name]
        problem = None if checks.fits((f"#/properties/{escape(name)}",), default) else "its type does not accept it"
        if problem is None and isinstance(default, str):
            problem = _refusal(fields[own], defaults.get(own, default))
        if problem:
            raise BadSchema(f"parameter {own!r} has a default, {show(default)}, that does not fit: {problem}")


def _is_doubtful(described: Mapping[str, Any]) -> bool:
    """Whether the default must be validated to see that it fits."""
    default = described.get("default")
    plainly = described.get("type") == kind_of(default) and described.keys() <= _HARMLESS_KEYWORDS
    return default is not None and not plainly


def _refusal(annotation: Any, default: Any) -> str | None:
    """Why a type refuses a text that its schema accepts, such as one that is not a date."""
    (inner,) = get_args(annotation)  # it is NotRequired[...]
    bare = get_args(inner)[0] if get_origin(inner) is Annotated else inner
    if bare is str or get_origin(bare) is Literal:
        return None
    try:
        TypeAdapter(inner).validate_python(default)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return None


def _output(hints: Mapping[str, Any]) -> dict[str, Any] | None:
    annotation = hints.get("return", Any)
    if annotation is Any or annotation is object or is_contract(annotation):
        return None
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(modern(annotation))
        return tidy(adapter.json_schema(mode="serialization", schema_generator=Strict))
    except Exception as error:  # noqa: BLE001 - a type may raise anything while it is read
        raise BadSchema(f"the return type has no schema: {_reason(error)}") from None


def _converter(adapter: TypeAdapter[Any]) -> Convert:
    check = adapter.validator.validate_python

    def convert(arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            converted: dict[str, Any] = check(arguments)
        except ValidationError as error:
            raise NotConvertible(_problems(error, arguments)) from None
        except Exception as error:  # noqa: BLE001 - a validator of the user's own may raise anything
            message = f"the arguments were refused: {_reason(error)}"
            raise NotConvertible([Problem("", message, "values that the tool's own checks accept", "")]) from None
        return converted

    return convert


def _problems(error: ValidationError, arguments: Mapping[str, Any]) -> list[Problem]:
    result: dict[tuple[str, str], Problem] = {}
    for item in error.errors(include_url=False, include_context=False):
        path, value = _follow(item["loc"], arguments)
        reason = shorten(item["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, "), 200)
        where = dotted(path)
        message = f"`{where}` was refused: {reason}" if where else f"the arguments were refused: {reason}"
        result[where, reason] = Problem(where, message, reason, show(value))
    return list(result.values())


def _follow(location: tuple[int | str, ...], value: Any) -> tuple[list[int | str], Any]:
    """The steps of pydantic's location that exist in the value; the others name union branches."""
    path: list[int | str] = []
    for step in location:
        inside = isinstance(step, int) and isinstance(value, list | tuple) and 0 <= step < len(value)
        if inside or (isinstance(value, Mapping) and step in value):
            value = value[step]
            path.append(step)
    return path, value


@dataclass(frozen=True, slots=True)
class Documented:
    """The parts of a docstring in Google, NumPy or reST style."""

    description: str = ""
    """Everything except the parameter section."""
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(text: str | None) -> Documented:
    """Parse a docstring. Never fails: one of unknown style is all description."""
    text = inspect.cleandoc(text or "")
    if "\n" not in text and not text.startswith((":", "@")):  # one line, and not one about a parameter
        return Documented(text)
    try:
        parsed = _docstrings.parse(text)
    except _docstrings.ParseError:
        return Documented(text)
    parameters = {
        entry.arg_name: " ".join((entry.description or "").split())
        for entry in parsed.meta
        if isinstance(entry, _docstrings.DocstringParam) and entry.description
    }
    return Documented(_description(parsed), parameters)


def _description(parsed: "_docstrings.Docstring") -> str:
    head = [parsed.short_description, parsed.long_description]
    parts = [part.strip() for part in head if part and part.strip()]
    notes = [
        _note(entry) for entry in parsed.meta if not isinstance(entry, _docstrings.DocstringParam) and entry.description
    ]
    return "\n\n".join([*parts, *notes])


def _note(entry: "_docstrings.DocstringMeta") -> str:
    label = "Returns" if isinstance(entry, _docstrings.DocstringReturns) else " ".join(entry.args).capitalize()
    return f"{label}: {' '.join((entry.description or '').split())}"
