"""Ask the user a question, with all clocks paused."""

from typing import Annotated, Any

from pydantic import Field

from handrail.toolkit.context import Context, PassedOn
from handrail.toolkit.tool import tool


@tool(timeout=None)
async def ask_user(
    question: Annotated[str, Field(min_length=1)],
    context: Context,
    choices: Annotated[list[str], Field(max_length=20)] = [],  # noqa: B006 - never changed
) -> Any:
    """Ask the user something that only they know. Use it sparingly.

    Args:
        question: The question, with everything needed to answer it.
        choices: Suggested answers; the user may give another.
    """
    with context.clock.pause():
        answer = await context.host.ask(question, choices)
    return {"passed_on": str(answer)} if isinstance(answer, PassedOn) else {"answer": answer}
