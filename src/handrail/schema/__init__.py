"""Schemas: derived from functions, enforced on arguments, explained to models, exported to providers.

`schema.derive` is loaded when the first tool is made: it needs all of pydantic, which most programs import anyway and
those that only name Handrail's types do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.schema import derive as derive


def __getattr__(name: str) -> Any:
    if name != "derive":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("handrail.schema.derive")
