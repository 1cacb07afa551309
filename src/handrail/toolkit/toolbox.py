"""A Toolbox: tools by name, in a stable order. May be shared between sessions."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from handrail.contract.approval import Effect, Risk
from handrail.contract.errors import HandrailError, NameConflict, ToolFailed
from handrail.contract.expect import nearest, refuse, shown
from handrail.contract.result import Failure
from handrail.schema.export import check_provider, export
from handrail.threads import is_async
from handrail.toolkit.context import Body, Context
from handrail.toolkit.hosted import HostedTool
from handrail.toolkit.tool import Tool, ToolOptions, tool

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


ToolLike = Tool | HostedTool | Callable[..., Any] | Executes


class Toolbox:
    """Accepts Tools, typed functions, and any object with `name` and `parameters`.

    Such an object has `__call__(context, arguments)` or `execute(**arguments)`, `def` or `async def`.
    """

    def __init__(self, tools: "Iterable[ToolLike] | Toolbox" = ()) -> None:
        self.changes = 0
        """Counts every add and replace, so that readers know when their cached schemas are stale."""
        self._tools: dict[str, Tool] = {}
        _refuse_no_list(tools)
        for each in tools:
            self.add(each)

    def __repr__(self) -> str:
        return f"<Toolbox of {len(self)}: {few(self.names())}>"

    def add(self, tool: ToolLike) -> Tool:
        """Add a tool. Raises NameConflict, naming both tools, for a name that is taken or reserved."""
        made = as_tool(tool)
        if made.name in RESERVED and not _is_ours(made):
            raise NameConflict(f"the name {made.name!r} is reserved for Handrail's own tool; rename {_where(made)}")
        if other := self._tools.get(made.name):
            both = f"{_where(other)} and {_where(made)}"
            raise NameConflict(f"two tools are called {made.name!r}: {both}; use replace() to replace the first")
        self._tools[made.name] = made
        self.changes += 1
        return made

    def replace(self, tool: ToolLike) -> Tool:
        """Replace the tool of the same name. Raises HandrailError if there is none."""
        made = as_tool(tool)
        if made.name not in self._tools:
            raise HandrailError(f"there is no tool {made.name!r} to replace; use add()")
        self._tools[made.name] = made
        self.changes += 1
        return made

    def get(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        return self._tools.get(name)

    def find(self, name: str) -> Tool:
        """The tool of this name; for an unknown name, a Tool that answers tool_not_found."""
        return self._tools.get(name) or _unknown(name, self._tools)

    def all(self) -> list[Tool]:
        """Every tool, sorted by name."""
        return [self._tools[name] for name in sorted(self._tools)]

    def names(self) -> list[str]:
        """The names of all tools, sorted."""
        return sorted(self._tools)

    def by_risk(self, risk: Risk) -> list[Tool]:
        """The tools of exactly this risk."""
        return [each for each in self.all() if each.risk == risk]

    def by_effect(self, effect: Effect) -> list[Tool]:
        """The tools that declare this effect."""
        return [each for each in self.all() if effect in each.effects]

    def schemas(self, provider: str) -> list[dict[str, Any]]:
        """Every tool that is not deferred, sorted by name. Raises HandrailError if the provider would refuse one."""
        check_provider(provider)
        offered = [each for each in self.all() if not each.deferred and is_for(provider, each)]
        return [exported(provider, each, self.all()) for each in offered]

    def deferred_schemas(self, provider: str) -> list[dict[str, Any]]:
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
    if hasattr(given, "name") and hasattr(given, "parameters") and (body := _body_of(given)) is not None:
        options = {option: getattr(given, option) for option in TOOL_OPTIONS if hasattr(given, option)}
        options = {option: value for option, value in options.items() if value is not None or option == "timeout"}
        return Tool(given.name, given.parameters, body, **options)
    if callable(given):
        return tool(given)
    raise HandrailError(
        f"{shown(given)} is not a tool: give a typed function, a Tool, or an object with name and parameters, and with "
        "`__call__(context, arguments)` or `execute(**arguments)`"
    )


def _body_of(given: Any) -> Body | None:
    """The body of an object: the object itself if it can be called, or its method `execute`."""
    execute = getattr(given, "execute", None)
    if callable(given) or not callable(execute):
        return given if callable(given) else None

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await execute(**arguments)

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        return execute(**arguments)

    return waits if is_async(execute) else runs


def _refuse_no_list(tools: object) -> None:
    if isinstance(tools, str) or (not isinstance(tools, Iterable) and not callable(tools)):
        refuse("tools", tools, "a list of tools such as builtin_tools() or [my_function]")
    if isinstance(tools, Mapping):
        refuse("tools", tools, "a list of its values; each tool has its name already")
    if not isinstance(tools, Iterable):
        own = getattr(tools, "__module__", "") == "handrail.tools.builtin"
        name = getattr(tools, "name", getattr(tools, "__name__", "my_tool"))
        refuse("tools", tools, "builtin_tools(), with parentheses" if own else f"a list, even of one: [{name}]")


def few(names: Sequence[str], most: int = 5) -> str:
    """The first few names, for a short text."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "") or "none"


def is_for(provider: str, tool: Tool) -> bool:
    """Whether the tool is offered to this provider: one that providers run themselves, to those that have it."""
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


def _is_ours(tool: Tool) -> bool:
    return str(getattr(tool.function or tool.body, "__module__", "")).startswith("handrail.")


def check_name(name: object) -> None:
    """Raise HandrailError for a tool itself where its name is needed."""
    if not isinstance(name, str):
        refuse("the name of a tool", name, "a text, as in session.call('bash', {'command': 'ls'})")


def _unknown(name: str, known: Mapping[str, Tool]) -> Tool:
    check_name(name)
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    listed = ", ".join(sorted(known)[:40]) or "none"
    message = f"There is no tool called {name[:100]!r}. {hint}The tools are: {listed}."

    async def answer(context: Context, arguments: Mapping[str, Any]) -> Any:
        raise ToolFailed(Failure("tool_not_found", message, data={"near": near} if near else None))

    return Tool("no_such_tool", {"type": "object"}, answer)
