"""The Host of a call's Context: it loads deferred tools, and passes the rest to the program that runs the session."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from handrail.aio import OwnLoop, on_own_loop
from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.event import EventType
from handrail.contract.result import Failure, Result
from handrail.schema.export import check_provider
from handrail.toolkit.context import Host
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox, exported

Emit = Callable[[EventType, Mapping[str, Any]], None]


class SessionHost:
    """Loads deferred tools itself, and passes everything else to `outer`; without one, that is unavailable."""

    def __init__(
        self,
        toolbox: Toolbox,
        outer: Host | None,
        own_loop: OwnLoop,
        emit: Callable[[EventType, Mapping[str, Any]], None],
    ) -> None:
        self.own_loop = own_loop
        self.outer = outer
        self.toolbox = toolbox
        self.emit = emit
        self._warned: set[str] = set()
        self._loaded: set[str] = set()
        self._schemas: dict[tuple[str, int, int], list[dict[str, Any]]] = {}

    @on_own_loop
    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        return await self._outer_to("ask a person").ask(question, choices)

    @on_own_loop
    async def spawn(self, prompt: str, *, tools: Sequence[str] | None = None, cwd: str | None = None) -> Result:
        return await self._outer_to("start a task").spawn(prompt, tools=tools, cwd=cwd)

    def finish(self, summary: str) -> None:
        self._outer_to("end the loop").finish(summary)

    def deferred_tools(self) -> Mapping[str, str]:
        return {each.name: each.description for each in self.toolbox if each.deferred and each.name not in self._loaded}

    def load_tools(self, names: Sequence[str]) -> None:
        for name in names:
            if self.toolbox.get(name) is None:
                raise HandrailError(f"there is no tool {name!r} to load")
        if new := sorted(set(names) - self._loaded):
            self._loaded.update(new)
            self.emit("tools_loaded", {"tools": new})

    def restore_loaded(self, names: Sequence[str]) -> None:
        """Take up what was loaded before the session was resumed; a tool that is gone is a warning."""
        for name in names:
            if self.toolbox.get(name) is None:
                self.emit("warning", {"message": f"The tool {name}, which the model had loaded, is gone."})
            else:
                self._loaded.add(name)

    def use(self, toolbox: Toolbox) -> None:
        """Offer the tools of another toolbox from now on."""
        self.toolbox = toolbox
        self._schemas.clear()

    def schemas(self, provider: str) -> list[dict[str, Any]]:
        """Every tool that is not deferred, and every loaded one, sorted by name.

        A tool that the provider would refuse is left out with a warning, because it would fail the whole request.
        """
        check_provider(provider)
        key = (provider, self.toolbox.changes, len(self._loaded))
        if key not in self._schemas:
            offered = [each for each in self.toolbox if not each.deferred or each.name in self._loaded]
            made = (self._exported(provider, each) for each in offered)
            self._schemas[key] = [schema for schema in made if schema is not None]
        return list(self._schemas[key])

    def _exported(self, provider: str, tool: Tool) -> dict[str, Any] | None:
        try:
            return exported(provider, tool)
        except HandrailError as error:
            message = f"{error}. The model is not offered this tool."
            if message not in self._warned:
                self._warned.add(message)
                self.emit("warning", {"message": message})
            return None

    def _outer_to(self, what: str) -> Host:
        if self.outer is None:
            raise ToolFailed(Failure("unavailable", f"This session cannot {what}. Go on without it.", retryable=False))
        return self.outer
