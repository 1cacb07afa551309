"""The body of a tool that is an object of another system."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from handrail.threads import is_async
from handrail.toolkit.context import Body, Context

CONTEXT_NAMES: Final = ("ctx", "context")
"""Names of the parameter by which `execute` takes the Context."""
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def body_of(given: Any) -> Body | None:
    """The body of an object with `parameters`: the object itself if it can be called, or its method `execute`."""
    properties = given.parameters.get("properties", {}) if isinstance(given.parameters, Mapping) else {}
    if callable(given):
        return given if _takes_mapping(given, properties) else _by_name(given, _is_first(given, properties), None)
    execute = getattr(given, "execute", None)
    if not callable(execute):
        return None
    named = [each.name for each in _parameters(execute) or () if each.kind is not inspect.Parameter.VAR_KEYWORD]
    wanted = (name for name in CONTEXT_NAMES if name in named and name not in properties)
    return _by_name(execute, False, next(wanted, None))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """The parameters of a callable; None for a C function that does not tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _takes_mapping(function: Callable[..., Any], properties: Collection[str]) -> bool:
    """Whether a callable takes the Context and all arguments as one mapping, not each argument by name."""
    taken = _parameters(function)
    if taken is None or any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in taken):
        return True
    second = [each.name for each in taken if each.kind in POSITIONAL][1:2]
    return bool(second) and (second[0] == "arguments" or second[0] not in properties)


def _is_first(function: Callable[..., Any], properties: Collection[str]) -> bool:
    """Whether the first parameter is the Context, and so not an argument."""
    taken = _parameters(function) or []
    return len(taken) > 0 and taken[0].kind in POSITIONAL and taken[0].name not in properties


def _by_name(function: Callable[..., Any], first: bool, name: str | None) -> Body:
    """A body that gives each argument by its name, and the Context as the first value or by this name, if either."""

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await function(*((context,) if first else ()), **({name: context} if name else {}), **arguments)

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        return function(*((context,) if first else ()), **({name: context} if name else {}), **arguments)

    return waits if is_async(function) else runs
