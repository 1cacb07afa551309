"""A Call: a request to run a tool, exactly as it was made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Origin = Literal["model", "script", "task", "mcp", "user"]
Arguments = str | Mapping[str, Any]


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
