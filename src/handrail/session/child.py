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
from handrail.contract.result import Failure
from handrail.gates.budget import spend_on_task
from handrail.sandbox.job import Job
from handrail.session._commands import advised, job_started, sandbox_id
from handrail.session._ids import CallIds
from handrail.session._memory import Memory
from handrail.session.host import SessionHost
from handrail.session.session import Session
from handrail.toolkit.context import Context
from handrail.toolkit.gate import SessionState, Step
from handrail.toolkit.tool import Tool

TASK_DEPTH: Final = 4
"""How deep tasks may start tasks."""
MAX_TASKS_COUNT: Final = 32
"""Tasks that one call may start."""


class ChildSession(Session):
    """Its events are in the parent's transcript, under `task`, which is also what the ids of its calls begin with."""

    def __init__(
        self, parent: Session, call_id: str, number: int, tools: Sequence[Tool], names: Sequence[str] | None
    ) -> None:
        vars(self).update(vars(parent))  # it is the parent in all that is not said below
        if (step := parent._running.get(call_id)) is None:
            raise ToolFailed(Failure("unavailable", "The call that starts the task has ended.", retryable=False))
        self.depth = parent.depth + 1
        if self.depth > TASK_DEPTH or number > MAX_TASKS_COUNT:
            limit = f"{MAX_TASKS_COUNT} of one call" if number > MAX_TASKS_COUNT else f"{TASK_DEPTH} inside one another"
            message = f"The task was not started: the limit of tasks is {limit}. Do the work yourself."
            raise ToolFailed(Failure("rejected", message))
        self.task: str = f"{call_id}/{number}"
        self.toolbox = parent.toolbox.narrowed(tools, names)
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

        return view.bind(call_id=sandbox_id(self, call.id), on_job=started, on_advice=partial(advised, self, call))

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

    @property
    def is_open(self) -> bool:
        return super().is_open and self._parent.is_open

    def _admit(self, call: Call) -> Step:
        self._check_open()
        return super()._admit(call)

    def accept(self, call: Call) -> Step:
        return super().accept(call if call.parent else replace(call, parent=self.task))


def _shared(parent: SessionState, task: str, step: Step) -> SessionState:
    """The parent's policy, budget, approver, remembered rules, lanes and counts; the model's context is its own."""
    made = SessionState(parent.policy, parent.budget, parent.approver, parent.sandbox, parent.caps)
    made.task, made.counts = task, step.counts
    made.remembered, made.lanes, made.open_guard = parent.remembered, parent.lanes, parent.open_guard
    made.used_approvals, made.call_timeout = parent.used_approvals, parent.call_timeout
    return made
