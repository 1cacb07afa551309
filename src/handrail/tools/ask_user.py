"""Put a question to the person, and wait as long as it takes."""

from typing import Annotated, Any

from pydantic import Field

from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool


@tool(timeout=None)
async def ask_user(
    question: Annotated[str, Field(min_length=1)],
    context: Context,
    choices: Annotated[list[str], Field(max_length=20)] = [],  # noqa: B006 - never changed
) -> Any:
    """Ask the user something that only they can tell. Use it sparingly.

    Args:
        question: The question, with all that is needed to answer it.
        choices: Answers to choose from; the user may answer otherwise.
    """
    with context.clock.pause():
        return {"answer": await context.host.ask(question, choices)}
