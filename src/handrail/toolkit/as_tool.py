"""Turn a function or an object of another system into a Tool, and make the tools that stand for missing ones."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.result import Failure
from handrail.misuse import close_names, refuse, shown
from handrail.threads import is_async
from handrail.toolkit.context import Body, Context
from handrail.toolkit.tool import Tool, ToolOptions, tool

CONTEXT_NAMES: Final = ("ctx", "context")
"""Names of the parameter by which `execute` takes the Context."""
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
TOOL_OPTIONS: Final = ("description", "output", *ToolOptions.__annotations__)
UNKNOWN: Final = "no_such_tool"
"""Name of the tool that stands for one that there is not."""
UNAVAILABLE: Final = "unavailable_tool"
"""Name of the tool that stands for one whose source does not answer."""


class Executes(Protocol):
    """A tool of another system."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def execute(self) -> Callable[..., Any]: ...


class ToolSource(Protocol):
    """A registry of tools that may change; each method is a `def` or an `async def`."""

    def get(self, name: str, /) -> Any:
        """The tool of this name, in any form that a Toolbox takes; None where there is none."""

    def all(self) -> Any:
        """A list of the tools."""


ToolLike = Tool | Callable[..., Any] | Executes


def as_tool(given: object) -> Tool:
    """Make a Tool of a typed function, or of an object with a name and parameters. Raises HandrailError."""
    if isinstance(given, Tool):
        return given
    if isinstance(given, type):
        raise HandrailError(f"{given.__qualname__} is a class, not a tool: give an instance of it, or a typed function")
    if getattr(given, "__module__", "") == "handrail.tools.builtin":
        raise HandrailError("builtin_tools is a function that returns tools; call it: [*builtin_tools(), …]")
    if isinstance(given, Collection) and not isinstance(given, str | Mapping) and not hasattr(given, "parameters"):
        raise HandrailError(
            f"{shown(given)} is not a tool; put its tools into the list with a star: [*builtin_tools(), …]"
        )
    if isinstance(given, str):
        raise HandrailError(
            f"{given!r} is the name of a tool, not a tool; give the tool itself: a typed function, a Tool, or those of "
            "builtin_tools()"
        )
    if hasattr(given, "name") and hasattr(given, "parameters") and (body := _body_of(given)) is not None:
        options = {option: getattr(given, option) for option in TOOL_OPTIONS if hasattr(given, option)}
        options = {option: value for option, value in options.items() if value is not None or option == "timeout"}
        return Tool(given.name, given.parameters, body, **options)
    if callable(given):
        return tool(given)
    raise HandrailError(
        f"{shown(given)} is not a tool: give a typed function, a Tool, or an object with name and parameters, and with "
        "`__call__(context, arguments)`, `__call__(ctx, **arguments)` or `execute(**arguments)`"
    )


def listed(tools: object) -> Iterable[ToolLike]:
    """The tools, where they are a list. Raises HandrailError."""
    if isinstance(tools, str) or (not isinstance(tools, Iterable) and not callable(tools)):
        refuse("tools", tools, "a list of tools such as builtin_tools() or [my_function]")
    if isinstance(tools, Mapping):
        refuse("tools", tools, "a list of its values; each tool has its name already")
    if not isinstance(tools, Iterable):
        own = getattr(tools, "__module__", "") == "handrail.tools.builtin"
        name = getattr(tools, "name", getattr(tools, "__name__", "my_tool"))
        refuse("tools", tools, "builtin_tools(), with parentheses" if own else f"a list, even of one: [{name}]")
    return tools


def place_of(tool: Tool) -> str:
    """Name the place where a tool's function is defined, for a message."""
    source = tool.function or tool.body
    return f"{getattr(source, '__module__', '?')}.{getattr(source, '__qualname__', type(source).__qualname__)}"


def is_ours(tool: Tool) -> bool:
    """Whether a tool is one of Handrail's own."""
    return str(getattr(tool.function or tool.body, "__module__", "")).startswith("handrail.")


def unknown_tool(known: Mapping[str, Tool]) -> Tool:
    """The tool that answers every call of a name that is not known."""

    async def answer(context: Context, arguments: Mapping[str, Any]) -> Any:
        name = context.call.name
        near = close_names(name, known, count=3)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        listed = ", ".join(sorted(known)[:40]) or "none"
        message = f"There is no tool called {name[:100]!r}. {hint}The tools are: {listed}."
        raise ToolFailed(Failure("tool_not_found", message, data={"near": near} if near else None))

    return Tool(UNKNOWN, {"type": "object"}, answer)


def unavailable_tool(name: str) -> Tool:
    """The tool that answers for one whose source does not answer."""
    message = f"{name} cannot be called now: the program that provides the tools does not answer. Try again later."

    async def answer(context: Context, arguments: Mapping[str, Any]) -> Any:
        raise ToolFailed(Failure("unavailable", message))

    return Tool(UNAVAILABLE, {"type": "object"}, answer)


def none_if_unknown(name: str, error: KeyError) -> Any:
    """Take `tools[name]` of a dictionary that lacks the name for None; raise any other KeyError again."""
    if error.args != (name,):
        raise error
    return None


def _body_of(given: Any) -> Body | None:
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
    """Parameters of a function; None for a function of C that does not tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _takes_mapping(function: Callable[..., Any], properties: Collection[str]) -> bool:
    """Whether it takes the Context and all arguments as one mapping, and not each argument by its name."""
    taken = _parameters(function)
    if taken is None or any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in taken):
        return True
    second = [each.name for each in taken if each.kind in POSITIONAL][1:2]
    return bool(second) and (second[0] == "arguments" or second[0] not in properties)


def _is_first(function: Callable[..., Any], properties: Collection[str]) -> bool:
    """Whether its first parameter is the Context: it is not an argument."""
    taken = _parameters(function) or []
    return len(taken) > 0 and taken[0].kind in POSITIONAL and taken[0].name not in properties


def _by_name(function: Callable[..., Any], first: bool, name: str | None) -> Body:
    """A body that gives each argument by its name, and the Context as the first value or by this name, if either."""

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await function(*((context,) if first else ()), **({name: context} if name else {}), **arguments)

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        return function(*((context,) if first else ()), **({name: context} if name else {}), **arguments)

    return waits if is_async(function) else runs
