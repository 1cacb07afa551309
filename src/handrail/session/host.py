"""The Host of a call's Context: it loads deferred tools, and passes the rest to the program that runs the session."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from handrail.aio import OwnLoop, on_own_loop
from handrail.contract.call import Call
from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.event import EventType
from handrail.contract.result import Failure, Result
from handrail.lazy import Lazy
from handrail.schema.export import DEFERRED, HOSTED, check_provider
from handrail.toolkit.context import Host
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox, exported, is_for

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


StartTask = Callable[[str, int, str, str, Sequence[str] | None, str | None], Awaitable[Result]]
"""Of the call with this id, its task of this number: prompt, role, tools, cwd."""


class LoopHost:
    """The loop as a tool sees it. `finish` ends it; so does a question, which the person reads in the outcome."""

    def __init__(self, start: StartTask, outer: Host | None = None, *, inside_task: bool = False) -> None:
        self.ended: tuple[Literal["done", "asked_user"], str] | None = None
        self.person = outer
        """The session's own host, which is asked first."""
        self._start = start
        self._inside_task = inside_task

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        if (ask := getattr(self.person, "ask", None)) is not None:
            answer: str = await ask(question, choices)
            return answer
        listed = "".join(f"\n- {choice}" for choice in choices)
        self.ended = ("asked_user", question + listed)
        raise ToolFailed(
            Failure(
                "unavailable",
                "The question was passed to the user, who answers with the next message.",
                retryable=False,
            )
        )

    async def start_task(
        self, call_id: str, number: int, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Start task `number` of a call, unless the session's own host does."""
        if (spawn := getattr(self.person, "spawn", None)) is not None:
            try:
                result: Result = await spawn(prompt, role=role, tools=tools, cwd=cwd)
                return result
            except ToolFailed as error:
                if error.failure.kind != "unavailable":
                    raise
        return await self._start(call_id, number, prompt, role, tools, cwd)

    def finish(self, summary: str) -> None:
        self.ended = ("done", summary)
        if (finish := getattr(self.person, "finish", None)) is not None and not self._inside_task:
            finish(summary)


class SessionHost:
    """Loads deferred tools itself, and passes everything else to `outer`; without one, that is unavailable."""

    def __init__(
        self,
        toolbox: Toolbox,
        outer: Host | LoopHost | None,
        own_loop: OwnLoop,
        emit: Callable[[EventType, Mapping[str, Any]], None],
        loaded: Iterable[str] = (),
    ) -> None:
        self.own_loop = own_loop
        self.outer = outer
        self.toolbox = toolbox
        self.emit = emit
        self._warned: set[str] = set()
        self.loaded: set[str] = set(loaded)
        """Deferred tools that the model sees."""
        self._tasks: dict[str, int] = {}
        """By call: how many tasks it has started."""
        self._schemas: dict[tuple[str, int, int], list[dict[str, Any]]] = {}

    @on_own_loop
    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        answer: str = await self._outer_to("ask a person", "ask")(question, choices)
        return answer

    @property
    def person(self) -> Host | None:
        """The host that the session was given."""
        return self.outer.person if isinstance(self.outer, LoopHost) else self.outer

    @on_own_loop
    async def start_task(
        self, call_id: str, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Start the next task of a call."""
        number = self._tasks[call_id] = self._tasks.get(call_id, 0) + 1
        outer: Any = self.outer
        if isinstance(outer, LoopHost):
            return await outer.start_task(call_id, number, prompt, role, tools, cwd)
        result: Result = await self._outer_to("start a task", "spawn")(prompt, role=role, tools=tools, cwd=cwd)
        return result

    def finish(self, summary: str) -> None:
        self._outer_to("end the loop", "finish")(summary)

    def deferred_tools(self) -> Mapping[str, str]:
        return {each.name: each.description for each in self.toolbox if each.deferred and each.name not in self.loaded}

    def find(self, name: str) -> Tool:
        """The tool that a call names; one that answers tool_not_found where there is none."""
        found = _search_tools.search_tools if name == SEARCH and self.lacks_search() else self.toolbox.find(name)
        if self.toolbox.sourced:
            self._tell_left_out()
        return found

    def lacks_search(self) -> bool:
        """Whether there is something to search for, and nobody has added the tool for it."""
        return SEARCH not in self.toolbox and bool(self.deferred_schemas())

    def search_schema(self) -> dict[str, Any]:
        """The tool that searches, for a loop whose model would otherwise never see a deferred one."""
        return exported("mcp", _search_tools.search_tools)

    def load_tools(self, names: Sequence[str]) -> None:
        for name in names:
            if self.toolbox.get(name) is None:
                raise HandrailError(f"there is no tool {name!r} to load")
        if new := sorted(set(names) - self.loaded):
            self.loaded.update(new)
            self.emit("tools_loaded", {"tools": new})

    def restore_loaded(self, names: Sequence[str]) -> None:
        """Take up what was loaded before the session was resumed; a tool that is gone is a warning."""
        for name in names:
            if self.toolbox.get(name) is None and not self.toolbox.waits:
                self.emit("warning", {"message": f"The tool {name}, which the model had loaded, is gone."})
            else:
                self.loaded.add(name)

    def use(self, toolbox: Toolbox) -> None:
        """Offer the tools of another toolbox from now on."""
        self.toolbox = toolbox
        self._schemas.clear()

    def schemas(self, provider: str) -> list[dict[str, Any]]:
        """Every tool that is not deferred, and every loaded one, sorted by name.

        A tool that the provider would refuse is left out with a warning, because it would fail the whole request.
        """
        check_provider(provider)
        key = (provider, self.toolbox.changes, len(self.loaded))
        if key not in self._schemas:
            if len(self._schemas) >= MAX_SCHEMAS_COUNT:  # a source of tools may change them without end
                self._schemas.clear()
            tools = self.toolbox.all()
            shown = (each for each in tools if not each.deferred or each.name in self.loaded)
            offered = [each for each in shown if is_for(provider, each)]
            made = (self._exported(provider, each, tools) for each in offered)
            self._schemas[key] = [schema for schema in made if schema is not None]
        if self.toolbox.sourced:
            self._tell_left_out()
        return list(self._schemas[key])

    def offered(self, *, searches: bool) -> list[dict[str, Any]]:
        """The tools for a request to a model, the same list until they change.

        A model that `searches` by its provider gets the deferred tools; another gets `search_tools` to find them.
        """
        if self.toolbox.sourced:
            self._tell_left_out()
        key = (OFFERED[searches], self.toolbox.changes, len(self.loaded))
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
        key = (DEFERRED, self.toolbox.changes, len(self.loaded))
        if key not in self._schemas:
            tools = self.toolbox.all()
            waiting = [each for each in tools if each.deferred and each.name not in self.loaded]
            made = (self._exported("mcp", each, tools) for each in waiting)
            self._schemas[key] = [{**schema, "_meta": {DEFERRED: True}} for schema in made if schema is not None]
        return self._schemas[key]

    def hosted_schemas(self) -> list[dict[str, Any]]:
        """The tools that providers run themselves, for a model that knows their definitions."""
        key = (HOSTED, self.toolbox.changes, 0)
        if key not in self._schemas:
            self._schemas[key] = [
                {"name": each.name, "description": each.description, "inputSchema": {"type": "object"},
                 "_meta": {HOSTED: dict(each.hosted)}}
                for each in self.toolbox if each.hosted is not None
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
        for message in list(self.toolbox.warnings):
            self._warn_once(message)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.emit("warning", {"message": message})

    def _outer_to(self, what: str, name: str) -> Callable[..., Any]:
        """A method of the program that runs the session."""
        method: Callable[..., Any] | None = getattr(self.outer, name, None)
        if method is None:
            raise ToolFailed(Failure("unavailable", f"This session cannot {what}. Go on without it.", retryable=False))
        return method


class CallHost:
    """The Host of one call: its tasks are numbered."""

    __slots__ = ("_call", "_host")

    def __init__(self, host: SessionHost, call: Call) -> None:
        self._host, self._call = host, call

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        return await self._host.ask(question, choices)

    async def spawn(
        self, prompt: str, *, role: str = "", tools: Sequence[str] | None = None, cwd: str | None = None
    ) -> Result:
        return await self._host.start_task(self._call.id, prompt, role, tools, cwd)

    def finish(self, summary: str) -> None:
        self._host.finish(summary)

    def deferred_tools(self) -> Mapping[str, str]:
        return self._host.deferred_tools()

    def load_tools(self, names: Sequence[str]) -> None:
        self._host.load_tools(names)
