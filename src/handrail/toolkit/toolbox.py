"""A Toolbox: tools by name, in a stable order. May be shared between sessions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Final, Union

import anyio

from handrail.contract.approval import Effect, Risk
from handrail.contract.errors import HandrailError, NameConflict, describe_error
from handrail.contract.limits import MAX_SOURCE_SECONDS
from handrail.misuse import nearest, refuse, shown
from handrail.schema.export import check_provider
from handrail.threads import is_async
from handrail.toolkit._tool_options import risk as risk_of
from handrail.toolkit.as_tool import (
    UNAVAILABLE,
    UNKNOWN,
    ToolLike,
    ToolSource,
    as_tool,
    is_ours,
    listed,
    none_if_unknown,
    place_of,
    unavailable_tool,
    unknown_tool,
)  # fmt: skip
from handrail.toolkit.hosted import exported, is_for
from handrail.toolkit.tool import Tool

RESERVED: Final = frozenset({"task", "script", "search_tools", "ask_user", "complete"})
"""Names that only Handrail's own tools may have."""
MAX_WARNINGS_COUNT: Final = 100
"""Different warnings of one source that are kept."""


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
        """A toolbox that asks its source, where it is given one."""
        return object.__new__(SourcedToolbox if cls is Toolbox and is_source(tools) else cls)

    def __init__(self, tools: Tools = ()) -> None:
        self.changes = 0
        """Number of adds and replaces, by which readers know that their cached schemas are stale."""
        self._own: dict[str, Tool] = {}
        self._tools = self._own
        self._unknown: Tool | None = None
        """Answers for names that are not here; made when it is first needed."""
        for each in listed(tools):
            self.add(each)

    def __repr__(self) -> str:
        return f"<Toolbox of {len(self)}: {few(self.names())}>"

    def add(self, tool: ToolLike) -> Tool:
        """Add a tool. Raises NameConflict, naming both tools, for a name that is taken or reserved."""
        made = as_tool(tool)
        if made.name in RESERVED and not is_ours(made):
            raise NameConflict(f"the name {made.name!r} is reserved for Handrail's own tool; rename {place_of(made)}")
        if other := self._tools.get(made.name):
            both = f"{place_of(other)} and {place_of(made)}"
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


class SourcedToolbox(Toolbox):
    """Made by `Toolbox(source)`. Tools that are added by `add` come first: the source's of the same name is left out.

    A plain source is asked whenever the tools are read, and must be quick. One with `async def` is asked by
    `refresh` and `look_up`, which a session awaits; in between, what it last told counts.
    """

    sourced = True

    def __init__(self, source: ToolSource, *, own: Iterable[Tool] = (), only: Collection[str] | None = None) -> None:
        self.warnings: dict[str, None] = {}
        """Tools that were left out, and why, in the order in which they were found."""
        self.waits = is_async(source.all) or is_async(source.get)
        """Whether the source must be awaited."""
        self._source, self._only = source, None if only is None else frozenset(only)
        self._own = {tool.name: tool for tool in own}
        self._listed: dict[str, Tool] = {}
        self._found: dict[str, Tool] = {}
        """Last answers of the source to `get`, by name, since it last listed its tools."""
        self._made: dict[int, tuple[object, object, Tool]] = {}
        """Objects that the source gave, by id: the object, its look, and the tool made of it."""
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often the tools have changed."""
        self._ask_if_plain()
        return self._changes

    @changes.setter
    def changes(self, count: int) -> None:
        self._changes = count

    @property
    def _tools(self) -> dict[str, Tool]:  # type: ignore[override]
        self._ask_if_plain()
        return {**self._listed, **self._own}

    def find(self, name: str) -> Tool:
        """The tool of this name, as the source gives it now."""
        check_name(name)
        if name in self._own:
            return self._own[name]
        if not self.waits and self._may_ask(name):
            self._take(name, self._get(name))
        return self._found.get(name) or self._tools.get(name) or unknown_tool(self._tools)

    def get(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        found = self.find(name)
        return found if found.name == name else None

    async def refresh(self) -> None:
        """Ask the source for its tools. A source that fails is noted in `warnings`, and the tools stay as they were."""
        await self._answered(self._source.all, self._list)

    async def look_up(self, name: str) -> None:
        """Ask the source for the tool of this name; `find` then gives it. While the source fails, it is unavailable."""
        if not self._may_ask(name):
            return

        async def get() -> Any:
            try:
                given = self._source.get(name)
                return await given if isawaitable(given) else given
            except KeyError as error:
                return none_if_unknown(name, error)

        if not await self._answered(get, lambda given: self._take(name, given)):
            self._found[name] = unavailable_tool(name)
        elif self._found[name].name == UNKNOWN:  # the answer names the tools that there are now
            found = self._found
            await self.refresh()
            self._found = {**found, name: self._no_such(name)}

    def having(self, tool: Tool) -> "SourcedToolbox":
        """The same with this tool, which replaces one of the same name."""
        return self._with([*(each for each in self._own.values() if each.name != tool.name), tool], self._only)

    def narrowed(self, tools: Collection[Tool], only: Collection[str] | None) -> "SourcedToolbox":
        """Those of its own tools that are among these, and the source's of these names."""
        both = self._only if only is None else frozenset(only) & (self._only or frozenset(only))
        return self._with([each for each in self._own.values() if each in tools], both)

    def _with(self, own: Iterable[Tool], only: Collection[str] | None) -> "SourcedToolbox":
        made = SourcedToolbox(self._source, own=own, only=only)
        made._listed = {name: each for name, each in self._listed.items() if only is None or name in only}
        made._changes = self._changes + 1
        return made

    def _may_ask(self, name: object) -> bool:
        """Whether the source is asked for this tool: not for one that the toolbox has itself."""
        hidden = self._only is not None and name not in self._only
        return isinstance(name, str) and name not in self._own and not hidden

    def _ask_if_plain(self) -> None:
        if self.waits:
            return
        try:
            given = self._source.all()
        except Exception as error:  # noqa: BLE001 - a source may raise anything; its last tools count
            self._warn(f"The source of the tools failed: {describe_error(error)}.")
            return
        if self._is_plain(given):
            self._list(given)

    def _get(self, name: str) -> Any:
        try:
            try:
                given = self._source.get(name)
            except KeyError as error:
                given = none_if_unknown(name, error)
        except Exception as error:  # noqa: BLE001 - a source may raise anything
            self._warn(f"The source of the tools failed: {describe_error(error)}.")
            return unavailable_tool(name)
        return given if self._is_plain(given) else None

    def _is_plain(self, given: Any) -> bool:
        """Whether it is an answer, and not one that must be awaited, which nobody does here."""
        if not isawaitable(given):
            return True
        self.waits = True
        if hasattr(given, "close"):
            given.close()
        return False

    async def _answered(self, ask: Callable[[], Any], take: Callable[[Any], object]) -> bool:
        """Ask, and take the answer. Returns whether there was one."""
        try:
            with anyio.fail_after(MAX_SOURCE_SECONDS):
                given = ask()
                take(await given if isawaitable(given) else given)
        except Exception as error:  # noqa: BLE001 - a source may raise anything
            self._warn(f"The source of the tools failed: {describe_error(error)}.")
            return False
        return True

    def _list(self, given: Any) -> None:
        listed: dict[str, Tool] = {}
        for tool in self._tools_of(given):
            if self._only is not None and tool.name not in self._only:
                continue
            if why := "is taken" if tool.name in self._own or tool.name in listed else _reserved(tool):
                self._warn(f"The source's tool {tool.name} was left out: its name {why}. Rename it there.")
            else:
                listed[tool.name] = tool
        self._found = {}
        if listed != self._listed:
            self._listed = listed
            self._changes += 1

    def _tools_of(self, given: Any) -> Iterator[Tool]:
        if isinstance(given, Mapping) or not isinstance(given, Iterable) or isinstance(given, str):
            self._warn(f"The source's all() gave {shown(given)}; it returns a list of tools.")
            return
        objects = list(given)
        for each in objects:
            if (tool := self._as_tool(each)) is not None:
                yield tool
        kept = {id(each) for each in objects}
        self._made = {key: made for key, made in self._made.items() if key in kept}

    def _take(self, name: str, given: Any) -> None:
        tool = None if given is None else self._as_tool(given)
        if tool is not None and tool.name not in (name, UNAVAILABLE):
            self._warn(f"The source gave the tool {tool.name} when it was asked for {name}; it was left out.")
            tool = None
        if tool is not None and (why := _reserved(tool)):
            self._warn(f"The source's tool {name} was left out: its name {why}. Rename it there.")
            tool = None
        made = tool or self._no_such(name)  # first: it may list the tools anew
        self._found[name] = made

    def _no_such(self, name: str) -> Tool:
        """The tool that answers for a name that the source does not know. A plain source is asked for its tools."""
        return unknown_tool({key: each for key, each in self._tools.items() if key != name})

    def _as_tool(self, given: object) -> Tool | None:
        """The tool; for an object that was given before and looks the same, the same one."""
        if isinstance(given, Tool):
            return given
        try:
            looks = repr([getattr(given, name, None) for name in ("name", "description", "parameters", "risk")])
            known = self._made.get(id(given))
            if known is not None and known[0] is given and known[1] == looks:
                return known[2]
            tool = as_tool(given)
        except Exception as error:  # noqa: BLE001 - an object of another system may raise anything
            self._warn(f"A tool of the source was left out: {describe_error(error)}.")
            return None
        self._made[id(given)] = (given, looks, tool)
        return tool

    def _warn(self, message: str) -> None:
        if len(self.warnings) < MAX_WARNINGS_COUNT:
            self.warnings[message] = None


def _reserved(tool: Tool) -> str:
    return "is reserved for a tool of Handrail's" if tool.name in RESERVED and not is_ours(tool) else ""


def is_source(given: object) -> bool:
    """Whether an object is a registry to be asked for its tools: it has `get` and `all`."""
    if isinstance(given, Toolbox | Mapping | type):
        return False
    return callable(getattr(given, "get", None)) and callable(getattr(given, "all", None))


def few(names: Sequence[str], most: int = 5) -> str:
    """The first few names, for a short text."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "") or "none"


def check_name(name: object) -> None:
    """Raise HandrailError for a tool itself where its name is needed."""
    if not isinstance(name, str):
        refuse("the name of a tool", name, "a text, as in session.call('bash', {'command': 'ls'})")
