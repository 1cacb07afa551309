"""Dictionaries that tools keep for the rest of a session. Lasting ones are recorded with the calls that change them."""

from collections import UserDict
from collections.abc import Mapping, MutableMapping
from typing import Any


class PersistentMemory(UserDict[str, Any]):
    """A tool's dictionary that notes which keys change. Its values are plain JSON data."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        super().__init__()

    def __setitem__(self, key: str, item: Any) -> None:
        self.changed.add(key)
        super().__setitem__(key, item)

    def __delitem__(self, key: str) -> None:
        self.changed.add(key)
        super().__delitem__(key)


class Memory:
    """A dictionary for each tool that asks for one."""

    def __init__(self) -> None:
        self._passing: dict[str, dict[str, Any]] = {}
        self._lasting: dict[str, PersistentMemory] = {}

    def of(self, tool: str, *, lasts: bool) -> MutableMapping[str, Any]:
        """The dictionary of a tool; one that lasts is still there when the session is resumed."""
        if lasts:
            return self._lasting.get(tool) or self._lasting.setdefault(tool, PersistentMemory())
        return self._passing.setdefault(tool, {})

    def changes(self) -> dict[str, dict[str, Any]]:
        """Changes of the lasting dictionaries since the last call, by tool, then key; None where a key is gone."""
        changes: dict[str, dict[str, Any]] = {}
        if not self._lasting:
            return changes
        for tool, kept in self._lasting.items():
            if kept.changed:
                changed, kept.changed = kept.changed, set()
                changes[tool] = {key: kept.get(key) for key in sorted(changed)}
        return changes

    def restore(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Apply the changes of one call of the past."""
        for tool, values in changes.items():
            kept = self._lasting.setdefault(tool, PersistentMemory())
            for key, value in values.items():
                if value is None:
                    kept.data.pop(key, None)
                else:
                    kept.data[key] = value
