"""A tool: a name, a description, a JSON Schema and a body; made by `@tool` from a typed function, or by hand."""

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, Literal, TypedDict, Unpack, get_args, overload
from weakref import WeakSet

from typing_extensions import ParamSpec, TypeVar

from handrail.contract.approval import Effect, Risk
from handrail.contract.call import Origin
from handrail.contract.driver import Feature
from handrail.contract.errors import BadSchema, HandrailError, ToolFailed
from handrail.contract.limits import TOOL_TIMEOUT
from handrail.contract.result import Failure
from handrail.misuse import explains_misuse, nearest, refuse, shown
from handrail.schema.derive import derive
from handrail.schema.describe import show
from handrail.schema.explain import Convert, NotConvertible, Problem
from handrail.schema.validate import Validator
from handrail.threads import is_async
from handrail.toolkit._tool_options import (
    Blank,
    Returns,
    check_name,
    check_options,
    names,
    refuse_generator,
    risk,
    subset,
)
from handrail.toolkit.context import Body, Context
from handrail.toolkit.isolated import refuse_unimportable

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)
ALL: Final[frozenset[Origin]] = frozenset(get_args(Origin))
Runs = Literal["async", "thread", "process"]
Validate = Callable[[Mapping[str, Any]], object]
_undescribed: "WeakSet[Callable[..., Any]]" = WeakSet()
"""Functions whose missing docstring was warned of."""


class ToolOptions(TypedDict, total=False):
    """Options that `@tool(…)` and `Tool(…)` share; each is explained at its field of Tool."""

    risk: Risk
    effects: Collection[Effect]
    timeout: float | None
    lane: str | None
    needs: Collection[Feature]
    callable_from: Collection[Origin]
    deferred: bool
    output_cap: int | None
    returns: Returns
    polls: bool
    varies: Collection[str]
    blank: Blank | None
    behaviour: "Behaviour"


@dataclass(frozen=True, slots=True)
class Change:
    """The reason why a person must agree to a tool again: it is no longer what they agreed to."""

    reason: str
    accept: Callable[[], None]
    """Function that is called when the person agrees."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Questions that a tool answers itself, for a tool whose answers depend on other tools or on a server.

    Example:
        ```python
        counting = Behaviour(describe=lambda tools: f"Count the {len(tools)} tools.")
        print(counting.describe([]))
        #> Count the 0 tools.
        ```
    """

    describe: Callable[[Sequence["Tool"]], str] | None = None
    """Writes the exported description from the tools beside it; None means `Tool.description`."""
    covers: Callable[[Mapping[str, Any], Sequence["Tool"]], Collection[str]] | None = None
    """Names the tools that a call with these arguments will call in its turn."""
    changed: Callable[[], Change | None] | None = None
    """Asked before every call of a tool that others can change. A Change asks a person, whatever the policy allows."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if (given := getattr(self, name)) is not None and not callable(given):
                refuse(f"Behaviour.{name}", given, "a function")


PLAIN: Final = Behaviour()
"""The behaviour of nearly every tool: nothing depends on anything else."""


@explains_misuse
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tool(Generic[P, R]):
    """A tool, checked when it is made: one that exists can be offered to a model. `body(context, arguments)` answers.

    Calling the tool calls the plain function that `@tool` made it of, without gates: for that function's own tests.

    Example:
        ```python
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        def forecast(context, arguments):
            return f"{arguments['city']}: sunny"

        weather = Tool("weather", schema, forecast, description="Tell the weather.")
        async with Session([weather]) as session:
            print((await session.call("weather", {"city": "Oslo"})).value)
        #> Oslo: sunny
        ```
    """

    name: str
    """Name of 1 to 64 of the characters A-Z, a-z, 0-9, _ and -."""
    parameters: Mapping[str, Any]
    """The JSON Schema of its arguments."""
    body: Body
    description: str = field(default="", kw_only=True)
    """Description for the model."""
    output: Mapping[str, Any] | None = field(default=None, kw_only=True)
    """Schema of the body's value; a value that breaks it is an execution_error."""
    risk: Risk = field(default="safe", kw_only=True)
    """How bad a wrong call can be. A policy may ask before a high or critical one. A member of an Enum of yours is
    taken for the risk that its value or its name is, in lower case.
    """
    effects: Collection[Effect] = field(default=frozenset(), kw_only=True)
    """Effects on the world that the tool may have; a policy asks about effects that no sandbox confines."""
    timeout: float | None = field(default=TOOL_TIMEOUT, kw_only=True)
    """Seconds for one call; None when the tool keeps its own clock."""
    lane: str | None = field(default=None, kw_only=True)
    """Calls that share a lane run one after the other; "none" keeps a tool with needs out of the sandbox's lane."""
    needs: Collection[Feature] = field(default=frozenset(), kw_only=True)
    """Features that the sandbox must enforce."""
    callable_from: Collection[Origin] = field(default=ALL, kw_only=True)
    """Origins of calls that are allowed."""
    deferred: bool = field(default=False, kw_only=True)
    """Whether the tool stays out of the schemas until it is searched for."""
    output_cap: int | None = field(default=None, kw_only=True)
    """Length of the answer, in characters; None means the default for its kind."""
    returns: Returns = field(default="value", kw_only=True)
    """Form of the body's return value: a value, or an envelope, `{"ok": …}`, as a dict or as JSON text."""
    polls: bool = field(default=False, kw_only=True)
    """Whether the tool is meant to be called until something changes: equal results in a row are no loop."""
    varies: Collection[str] = field(default=frozenset(), kw_only=True)
    """Fields of its result, at any depth, that differ though nothing has changed: ids, times."""
    blank: Blank | None = field(default=None, kw_only=True)
    """Meaning of a blank text for an optional parameter: "absent" leaves it out, "keep" passes it on; None asks the
    schema, of which a derived one leaves it out if the default is None or empty."""
    function: Callable[P, R] | None = field(default=None, kw_only=True)
    """The original function, where `@tool` made this."""
    convert: Callable[[Mapping[str, Any]], dict[str, Any]] | None = field(default=None, kw_only=True)
    """Function that turns validated JSON into the function's own types."""
    isolate: bool = field(default=False, kw_only=True)
    """Run the function in a process of its own, which is killed at the deadline with all it started."""
    behaviour: Behaviour = field(default=PLAIN, kw_only=True)
    """Answers about the tool that depend on other tools or on a server."""
    checks: Validator = field(init=False)
    output_checks: Validator | None = field(init=False)
    runs: Runs = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "description", "" if self.description is None else self.description)
        put(self, "risk", risk(self.risk))
        check_name(self.name)
        refuse_generator(self.name, self.body)
        check_options(self)
        if not isinstance(self.behaviour, Behaviour):
            refuse(f"tool {self.name}: behaviour", self.behaviour, "a Behaviour, or leave it out")
        put(self, "effects", subset(self.name, "effects", self.effects, Effect))
        put(self, "needs", subset(self.name, "needs", self.needs, Feature))
        put(self, "callable_from", subset(self.name, "callable_from", self.callable_from, Origin))
        put(self, "varies", names(self.name, "varies", self.varies, "job"))
        parameters = self.parameters if self.blank is None else {**self.parameters, "blank": self.blank}
        try:
            put(self, "checks", Validator(parameters, typed=self.convert is not None))
            self.checks.check_aliases()
            if self.function is None:
                self.checks.check_defaults()
            put(self, "output_checks", None if self.output is None else Validator(self.output, of="result"))
        except BadSchema as error:
            raise BadSchema(f"tool {self.name}: {error}") from None
        put(self, "parameters", self.checks.schema)  # what is shown is what is checked, whatever the giver does to his
        put(self, "runs", "process" if self.isolate else "async" if is_async(self.body) else "thread")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.function is None:
            raise HandrailError(f"tool {self.name} was not made of a function, so it can only be called by a session")
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        required = self.parameters.get("required", ())
        fields = ", ".join(name if name in required else f"{name}?" for name in self.parameters.get("properties", ()))
        effects = f", {', '.join(sorted(self.effects))}" if self.effects else ""
        return f"<Tool {self.name}({fields}): {self.risk}{effects}>"

    @property
    def own(self) -> bool:
        """Whether the schema was derived by `@tool`; one from outside is treated more literally."""
        return self.function is not None


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    isolate: bool = False,
    validate: Validate | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    isolate: bool = False,
    validate: Validate | None = None,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a Tool of a typed function: the schema comes from its signature and docstring.

    Args:
        fn: the function, `def` or `async def`. A parameter of type Context is filled in, and not part of the schema.
        name: what the model calls it; the function's own name if None.
        description: what the model reads about it; the docstring if None.
        isolate: run it in a process of its own, which is killed at the deadline with all it started.
        validate: refuses arguments that the schema accepts and the function does not, by raising ToolFailed or
            ValueError. It gets the arguments that were sent, converted, and runs before anybody is asked.
        **options: those of Tool, such as risk, effects, timeout, needs, returns and blank.

    Example:
        ```python
        @tool(effects=["reads"], timeout=10)
        def add(a: int, b: int = 1) -> int:
            "Add two numbers."
            return a + b
        print(add.name, add.timeout, add(41))
        #> add 10 42
        ```
    """
    if unknown := options.keys() - ToolOptions.__annotations__.keys():
        wrong, known = sorted(unknown), ("name", "description", "isolate", "validate", *ToolOptions.__annotations__)
        raise TypeError(f"tool() has no option {', '.join(wrong)}; {nearest(wrong[0], known)}")
    names = sys._getframe(1).f_locals  # types that were defined beside the function

    def make(function: Callable[..., Any]) -> Tool:
        return _make(function, names, name, description, isolate, validate, options)

    return make if fn is None else make(fn)


def _make(
    fn: Callable[..., Any], names: Mapping[str, Any], name: str | None, description: str | None, isolate: bool,
    validate: Validate | None, options: ToolOptions,
) -> Tool:  # fmt: skip
    _refuse_no_function(fn)
    named = fn.func if isinstance(fn, partial) else fn
    title = name if name is not None else getattr(named, "__name__", type(named).__name__)
    check_name(title)
    refuse_generator(title, fn)
    _refuse_method(title, fn)
    try:
        derived = derive(fn, injected=Context, local_names=names)
    except BadSchema as error:
        raise BadSchema(f"tool {title}: {error}") from None
    if validate is not None and not callable(validate):
        refuse(f"tool {title}: validate", validate, "a function of the arguments")
    if isolate is True:
        refuse_unimportable(title, fn, derived.context_parameter)
    if description is None and not derived.description:
        _warn_undescribed(title, fn)
    return Tool(
        title,
        derived.parameters,
        _body(fn, derived.context_parameter),
        description=derived.description if description is None else description,
        output=None if options.get("returns") == "envelope" else derived.output,
        function=fn,
        convert=derived.convert if validate is None else _validated(derived.convert, validate),
        isolate=isolate,
        **options,
    )


def _validated(convert: Convert, validate: Validate) -> Convert:
    """The conversion, followed by the tool's own check of what it gives."""

    def both(arguments: Mapping[str, Any]) -> dict[str, Any]:
        converted = convert(arguments)
        try:
            validate(converted)
        except (ToolFailed, ValueError) as error:
            failure = error.failure if isinstance(error, ToolFailed) else Failure("invalid_args", str(error))
            field = failure.field or ""
            given = re.split(r"[.\[]", field)[0]
            received = show(arguments[given]) if given in arguments else "nothing" if given else show(arguments)
            problem = Problem(field, failure.message.removesuffix("."), failure.expected or "other arguments", received)
            raise NotConvertible([problem]) from None
        return converted

    return both


def _refuse_no_function(fn: object) -> None:
    if isinstance(fn, str):
        raise HandrailError(f"tool() takes a function, not {fn!r}; write @tool(name={fn!r}) above it")
    if isinstance(fn, classmethod):
        raise HandrailError("tool() takes a function, not a classmethod; write it as a plain function")
    if isinstance(fn, Tool | type) or not callable(fn):
        raise HandrailError(f"tool() takes a function, not {shown(fn)}; write @tool above a typed `def`")


def _refuse_method(title: str, fn: Callable[..., Any]) -> None:
    """Refuse a function in a class, which has no object as its `self`; a method of an object has one."""
    if not inspect.isfunction(fn):
        return
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    owner = fn.__qualname__.rpartition(".")[0].rpartition(".")[2]
    if first is not None and first.name in ("self", "cls") and first.annotation is first.empty:
        raise HandrailError(
            f"tool {title} is a method, and there is no object to call it on: leave out @tool in the class, and write "
            f"tool(object.{fn.__name__}) with an object of the class{f' {owner}' if owner else ''}"
        )


def _warn_undescribed(title: str, fn: Callable[..., Any]) -> None:
    """Warn once for each function, at the line outside Handrail that makes the tool."""
    if fn in _undescribed:
        return
    with suppress(TypeError):  # an object without weak references
        _undescribed.add(fn)
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("handrail."):
        level, frame = level + 1, frame.f_back
    message = (
        f"tool {title} has no description, so a model has to guess what it does: write a docstring below its `def`"
    )
    warnings.warn(f"{message}, or give @tool a description", stacklevel=level)


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

    if is_async(fn):
        return waits if context_parameter is None else waits_with_context
    return runs if context_parameter is None else runs_with_context
