"""The types of a tool's body: what it takes, what it may return."""

from collections.abc import Callable, Mapping
from typing import Any

from handrail.toolkit.context import Context

Body = Callable[[Context, Mapping[str, Any]], Any]
"""`def` or `async def`. Returns any Python object: JSON data, a pydantic model, a dataclass, an Image, an ArtifactRef,
or a Result; or raises ToolFailed. Any other exception is an execution_error."""
