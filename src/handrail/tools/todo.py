"""Keep the model's own list of what is to do, for the length of a session."""

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
    """Replace the list of what is to do with this one. Send all items each time, with their states.

    Args:
        items: The whole list, in order.
    """
    listed = [item.model_dump() for item in items]
    context.memory("todo")["items"] = listed
    left = sum(item.status != "completed" for item in items)
    return {"items": listed, "left": left}
