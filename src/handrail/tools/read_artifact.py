"""Read an artifact, a page at a time."""

from typing import Annotated, Any

from pydantic import Field

from handrail.artifacts.page import LARGEST, PAGE, page
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool


@tool(effects=["reads"])
async def read_artifact(
    ref: Annotated[str, Field(min_length=1)],
    context: Context,
    start: Annotated[int, Field(ge=0)] = 0,
    length: Annotated[int, Field(ge=1)] = PAGE,
) -> Any:
    """Read part of an artifact: an output that was too long to show, or a shared file.

    Args:
        ref: The reference, such as a_0123abcd, exactly as in a result.
        start: The first byte, counted from 0.
        length: How many bytes to read at most.
    """
    info = context.artifacts.info(ref)
    if info is not None and start >= info.size > 0:
        message = f"{ref} has {info.size:,} bytes; start {start:,} is past the end."
        raise ToolFailed(Failure("invalid_args", message, field="start", expected=f"0 to {info.size - 1}"))
    value = await page(context.artifacts, ref, start, length)
    if value["kind"] == "binary":
        advice = f'{ref} is not text. Pass {{"$artifact": "{ref}"}} to a tool that takes its content.'
        return Success(value, (advice,))
    notes = [f"{value['size'] - value['end']:,} bytes follow; go on with start={value['end']}."]
    if length > LARGEST:
        notes.append(f"At most {LARGEST:,} bytes are read at once.")
    return Success(value, tuple(notes) if "next_start" in value else ())
