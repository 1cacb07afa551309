"""Which tools a session offers to a model: schemas by provider, deferred tools and their search, hosted tools."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from handrail.contract.errors import HandrailError
from handrail.contract.event import EventType
from handrail.lazy import Lazy
from handrail.schema.export import DEFERRED, HOSTED, check_provider
from handrail.toolkit.hosted import HostedTool, exported, is_for
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

if TYPE_CHECKING:
    from handrail.tools import search_tools as _search_tools
else:  # only a session with deferred tools needs it
    _search_tools = Lazy("handrail.tools.search_tools")

SEARCH: Final = "search_tools"
MAX_SCHEMAS_COUNT: Final = 16
"""Lists of schemas that are kept, by provider and by state of the toolbox."""
OFFERED: Final = ("handrail/offered", "handrail/offered-to-search")
"""Keys, in place of a provider's name, of the lists for a model; the second for a model that searches."""
Emit = Callable[[EventType, Mapping[str, Any]], None]


class OfferedTools:
    """The tools of a session as its models see them; the schemas are made anew only when the tools change."""

    def __init__(self, toolbox: Toolbox, emit: Emit, loaded: Iterable[str] = ()) -> None:
        self.loaded: set[str] = set(loaded)
        """Deferred tools that the model sees."""
        self._toolbox = toolbox
        self.emit = emit
        self._warned: set[str] = set()
        self._schemas: dict[tuple[str, int, int], list[dict[str, Any]]] = {}

    def deferred(self) -> Mapping[str, str]:
        """Names and descriptions of the tools that are not loaded."""
        return {each.name: each.description for each in self._toolbox if each.deferred and each.name not in self.loaded}

    def find(self, name: str) -> Tool:
        """The tool that a call names; one that answers tool_not_found where there is none."""
        found = _search_tools.search_tools if name == SEARCH and self.lacks_search() else self._toolbox.find(name)
        if self._toolbox.sourced:
            self._tell_left_out()
        return found

    def lacks_search(self) -> bool:
        """Whether there is something to search for, and nobody has added the tool for it."""
        return SEARCH not in self._toolbox and bool(self.deferred_schemas())

    def search_schema(self) -> dict[str, Any]:
        """The tool that searches, for a loop whose model would otherwise never see a deferred one."""
        return exported("mcp", _search_tools.search_tools)

    def load(self, names: Sequence[str]) -> None:
        """Show these deferred tools to the model from the next request on."""
        for name in names:
            if self._toolbox.get(name) is None:
                raise HandrailError(f"there is no tool {name!r} to load")
        if new := sorted(set(names) - self.loaded):
            self.loaded.update(new)
            self.emit("tools_loaded", {"tools": new})

    def restore_loaded(self, names: Sequence[str]) -> None:
        """Load what was loaded before the session was resumed; a tool that is gone is a warning."""
        for name in names:
            if self._toolbox.get(name) is None and not self._toolbox.waits:
                self.emit("warning", {"message": f"The tool {name}, which the model had loaded, is gone."})
            else:
                self.loaded.add(name)

    def use(self, toolbox: Toolbox) -> None:
        """Offer the tools of another toolbox from now on."""
        self._toolbox = toolbox
        self._schemas.clear()

    def schemas(self, provider: str) -> list[dict[str, Any]]:
        """Every tool that is not deferred, and every loaded one, sorted by name.

        A tool that the provider would refuse is left out with a warning, because it would fail the whole request.
        """
        check_provider(provider)
        key = (provider, self._toolbox.changes, len(self.loaded))
        if key not in self._schemas:
            if len(self._schemas) >= MAX_SCHEMAS_COUNT:  # a source of tools may change them without end
                self._schemas.clear()
            tools = self._toolbox.all()
            shown = (each for each in tools if not each.deferred or each.name in self.loaded)
            offered = [each for each in shown if is_for(provider, each)]
            made = (self._exported(provider, each, tools) for each in offered)
            self._schemas[key] = [schema for schema in made if schema is not None]
        if self._toolbox.sourced:
            self._tell_left_out()
        return list(self._schemas[key])

    def offered(self, *, searches: bool) -> list[dict[str, Any]]:
        """The tools for a request to a model, the same list until they change.

        A model that `searches` by its provider gets the deferred tools; another gets `search_tools` to find them.
        """
        if self._toolbox.sourced:
            self._tell_left_out()
        key = (OFFERED[searches], self._toolbox.changes, len(self.loaded))
        if key not in self._schemas:
            schemas = [*self.schemas("mcp"), *self.hosted_schemas()]
            if searches:
                schemas = [*(each for each in schemas if each["name"] != SEARCH), *self.deferred_schemas()]
            elif self.lacks_search():
                schemas = sorted([*schemas, self.search_schema()], key=lambda each: each["name"])
            self._schemas[key] = schemas
        return self._schemas[key]

    def deferred_schemas(self) -> list[dict[str, Any]]:
        """The tools that are not loaded, for a model whose provider has a search of its own."""
        key = (DEFERRED, self._toolbox.changes, len(self.loaded))
        if key not in self._schemas:
            tools = self._toolbox.all()
            waiting = [each for each in tools if each.deferred and each.name not in self.loaded]
            made = (self._exported("mcp", each, tools) for each in waiting)
            self._schemas[key] = [{**schema, "_meta": {DEFERRED: True}} for schema in made if schema is not None]
        return self._schemas[key]

    def hosted_schemas(self) -> list[dict[str, Any]]:
        """The tools that providers run themselves, for a model that knows their definitions."""
        key = (HOSTED, self._toolbox.changes, 0)
        if key not in self._schemas:
            self._schemas[key] = [
                {"name": each.name, "description": each.description, "inputSchema": {"type": "object"},
                 "_meta": {HOSTED: dict(each.definitions)}}
                for each in self._toolbox if isinstance(each, HostedTool)
            ]  # fmt: skip
        return self._schemas[key]

    def _exported(self, provider: str, tool: Tool, beside: Sequence[Tool]) -> dict[str, Any] | None:
        try:
            return exported(provider, tool, beside)
        except HandrailError as error:
            self._warn_once(f"{error}. The model is not offered this tool.")
            return None

    def _tell_left_out(self) -> None:
        """Warn of what a source of tools has, and the session has not."""
        for message in list(self._toolbox.warnings):
            self._warn_once(message)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.emit("warning", {"message": message})
