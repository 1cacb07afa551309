"""End the work with a summary that is not a placeholder."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool

PLACEHOLDERS: Final = frozenset(
    {"", "done", "complete", "completed", "finished", "ok", "success", "summary", "task complete", "task completed",
     "todo", "tbd", "na", "n a", "none", "null", "your summary here", "summary here", "placeholder"}
)  # fmt: skip


def _check(arguments: Mapping[str, Any]) -> None:
    if re.sub(r"[\W_]+", " ", arguments["summary"].lower()).strip() in PLACEHOLDERS:
        message = "The summary says nothing. Say what was done, what was found, and what is left."
        raise ToolFailed(Failure("invalid_args", message, field="summary", expected="a few sentences"))


@tool(validate=_check)
async def complete(summary: Annotated[str, Field(json_schema_extra={"blank": "keep"})], context: Context) -> Any:
    """End the work. Call it once, when every request is done or turned out to be impossible.

    Args:
        summary: What was done, what was found, and what is left, in a few sentences.
    """
    context.host.finish(summary)
    return {"completed": True}
