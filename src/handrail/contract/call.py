"""A Call: a request to run a tool, exactly as it was made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Origin = Literal["model", "script", "task", "mcp", "user"]
Arguments = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request to run one tool. It never changes after it is accepted."""

    id: str
    name: str
    arguments: Arguments
    """The raw text that the model sent, or a mapping."""
    origin: Origin = field(default="model", kw_only=True)
    parent: str | None = field(default=None, kw_only=True)
    """The id of the call that made this one."""
    cut: bool = field(default=False, kw_only=True)
    """Whether the model was cut off while it wrote this call. Such a call is never run."""

    # Every call is made here: the slots' own setters take about half of the time of `object.__setattr__`, by which a
    # frozen dataclass would fill itself in.
    def __init__(
        self, id: str, name: str, arguments: Arguments, *, origin: Origin = "model", parent: str | None = None,
        cut: bool = False,
    ) -> None:  # fmt: skip
        _set_id(self, id)
        _set_name(self, name)
        _set_arguments(self, arguments)
        _set_origin(self, origin)
        _set_parent(self, parent)
        _set_cut(self, cut)


_set_id, _set_name, _set_arguments, _set_origin, _set_parent, _set_cut = (
    vars(Call)[each].__set__ for each in Call.__slots__
)
