"""The state of a task after a round, and the loop's advice to the model about it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from handrail.contract.call import Call
from handrail.contract.result import Result
from handrail.contract.wire import SCALARS
from handrail.misuse import close_names

Last = Literal["nothing", "empty_listing", "partial_listing", "full_listing", "file", "not_found", "other"]
MAX_LISTED_COUNT: Final = 5_000
"""Paths of a listing that are remembered."""
MAX_COMPARED_CHARS: Final = 500
"""Characters of a path, its last ones, that are compared with those of a listing."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """The kind of the last result, its path, and the paths of the last listing.

    The path is the one that the result itself has, such as a listing's; where it has none, the one its call named.

    Example:
        ```python
        state = TaskState().after(Call("1", "read", {"path": "x"}), Failure("not_found", "There is no x."))
        print(state.last, state.path)
        #> not_found x
        ```
    """

    last: Last = "nothing"
    path: str = ""
    listed: tuple[str, ...] = ()

    def after(self, call: Call, result: Result) -> "TaskState":
        """The state after one more result."""
        path = _path_of(call)
        if type(result.value) in SCALARS and result.ok:
            same = self.last == "other" and self.path == path
            return self if same else TaskState("other", path, self.listed)
        if not result.ok:
            return TaskState("not_found" if result.kind == "not_found" else "other", path, self.listed)
        value = result.value
        if not isinstance(value, Mapping):
            return TaskState("other", path, self.listed)
        own = value.get("path")
        path = own if isinstance(own, str) else path
        listed = _listed(value)
        if listed is None:
            return TaskState("file" if value.get("kind") == "file" else "other", path, self.listed)
        if not listed:
            return TaskState("empty_listing", path, ())
        return TaskState("partial_listing" if value.get("truncated") else "full_listing", path, listed)


Steer = Callable[[TaskState], str | None]
"""Called after each round: what it returns is told to the model."""


def steer_to_listed_paths(state: TaskState) -> str | None:
    """After a path was not found: the path of the last listing that is most like it."""
    if state.last != "not_found" or not state.listed:
        return None
    near = close_names(state.path[-MAX_COMPARED_CHARS:], state.listed, cutoff=0.0) or state.listed[:1]
    missing = f"{state.path[:200]} was not found" if state.path else "That was not found"
    return f"{missing}. The last listing has {near[0]}: use a path exactly as it is listed, or list again."


def _listed(value: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The paths of a listing, a glob's answer or a search; None where it is none of them."""
    kind = value.get("kind")
    if kind == "paths":
        return _texts(value.get("paths"))
    if kind in ("listing", "matches"):
        entries = value.get("entries" if kind == "listing" else "matches")
        found = entries if isinstance(entries, list) else []
        return _texts(entry.get("path") for entry in found if isinstance(entry, Mapping))
    return None


def _texts(found: Iterable[Any] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for each in found or () if isinstance(each, str)))[:MAX_LISTED_COUNT]


def _path_of(call: Call) -> str:
    """The path among a call's arguments."""
    arguments: Any = call.arguments
    if type(arguments) is str:
        if "path" not in arguments and "\\" not in arguments:  # most calls name none, and need not be parsed
            return ""
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return ""
    path = arguments.get("path") if isinstance(arguments, Mapping) else None
    return path if isinstance(path, str) else ""
