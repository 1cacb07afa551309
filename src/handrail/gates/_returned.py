"""Values of the sandbox that a body returned, in the form in which the built-in tools answer."""

import posixpath
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from handrail.contract.driver import FileStat
from handrail.contract.result import Success
from handrail.gates._plain import KEPT, is_record
from handrail.lazy import Lazy
from handrail.sandbox.completed import Answer
from handrail.toolkit.gate import Step

if TYPE_CHECKING:
    from handrail.sandbox import dispatch as _dispatch
else:
    _dispatch = Lazy("handrail.sandbox.dispatch")


def as_builtin(step: Step, value: Any) -> tuple[Any, tuple[str, ...]]:
    """The value in a built-in tool's form, and a note on what is not shown; any other value as it is."""
    if type(value) is list and step.tool.output is None:
        value = _listing(value)
    if not isinstance(value, Answer):
        return value, ()
    data = value.to_data(step.context.caps)
    count = data.get("entry_count", 0)
    left = count - len(data["entries"]) if count else 0
    return data, (f"{left} of {count} entries are not shown.",) if left else ()


def _listing(value: list[Any]) -> Any:
    """The entries of one directory, as `Sandbox.list` gives them, as a Listing."""
    if not value or any(type(each) is not FileStat for each in value):
        return value
    (where, *others) = {posixpath.dirname(each.path) for each in value}
    return value if others else _dispatch.Listing(where, tuple(value))


async def with_artifacts(step: Step, value: Any) -> Any:
    """The value with an artifact in place of all bytes that are not UTF-8."""
    if isinstance(value, Success):
        return replace(value, value=await with_artifacts(step, value.value))
    if type(value) in KEPT or isinstance(value, Answer):
        return value
    if isinstance(value, Mapping):
        return {key: await with_artifacts(step, each) for key, each in value.items()}
    if is_record(value):
        return {each.name: await with_artifacts(step, getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, list | tuple):
        return [await with_artifacts(step, each) for each in value]
    if isinstance(value, bytes | bytearray) and not _is_text(value):
        return await step.context.artifacts.put(bytes(value))
    return value


def _is_text(data: bytes | bytearray) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
