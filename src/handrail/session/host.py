"""The Host that a call's Context sees: the session's own part of it, and whoever stands around the session."""

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.result import Failure, Result
from handrail.sandbox.background import Home, at_home
from handrail.schema.export import export
from handrail.toolkit.context import Host
from handrail.toolkit.toolbox import Toolbox


class SessionHost:
    """Serves deferred tools itself; hands the rest on, and says so where nobody is there."""

    def __init__(self, toolbox: Toolbox, outer: Host | None, home: Home) -> None:
        self.home = home
        self.outer = outer
        self._toolbox = toolbox
        self._loaded: set[str] = set()
        self._schemas: dict[tuple[str, int, int], list[dict[str, Any]]] = {}

    @at_home
    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        return await self._somebody("ask a person").ask(question, choices)

    @at_home
    async def spawn(self, prompt: str, *, tools: Sequence[str] | None = None, cwd: str | None = None) -> Result:
        return await self._somebody("start a task").spawn(prompt, tools=tools, cwd=cwd)

    def finish(self, summary: str) -> None:
        self._somebody("end the loop").finish(summary)

    def deferred_tools(self) -> Mapping[str, str]:
        return {
            each.name: each.description for each in self._toolbox if each.deferred and each.name not in self._loaded
        }

    def load_tools(self, names: Sequence[str]) -> None:
        for name in names:
            if self._toolbox.get(name) is None:
                raise HandrailError(f"there is no tool {name!r} to load")
        self._loaded.update(names)

    def schemas(self, provider: str) -> list[dict[str, Any]]:
        """Every tool that is not deferred, and those that were loaded, sorted by name."""
        key = (provider, self._toolbox.changes, len(self._loaded))
        if key not in self._schemas:
            self._schemas[key] = [
                export(provider, each.name, each.description, each.parameters)
                for each in self._toolbox
                if not each.deferred or each.name in self._loaded
            ]
        return list(self._schemas[key])

    def _somebody(self, what: str) -> Host:
        if self.outer is None:
            raise ToolFailed(Failure("unavailable", f"There is nobody here to {what}; go on without.", retryable=False))
        return self.outer
