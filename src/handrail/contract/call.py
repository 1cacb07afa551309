"""A Call: a request to run a tool, exactly as it was made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Origin = Literal["model", "script", "task", "mcp", "user"]
Arguments = str | Mapping[str, Any]
_put: Final = object.__setattr__


class _Unsealed:
    """A Call while it is made: to fill in a frozen object takes twice as long, and every call makes one."""

    __slots__ = ("arguments", "cut", "id", "name", "origin", "parent")


@dataclass(frozen=True, slots=True)
class Call:
    """One request to run one tool. It never changes after it is accepted.

    Example:
        ```python
        def add(a: int, b: int = 1) -> int:
            "Add two numbers."
            return a + b

        async with Session([add]) as session:
            results = await session.call_all([Call("c1", "add", '{"a": "41"}'), Call("c2", "add", {"a": 1, "b": 2})])
            print([result.value for result in results])
        #> [42, 3]
        ```
    """

    id: str
    name: str
    arguments: Arguments
    """The raw text that the model sent, or a mapping."""
    origin: Origin = field(default="model", kw_only=True)
    parent: str | None = field(default=None, kw_only=True)
    """The id of the call that made this one."""
    cut: bool = field(default=False, kw_only=True)
    """Whether the model was cut off while it wrote this call. Such a call is never run."""

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
