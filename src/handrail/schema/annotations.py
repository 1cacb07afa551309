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


def modern(annotation: Any) -> Any:
    """The same annotation, in which every `typing.TypedDict` is one that can be checked on this Python too."""
    if not _NEEDS_MODERN:
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _modern_dict(annotation)
    arguments = get_args(annotation)
    changed = tuple(modern(argument) if not isinstance(argument, list) else argument for argument in arguments)
    if all(old is new for old, new in zip(arguments, changed, strict=True)):
        return annotation
    origin = get_origin(annotation)
    if origin is Annotated:
        return Annotated[(changed[0], *annotation.__metadata__)]
    if origin in (UnionType, Union):
        return reduce(or_, changed)
    return origin[changed] if origin is not None else annotation


def _modern_dict(old: Any) -> Any:
    hints = get_type_hints(old, include_extras=True)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        origin = get_origin(hint)
        bare = modern(get_args(hint)[0] if origin in (Required, NotRequired) else hint)
        needed = origin is Required or (origin is not NotRequired and name in old.__required_keys__)
        fields[name] = bare if needed else NotRequired[bare]
    made: Any = _make_dict(old.__name__, fields)
    made.__doc__ = old.__doc__
    return made
