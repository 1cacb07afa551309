"""A Toolbox: tools by name, in a stable order. May be shared between sessions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Union

from handrail.contract.approval import Effect, Risk
from handrail.contract.errors import HandrailError, NameConflict, ToolFailed
from handrail.contract.result import Failure
from handrail.lazy import Lazy
from handrail.misuse import close_names, nearest, refuse, shown
from handrail.schema.export import check_provider, export
from handrail.toolkit._objects import body_of
from handrail.toolkit._tool_options import risk as risk_of
from handrail.toolkit.context import Context
from handrail.toolkit.hosted import HostedTool
from handrail.toolkit.tool import Tool, ToolOptions, tool

if TYPE_CHECKING:
    from handrail.toolkit import _tool_source as _sources
else:
    _sources = Lazy("handrail.toolkit._tool_source")

RESERVED: Final = frozenset({"task", "script", "search_tools", "ask_user", "complete"})
"""Names that only Handrail's own tools may have."""
TOOL_OPTIONS: Final = ("description", "output", *ToolOptions.__annotations__)


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


ToolLike = Tool | HostedTool | Callable[..., Any] | Executes
Tools = Union[Iterable[ToolLike], "Toolbox", ToolSource]
"""Tools in any form that a session or a toolbox accepts."""


class Toolbox:
    """Tools by name. Accepts Tools, typed functions, and any object with `name` and `parameters`.

    Such an object has `__call__(context, arguments)`, `__call__(ctx, **arguments)`, or `execute(**arguments)`, which
    may take the Context too, as `ctx`. Each is a `def` or an `async def`.

    Example:
        ```python
        def add(a: int, b: int = 1) -> int:
            "Add two numbers."
            return a + b

        box = Toolbox([add])
        print(box.names(), box.schemas("anthropic")[0]["name"])
        #> ['add'] add
        ```
    """

    sourced = waits = False
    """Whether the tools come from a ToolSource, and whether that must be awaited."""
    warnings: Mapping[str, None] = MappingProxyType({})
    """Tools of the source that were left out, and why."""

    def __new__(cls, tools: Tools = (), **options: Any) -> "Toolbox":
        """Make a toolbox that asks its source, if it is given one."""
        return object.__new__(_sources.SourcedToolbox if cls is Toolbox and is_source(tools) else cls)

    def __init__(self, tools: Tools = ()) -> None:
        self.changes = 0
        """Number of adds and replaces, by which readers know that their cached schemas are stale."""
        self._own: dict[str, Tool] = {}
        self._tools = self._own
        self._unknown: Tool | None = None
        """Answers for names that are not here; made when it is first needed."""
        for each in _listed(tools):
            self.add(each)

    def __repr__(self) -> str:
        return f"<Toolbox of {len(self)}: {few(self.names())}>"

    def add(self, tool: ToolLike) -> Tool:
        """Add a tool. Raises NameConflict, naming both tools, for a name that is taken or reserved."""
        made = as_tool(tool)
        if made.name in RESERVED and not is_ours(made):
            raise NameConflict(f"the name {made.name!r} is reserved for Handrail's own tool; rename {_where(made)}")
        if other := self._tools.get(made.name):
            both = f"{_where(other)} and {_where(made)}"
            raise NameConflict(f"two tools are called {made.name!r}: {both}; use replace() to replace the first")
        self._own[made.name] = made
        self.changes += 1
        return made

    def replace(self, tool: ToolLike) -> Tool:
        """Replace the tool of the same name. Raises HandrailError if there is none."""
        made = as_tool(tool)
        if made.name not in self._tools:
            raise HandrailError(f"there is no tool {made.name!r} to replace; use add()")
        self._own[made.name] = made
        self.changes += 1
        return made

    def get(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        return self._tools.get(name)

    def find(self, name: str) -> Tool:
        """The tool of this name; for an unknown name, a Tool that answers tool_not_found."""
        if (found := self._tools.get(name)) is not None:
            return found
        check_name(name)
        if self._unknown is None:
            self._unknown = unknown_tool(self._tools)
        return self._unknown

    async def refresh(self) -> None:
        """Ask the source of the tools, if there is one, for all of them. A session does so before each request."""

    async def look_up(self, name: str) -> None:
        """Ask the source of the tools, if there is one, for this one. A session does so at each call."""

    def having(self, tool: Tool) -> "Toolbox":
        """The same with this tool, which replaces one of the same name."""
        return Toolbox([*(each for each in self if each.name != tool.name), tool])

    def narrowed(self, tools: Collection[Tool], only: Collection[str] | None) -> "Toolbox":
        """A toolbox of these of its tools; `only` are their names, None where it is all of them."""
        return Toolbox(tools)

    def all(self) -> list[Tool]:
        """Every tool, sorted by name."""
        tools = self._tools
        return [tools[name] for name in sorted(tools)]

    def names(self) -> list[str]:
        """The names of all tools, sorted."""
        return sorted(self._tools)

    def by_risk(self, risk: Risk) -> list[Tool]:
        """The tools of exactly this risk, which may be a member of an Enum as in `Tool(risk=…)`."""
        wanted = risk_of(risk)
        return [each for each in self.all() if each.risk == wanted]

    def by_effect(self, effect: Effect) -> list[Tool]:
        """The tools that declare this effect."""
        return [each for each in self.all() if effect in each.effects]

    def schemas(self, provider: str = "mcp") -> list[dict[str, Any]]:
        """Every tool that is not deferred, sorted by name. Raises HandrailError if the provider would refuse one."""
        check_provider(provider)
        offered = [each for each in self.all() if not each.deferred and is_for(provider, each)]
        return [exported(provider, each, self.all()) for each in offered]

    def deferred_schemas(self, provider: str = "mcp") -> list[dict[str, Any]]:
        """The tools that `schemas` leaves out because they are deferred, in the same form."""
        return [exported(provider, each, self.all()) for each in self.all() if each.deferred]

    def schema_for(self, name: str, provider: str = "mcp") -> dict[str, Any]:
        """One tool in this provider's form. Raises HandrailError for a name that is not here."""
        found = self._tools.get(name)
        if found is None:
            raise HandrailError(f"there is no tool {name!r}; {nearest(name, self.names())}")
        return exported(provider, found, self.all())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return (name.name if isinstance(name, Tool) else name) in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.all())


def as_tool(given: object) -> Tool:
    """Turn `given` into a Tool."""
    if isinstance(given, Tool):
        return given
    if isinstance(given, HostedTool):
        return given.as_tool()
    if isinstance(given, type):
        raise HandrailError(f"{given.__qualname__} is a class, not a tool: give an instance of it, or a typed function")
    if getattr(given, "__module__", "") == "handrail.tools.builtin":
        raise HandrailError("builtin_tools is a function that returns tools; call it: [*builtin_tools(), …]")
    if isinstance(given, list | tuple | set | frozenset | Toolbox):
        raise HandrailError(
            f"{shown(given)} is not a tool; put its tools into the list with a star: [*builtin_tools(), …]"
        )
    if isinstance(given, str):
        raise HandrailError(
            f"{given!r} is the name of a tool, not a tool; give the tool itself: a typed function, a Tool, or those of "
            "builtin_tools()"
        )
    if hasattr(given, "name") and hasattr(given, "parameters") and (body := body_of(given)) is not None:
        options = {option: getattr(given, option) for option in TOOL_OPTIONS if hasattr(given, option)}
        options = {option: value for option, value in options.items() if value is not None or option == "timeout"}
        return Tool(given.name, given.parameters, body, **options)
    if callable(given):
        return tool(given)
    raise HandrailError(
        f"{shown(given)} is not a tool: give a typed function, a Tool, or an object with name and parameters, and with "
        "`__call__(context, arguments)`, `__call__(ctx, **arguments)` or `execute(**arguments)`"
    )


def is_source(given: object) -> bool:
    """Whether an object is a registry to be asked for its tools: it has `get` and `all`."""
    if isinstance(given, Toolbox | Mapping | type):
        return False
    return callable(getattr(given, "get", None)) and callable(getattr(given, "all", None))


def _listed(tools: object) -> Iterable[ToolLike]:
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


def few(names: Sequence[str], most: int = 5) -> str:
    """The first few names, for a short text."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "") or "none"


def is_for(provider: str, tool: Tool) -> bool:
    """Whether the tool is offered to this provider: a hosted tool only to providers that have it."""
    return tool.hosted is None or provider in tool.hosted


def exported(provider: str, tool: Tool, beside: Sequence[Tool] = ()) -> dict[str, Any]:
    """The tool's schema in this provider's form. Raises HandrailError if the provider would refuse it."""
    if tool.hosted is not None:
        if provider not in tool.hosted:
            raise HandrailError(f"{tool.name} is run by the provider itself, and {provider} has no definition of it")
        return dict(tool.hosted[provider])
    description = tool.description if tool.describe is None else tool.describe(beside)
    return export(provider, tool.name, description, tool.parameters, tool.output)


def _where(tool: Tool) -> str:
    source = tool.function or tool.body
    return f"{getattr(source, '__module__', '?')}.{getattr(source, '__qualname__', type(source).__qualname__)}"


def is_ours(tool: Tool) -> bool:
    return str(getattr(tool.function or tool.body, "__module__", "")).startswith("handrail.")


def check_name(name: object) -> None:
    """Raise HandrailError for a tool itself where its name is needed."""
    if not isinstance(name, str):
        refuse("the name of a tool", name, "a text, as in session.call('bash', {'command': 'ls'})")


def unknown_tool(known: Mapping[str, Tool]) -> Tool:
    """The tool that answers every call of a name that is not known."""

    async def answer(context: Context, arguments: Mapping[str, Any]) -> Any:
        name = context.call.name
        near = close_names(name, known, count=3)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        listed = ", ".join(sorted(known)[:40]) or "none"
        message = f"There is no tool called {name[:100]!r}. {hint}The tools are: {listed}."
        raise ToolFailed(Failure("tool_not_found", message, data={"near": near} if near else None))

    return Tool("no_such_tool", {"type": "object"}, answer)
