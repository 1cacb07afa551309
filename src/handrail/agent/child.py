"""A task of the model: an agent of its own works on it in a child session, with fewer tools."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from handrail.agent.loop import Outcome
from handrail.agent.typed_answer import AnswerTool
from handrail.aio import finish
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef, Failure, FailureKind, Result, Success
from handrail.misuse import nearest
from handrail.session.child import ChildSession
from handrail.session.core import SessionCore
from handrail.session.session import Session
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

TASK: Final = "You do one task for another assistant. It gets your last answer and nothing else of what you say."
"""The part of a task's system text that says that it is a task."""
MAX_ARTIFACTS_COUNT: Final = 50
"""Artifacts of a task that its result names."""
KINDS: Final[Mapping[str, FailureKind]] = {
    "budget": "budget_exhausted",
    "asked_user": "unavailable",
    "cancelled": "cancelled",
}
"""Kind of the failure of a task, by the reason why its run ended; else execution_error."""
WHY: Final[Mapping[str, str]] = {
    "asked_user": "It asks the user; start it again with the answer in its prompt",
    "round_limit": "It was not done after all of its rounds; give it a smaller part",
    "budget": "The budget of this run is used up",
    "model_error": "The model failed",
    "cut": "Its answer was cut off; ask for a shorter one",
    "refused": "The model refused",
    "cancelled": "The user ended it",
}
"""Sentence of that failure, by the reason."""


class TaskAgent(Protocol):
    """The part of an Agent that a task needs."""

    async def run(self, prompt: str) -> Outcome: ...


async def do_task(
    core: SessionCore, call_id: str, number: int, prompt: str, tools: Sequence[str] | None, cwd: str | None,
    make_agent: Callable[[Session], TaskAgent],
) -> Result:  # fmt: skip
    """Do task `number` of a call, and return what the call gets of it."""
    if not prompt.strip():
        return Failure("invalid_args", "The prompt is blank: say what the task is.", field="prompt")
    child = ChildSession(core, call_id, number, _narrowed(core.toolbox, tools), tools)
    outcome = Outcome("cancelled", "go on without it.")
    try:
        with child.scope:
            await child.enter(cwd)
            outcome = await make_agent(child).run(prompt)
    finally:
        await finish(child.end)
    if outcome.reason == "budget":
        core.shared.tasks_ended = True
    return _result(child, outcome)


def system_text(base: str, role: str) -> str:
    """The system text of a task: the agent's own, that this is a task, and its role."""
    return "\n\n".join(part for part in (base, TASK, f"Your role: {role}" if role.strip() else "") if part)


def _result(child: ChildSession, outcome: Outcome) -> Result:
    """The result of the call that started the task."""
    artifacts: list[ArtifactRef] = child.artifacts.own()[-MAX_ARTIFACTS_COUNT:]
    if outcome.reason == "done":
        return Success({"task": child.task, "text": outcome.text, "artifacts": artifacts})
    why = WHY.get(outcome.reason, outcome.reason)
    message = f"The task {child.task} ended without a result. {why}: {outcome.text}"
    data = {"task": child.task, "reason": outcome.reason, "artifacts": artifacts}
    return Failure(KINDS.get(outcome.reason, "execution_error"), message, data=data, retryable=False)


def _narrowed(toolbox: Toolbox, names: Sequence[str] | None) -> list[Tool]:
    """The tools of these names, all of them if None. A task never has a tool that its parent lacks."""
    known = {tool.name: tool for tool in toolbox if not isinstance(tool, AnswerTool)}
    for name in names or ():
        if name not in known:
            message = f"There is no tool {name[:100]!r} to give to the task; {nearest(name, known)}."
            raise ToolFailed(Failure("invalid_args", message, field="tools"))
    return [tool for name, tool in known.items() if names is None or name in names]
