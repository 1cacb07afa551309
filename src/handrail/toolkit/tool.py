"""A tool: a name, a description, a JSON Schema and a body; made by `@tool` from a typed function, or by hand."""

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Final, Generic, Literal, TypedDict, Unpack, get_args, overload

from typing_extensions import ParamSpec, TypeVar

from handrail.contract.approval import Effect, Risk
from handrail.contract.call import Origin
from handrail.contract.driver import Feature
from handrail.contract.errors import BadSchema, HandrailError
from handrail.contract.limits import TOOL_TIMEOUT
from handrail.schema.derive import derive
from handrail.schema.validate import Validator
from handrail.toolkit.context import Body, Context
from handrail.toolkit.isolated import refuse_unimportable

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)
ALL: Final[frozenset[Origin]] = frozenset(get_args(Origin))
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
Runs = Literal["async", "thread", "process"]


class ToolOptions(TypedDict, total=False):
    """What `@tool(…)` and `Tool(…)` both take. What an option means is said at its field of Tool."""

    risk: Risk
    effects: Collection[Effect]
    timeout: float | None
    lane: str | None
    needs: Collection[Feature]
    callable_from: Collection[Origin]
    deferred: bool
    output_cap: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Tool(Generic[P, R]):
    """Checked when it is made: a tool that exists can be offered to a model. `body(context, arguments)` answers.

    Calling the tool calls the plain function that `@tool` made it of, without gates: for that function's own tests.
    """

    name: str
    parameters: Mapping[str, Any]
    body: Body = field(repr=False)
    description: str = field(default="", kw_only=True)
    output: Mapping[str, Any] | None = field(default=None, kw_only=True)
    """The schema of what the body returns; what breaks it is an execution_error."""
    risk: Risk = field(default="safe", kw_only=True)
    effects: Collection[Effect] = field(default=frozenset(), kw_only=True)
    timeout: float | None = field(default=TOOL_TIMEOUT, kw_only=True)
    """Seconds for one call; None when the tool keeps its own clock."""
    lane: str | None = field(default=None, kw_only=True)
    needs: Collection[Feature] = field(default=frozenset(), kw_only=True)
    """What the sandbox must enforce."""
    callable_from: Collection[Origin] = field(default=ALL, kw_only=True)
    deferred: bool = field(default=False, kw_only=True)
    """Stays out of the schemas until it is searched for."""
    output_cap: int | None = field(default=None, kw_only=True)
    """Characters of the answer; None means the default for its kind."""
    function: Callable[P, R] | None = field(default=None, kw_only=True, repr=False)
    """The original function, where `@tool` made this."""
    convert: Callable[[Mapping[str, Any]], dict[str, Any]] | None = field(default=None, kw_only=True, repr=False)
    """Turns validated JSON into the function's own types."""
    isolate: bool = field(default=False, kw_only=True)
    checks: Validator = field(init=False, repr=False)
    output_checks: Validator | None = field(init=False, repr=False)
    runs: Runs = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "description", "" if self.description is None else self.description)
        _check_name(self.name)
        _check_options(self)
        _refuse_generator(self.name, self.body)
        put(self, "effects", _subset(self, "effects", self.effects, Effect))
        put(self, "needs", _subset(self, "needs", self.needs, Feature))
        put(self, "callable_from", _subset(self, "callable_from", self.callable_from, Origin))
        try:
            put(self, "checks", Validator(self.parameters, typed=self.convert is not None))
            put(self, "output_checks", None if self.output is None else Validator(self.output, any_root=True))
        except BadSchema as error:
            raise BadSchema(f"tool {self.name}: {error}") from None
        put(self, "parameters", self.checks.schema)  # what is shown is what is checked, whatever the giver does to his
        put(self, "runs", "process" if self.isolate else "async" if _is_async(self.body) else "thread")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.function is None:
            raise HandrailError(f"tool {self.name} was not made of a function, so it can only be called by a session")
        return self.function(*args, **kwargs)

    @property
    def own(self) -> bool:
        """Whether the schema was derived by `@tool`; one from outside is treated more literally."""
        return self.function is not None


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise HandrailError(f"tool name {name!r} is not 1 to 64 of the characters A-Z, a-z, 0-9, _ and -")


def _check_options(tool: Tool) -> None:
    name = tool.name
    if not callable(tool.body):
        raise HandrailError(f"tool {name}: body {tool.body!r} cannot be called")
    if not isinstance(tool.parameters, Mapping):
        raise HandrailError(f"tool {name}: parameters are a JSON Schema object, not {type(tool.parameters).__name__}")
    if not isinstance(tool.description, str):
        raise HandrailError(f"tool {name}: description is text, not {type(tool.description).__name__}")
    if tool.risk not in get_args(Risk):
        raise HandrailError(f"tool {name}: risk {tool.risk!r} is not one of {', '.join(get_args(Risk))}")
    if tool.timeout is not None and not (_is_number(tool.timeout) and tool.timeout > 0):
        raise HandrailError(f"tool {name}: timeout {tool.timeout!r} is not a number of seconds above 0, nor None")
    if tool.output_cap is not None and not (type(tool.output_cap) is int and tool.output_cap > 0):
        raise HandrailError(f"tool {name}: output_cap {tool.output_cap!r} is not a number of characters above 0")
    if tool.isolate and tool.function is None:
        raise HandrailError(f"tool {name}: isolate=True is for functions: make it with @tool(isolate=True)")


def _refuse_generator(name: str, body: Callable[..., Any]) -> None:
    if inspect.isasyncgenfunction(body) or inspect.isasyncgenfunction(getattr(body, "__call__", None)):  # noqa: B004
        raise HandrailError(
            f"tool {name}: its function is an async generator, and a call has one answer: return a list, "
            "and show what comes before it with context.show()"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _subset(tool: Tool, option: str, given: Collection[str], allowed: Any) -> frozenset[str]:
    words = frozenset({given} if isinstance(given, str) else given)
    if unknown := words - set(get_args(allowed)):
        wrong, right = ", ".join(sorted(map(repr, unknown))), ", ".join(get_args(allowed))
        raise HandrailError(f"tool {tool.name}: {option} {wrong} is not one of {right}")
    return words


def _is_async(body: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(getattr(body, "__call__", None))  # noqa: B004


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, isolate: bool = False, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    isolate: bool = False,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a Tool of a typed function: the schema comes from its signature and docstring.

    `isolate=True` runs it in a process of its own, which is killed at the deadline with all it started.
    """
    if unknown := options.keys() - ToolOptions.__annotations__.keys():
        raise TypeError(f"tool() has no option {', '.join(sorted(unknown))}")
    names = sys._getframe(1).f_locals  # types that were defined beside the function

    def make(function: Callable[..., Any]) -> Tool:
        return _make(function, names, name, description, isolate, options)

    return make if fn is None else make(fn)


def _make(
    fn: Callable[..., Any], names: Mapping[str, Any], name: str | None, description: str | None, isolate: bool,
    options: ToolOptions,
) -> Tool:  # fmt: skip
    if isinstance(fn, Tool) or not callable(fn):
        raise HandrailError(f"tool() takes a function, not {type(fn).__name__}")
    named = fn.func if isinstance(fn, partial) else fn
    title = name if name is not None else getattr(named, "__name__", type(named).__name__)
    _check_name(title)
    _refuse_generator(title, fn)
    try:
        derived = derive(fn, injected=Context, local_names=names)
    except BadSchema as error:
        raise BadSchema(f"tool {title}: {error}") from None
    if isolate:
        refuse_unimportable(title, fn, derived.context_parameter)
    return Tool(
        title,
        derived.parameters,
        _body(fn, derived.context_parameter),
        description=derived.description if description is None else description,
        output=derived.output,
        function=fn,
        convert=derived.convert,
        isolate=isolate,
        **options,
    )


def _body(fn: Callable[..., Any], context_parameter: str | None) -> Body:
    """A body for a function: its arguments by name, and the Context where it asks for one."""

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await fn(**arguments)

    async def waits_with_context(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await fn(**arguments, **{context_parameter: context})  # type: ignore[arg-type]

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        return fn(**arguments)

    def runs_with_context(context: Context, arguments: Mapping[str, Any]) -> Any:
        return fn(**arguments, **{context_parameter: context})  # type: ignore[arg-type]

    if _is_async(fn):
        return waits if context_parameter is None else waits_with_context
    return runs if context_parameter is None else runs_with_context
