"""A child session: works on one task with the gates, sandbox, approver and budget of its parent, and fewer tools."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio

from handrail.contract.call import Call
from handrail.contract.errors import ToolFailed
from handrail.contract.event import EventType
from handrail.contract.result import ArtifactRef, Failure, FailureKind, Result, Success
from handrail.gates.budget import spend_on_task
from handrail.misuse import nearest
from handrail.sandbox.job import Job
from handrail.sandbox.views import bind
from handrail.session._commands import advised, job_started, sandbox_id
from handrail.session._host import SessionHost
from handrail.session._ids import CallIds
from handrail.session._memory import Memory
from handrail.session.session import Session
from handrail.session.typed_answer import AnswerTool
from handrail.toolkit.context import Context
from handrail.toolkit.gate import SessionState, Step
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

TASK_DEPTH: Final = 4
"""How deep tasks may start tasks."""
MAX_TASKS_COUNT: Final = 32
"""Tasks that one call may start."""
MAX_ARTIFACTS_COUNT: Final = 50
"""Artifacts of a task that its result names."""
KINDS: Final[Mapping[str, FailureKind]] = {
    "budget": "budget_exhausted",
    "asked_user": "unavailable",
    "cancelled": "cancelled",
}
WHY: Final[Mapping[str, str]] = {
    "asked_user": "It asks the user; start it again with the answer in its prompt",
    "round_limit": "It was not done after all of its rounds; give it a smaller part",
    "budget": "The budget of this run is used up",
    "model_error": "The model failed",
    "cut": "Its answer was cut off; ask for a shorter one",
    "refused": "The model refused",
    "cancelled": "The user ended it",
}


class ChildSession(Session):
    """Its events are in the parent's transcript, under `task`, which is also what the ids of its calls begin with."""

    def __init__(self, parent: Session, call_id: str, number: int, tools: Sequence[str] | None) -> None:
        vars(self).update(vars(parent))  # it is the parent in all that is not said below
        if (step := parent._running.get(call_id)) is None:
            raise ToolFailed(Failure("unavailable", "The call that starts the task has ended.", retryable=False))
        self.depth = parent.depth + 1
        if self.depth > TASK_DEPTH or number > MAX_TASKS_COUNT:
            limit = f"{MAX_TASKS_COUNT} of one call" if number > MAX_TASKS_COUNT else f"{TASK_DEPTH} inside one another"
            message = f"The task was not started: the limit of tasks is {limit}. Do the work yourself."
            raise ToolFailed(Failure("rejected", message))
        self.task: str = f"{call_id}/{number}"
        self.toolbox = parent.toolbox.narrowed(_narrowed(parent.toolbox, tools), tools)
        self._spent = number > 1
        """Whether the task was counted as a call of its own."""
        if self._spent and (spent := spend_on_task(step)):
            parent.shared.tasks_ended = True
            raise ToolFailed(Failure("budget_exhausted", f"The task was not started. {spent}"))
        self.host = SessionHost(self.toolbox, parent.host.person, self.own_loop, self._emit_own, parent.host.loaded)
        self.shared = _shared(parent.shared, self.task, step)
        self.memories, self.opened_by = Memory(), {}
        self.ids = CallIds(clean=self.scrubber, prefix=f"{self.task}/")
        self.artifacts = parent.artifacts.child(f"{self.id}/{self.task}")
        self.call_count, self._readers = 0, []
        self._parent = parent
        self._jobs: list[Job] = []
        self.scope = anyio.CancelScope()
        """Ends the task, and nothing else of its call."""
        here = self._running[self.task] = copy(step)
        here.watch(self.scope)

    def emit(
        self, type: EventType, call_id: str | None = None, parent: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write an event under the task."""
        super().emit(type, call_id, parent or self.task, data)

    def begin_run(self) -> None:
        """Do nothing: the budget is that of the parent's run."""

    def memory_changes(self) -> dict[str, dict[str, Any]]:
        """Nothing lasts: a task is not resumed."""
        return {}

    def sandbox_for(self, context: Context) -> Any:
        """The sandbox as one call sees it; jobs that are started end with the task."""
        view, call = super().sandbox_for(context), context.call

        def started(job: Job) -> None:
            self._jobs.append(job)
            job_started(self, call, job)

        return bind(view, call_id=sandbox_id(self, call.id), on_job=started, on_advice=partial(advised, self, call))

    async def enter(self, cwd: str | None) -> None:
        """Work in this directory, which lies in the parent's. Raises ToolFailed for any other."""
        if cwd is None or not cwd.strip():
            return
        try:
            await self._enter(cwd)
        except ToolFailed:
            self.shared.counts.calls -= self._spent  # it was refused, and spends nothing
            raise

    async def _enter(self, cwd: str) -> None:
        if self.sandbox is None:
            raise ToolFailed(Failure("invalid_args", "There is no sandbox, so leave cwd out.", field="cwd"))
        try:
            above, stat = await self.sandbox.stat("."), await self.sandbox.stat(cwd)
        except (OSError, ValueError) as error:
            raise ToolFailed(Failure("not_found", f"{cwd} cannot be used: {error}.", field="cwd")) from None
        if stat.type != "directory" or not f"{stat.real_path}/".startswith(f"{above.real_path.rstrip('/')}/"):
            message = f"{cwd} is not a directory in {self.sandbox.cwd}; name one, or leave cwd out."
            raise ToolFailed(Failure("invalid_args", message, field="cwd"))
        self.sandbox = self.shared.sandbox = self.sandbox.at(stat.real_path)

    async def end(self) -> None:
        """End the jobs that the task left behind, and take no more calls."""
        self._closed = True
        for job in self._jobs:
            if job.running and self.sandbox is not None:
                await self.sandbox.terminate(job.id)
        self._running.pop(self.task, None)

    def result(self, reason: str, text: str) -> Result:
        """What the parent gets of the task that ended for this reason."""
        artifacts: list[ArtifactRef] = self.artifacts.own()[-MAX_ARTIFACTS_COUNT:]
        if reason == "done":
            return Success({"task": self.task, "text": text, "artifacts": artifacts})
        if reason == "budget":
            self._parent.shared.tasks_ended = True
        message = f"The task {self.task} ended without a result. {WHY.get(reason, reason)}: {text}"
        data = {"task": self.task, "reason": reason, "artifacts": artifacts}
        return Failure(KINDS.get(reason, "execution_error"), message, data=data, retryable=False)

    @property
    def is_open(self) -> bool:
        return super().is_open and self._parent.is_open

    def _admit(self, call: Call) -> Step:
        self._check_open()
        return super()._admit(call)

    def accept(self, call: Call) -> Step:
        return super().accept(call if call.parent else replace(call, parent=self.task))


def _narrowed(toolbox: Toolbox, names: Sequence[str] | None) -> list[Tool]:
    """The tools of these names, all of them if None. A task never has a tool that its parent has not."""
    known = {tool.name: tool for tool in toolbox if not isinstance(tool, AnswerTool)}
    for name in names or ():
        if name not in known:
            message = f"There is no tool {name[:100]!r} to give to the task; {nearest(name, known)}."
            raise ToolFailed(Failure("invalid_args", message, field="tools"))
    return [tool for name, tool in known.items() if names is None or name in names]


def _shared(parent: SessionState, task: str, step: Step) -> SessionState:
    """The parent's policy, budget, approver, remembered rules, lanes and counts; the model's context is its own."""
    return parent.for_task(task, step.counts)
