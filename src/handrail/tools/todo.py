"""Keep the model's to-do list for the length of a session."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool


class Item(BaseModel):
    """One thing to do."""

    content: Annotated[str, Field(min_length=1, max_length=2_000)]
    status: Literal["pending", "in_progress", "completed"]


@tool
async def todo(items: Annotated[list[Item], Field(max_length=200)], context: Context) -> Any:
    """Replace the to-do list. Send all items each time, each with its status.

    Args:
        items: The whole list, in order.
    """
    saved = [item.model_dump() for item in items]
    context.memory("todo", lasts=True)["items"] = saved
    left = sum(item.status != "completed" for item in items)
    return {"items": saved, "left": left}
