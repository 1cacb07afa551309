"""Resolve annotations as they were meant where the function was written."""

import sys
import typing
from collections.abc import Callable, Mapping
from functools import reduce
from inspect import unwrap
from operator import or_
from types import UnionType
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import typing_extensions

from handrail.contract.errors import BadSchema
from handrail.contract.result import ArtifactRef, Failure, Image, Success

_CONTRACT = (Success, Failure, Image, ArtifactRef)
_make_dict: Any = typing_extensions.TypedDict
_REQUIRED = (Required, typing_extensions.Required)
_QUALIFIERS = (*_REQUIRED, NotRequired, typing_extensions.NotRequired)
_NEEDS_MODERN = sys.version_info < (3, 12)


def resolve_hints(function: Callable[..., Any], local_names: Mapping[str, Any]) -> dict[str, Any]:
    """Every annotation as a type, with names of the enclosing scopes. Raises BadSchema naming the parameter."""
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
    found: dict[str, Any] = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return found


def is_contract(annotation: Any) -> bool:
    """Whether one of the contract's own results, images or references is anywhere in it."""
    if isinstance(annotation, type) and issubclass(annotation, _CONTRACT):
        return True
    return any(is_contract(argument) for argument in get_args(annotation))


def modern(annotation: Any, known: dict[Any, Any] | None = None) -> Any:
    """The same annotation, in which every `typing.TypedDict` is one that can be checked on this Python too."""
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
    """A copy that is entered before its fields are read, because they may mention it."""
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
