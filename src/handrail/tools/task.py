"""Give work to child sessions: one task, or a batch of them that run together."""

from collections.abc import Mapping
from typing import Annotated, Any

import anyio
from pydantic import BaseModel, Field

from handrail.contract.errors import ToolFailed
from handrail.contract.limits import MAX_RUNNING_TASKS_COUNT
from handrail.contract.result import Failure, Result, Success
from handrail.contract.truncated import cut
from handrail.toolkit.context import Context
from handrail.toolkit.tool import ALL, tool


class Part(BaseModel):
    """One task of a batch."""

    prompt: Annotated[str, Field(min_length=1)]
    role: str = ""
    tools: list[str] | None = None
    cwd: str | None = None


def _check(arguments: Mapping[str, Any]) -> None:
    if bool(arguments.get("prompt", "").strip()) == bool(arguments.get("batch")):
        message = "Give either a prompt, or a batch with at least one task: exactly one of the two."
        raise ToolFailed(Failure("invalid_args", message, field="prompt", expected="what to do, and what to answer"))


@tool(timeout=None, callable_from=ALL - {"script"}, varies=["task"], validate=_check)
async def task(
    context: Context,
    prompt: str = "",
    role: str = "",
    tools: list[str] | None = None,
    cwd: str | None = None,
    batch: Annotated[list[Part] | None, Field(max_length=32)] = None,
) -> Any:
    """Give a task, or a batch of tasks that run side by side, to assistants that start with nothing but its prompt.

    Args:
        prompt: What to do and what to answer with, complete: the assistant sees nothing of this conversation.
        role: Who the assistant is, such as "a careful reviewer".
        tools: Names of the tools it may use, of those that you have; all by default.
        cwd: The directory it works in, below yours.
        batch: Up to 32 tasks instead of one prompt; the answers come in the same order.
    """
    parts = batch or []
    if not parts:
        with context.clock.grace():  # a task ends itself when the run's seconds are over
            return await context.host.spawn(prompt, role=role, tools=tools, cwd=cwd)
    host, results, waiting = context.host, dict[int, Result](), iter(enumerate(parts))

    async def work() -> None:
        for number, part in waiting:
            given, where = tools if part.tools is None else part.tools, part.cwd or cwd
            try:
                results[number] = await host.spawn(part.prompt, role=part.role or role, tools=given, cwd=where)
            except ToolFailed as error:
                results[number] = error.failure

    with context.clock.grace():
        async with anyio.create_task_group() as group:
            for _ in parts[:MAX_RUNNING_TASKS_COUNT]:
                group.start_soon(work)
    most = context.caps.value // (len(parts) + 1)
    return [(await _within(context, results[number], most)).to_envelope("task") for number in range(len(parts))]


async def _within(context: Context, result: Result, most: int) -> Result:
    """The result with its share of what the whole batch may answer; what is cut can be read as an artifact."""
    text = result.value["text"] if result.ok else result.message
    if len(text) <= most:
        return result
    kept = await context.artifacts.put(text, name="answer.txt")
    context.artifacts.show(kept)
    short = cut(text, most, kept)
    if result.ok:
        return Success({**result.value, "text": short}, result.warnings)
    return Failure(result.kind, short, data=result.data, warnings=result.warnings, retryable=result.retryable)
