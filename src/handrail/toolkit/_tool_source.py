"""A Toolbox whose tools come from a registry of the program's own, which may change at any time."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, Final

import anyio

from handrail.contract.errors import ToolFailed, describe_error
from handrail.contract.limits import MAX_SOURCE_SECONDS
from handrail.contract.result import Failure
from handrail.misuse import shown
from handrail.threads import is_async
from handrail.toolkit.context import Context
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import RESERVED, Toolbox, ToolSource, as_tool, check_name, is_ours, unknown_tool

MAX_WARNINGS_COUNT: Final = 100
"""Number of different warnings of one source that are kept."""


class SourcedToolbox(Toolbox):
    """The class behind `Toolbox(source)`. A tool added by `add` hides the source's tool of the same name.

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
        """The source's last answers to `get`, by name, since it last listed its tools."""
        self._made: dict[int, tuple[object, object, Tool]] = {}
        """Tools made from the source's objects, by the object's id: the object, its features, and the tool."""
        self._changes = 0

    @property
    def changes(self) -> int:
        """Number of times that the tools have changed."""
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
                return _none_if_unknown(name, error)

        if not await self._answered(get, lambda given: self._take(name, given)):
            self._found[name] = _unavailable(name)
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
                given = _none_if_unknown(name, error)
        except Exception as error:  # noqa: BLE001 - a source may raise anything
            self._warn(f"The source of the tools failed: {describe_error(error)}.")
            return _unavailable(name)
        return given if self._is_plain(given) else None

    def _is_plain(self, given: Any) -> bool:
        """Whether an answer is a plain value, not an awaitable, which nobody awaits here."""
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


UNAVAILABLE: Final = "unavailable_tool"
UNKNOWN: Final = unknown_tool({}).name


def _none_if_unknown(name: str, error: KeyError) -> Any:
    """Take `tools[name]` of a dictionary that lacks the name for None; raise any other KeyError again."""
    if error.args != (name,):
        raise error
    return None


def _reserved(tool: Tool) -> str:
    return "is reserved for a tool of Handrail's" if tool.name in RESERVED and not is_ours(tool) else ""


def _unavailable(name: str) -> Tool:
    message = f"{name} cannot be called now: the program that provides the tools does not answer. Try again later."

    async def answer(context: Context, arguments: Mapping[str, Any]) -> Any:
        raise ToolFailed(Failure("unavailable", message))

    return Tool(UNAVAILABLE, {"type": "object"}, answer)
