"""A child session: works on one task with the gates, sandbox, approver and budget of its parent, and fewer tools."""

from collections.abc import Sequence
from copy import copy
from typing import Final

import anyio

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.gates.budget import spend_on_task
from handrail.session._ids import CallIds
from handrail.session.core import SessionCore
from handrail.session.session import Session
from handrail.toolkit.tool import Tool

TASK_DEPTH: Final = 4
"""How deep tasks may start tasks."""
MAX_TASKS_COUNT: Final = 32
"""Tasks that one call may start."""


class ChildSession(Session):
    """The session of one task. Its events are in the parent's transcript, under the id of the task.

    Made of the parent's parts, it is neither entered nor closed as a Session is: `end` ends it.
    """

    def __init__(
        self, parent: SessionCore, call_id: str, number: int, tools: Sequence[Tool], names: Sequence[str] | None
    ) -> None:
        if (step := parent.running.get(call_id)) is None:
            raise ToolFailed(Failure("unavailable", "The call that starts the task has ended.", retryable=False))
        depth = parent.depth + 1
        if depth > TASK_DEPTH or number > MAX_TASKS_COUNT:
            limit = f"{MAX_TASKS_COUNT} of one call" if number > MAX_TASKS_COUNT else f"{TASK_DEPTH} inside one another"
            message = f"The task was not started: the limit of tasks is {limit}. Do the work yourself."
            raise ToolFailed(Failure("rejected", message))
        self.task = task = f"{call_id}/{number}"
        toolbox = parent.toolbox.narrowed(tools, names)
        self._spent = number > 1
        """Whether the task was counted as a call of its own."""
        if self._spent and (spent := spend_on_task(step)):
            parent.shared.tasks_ended = True
            raise ToolFailed(Failure("budget_exhausted", f"The task was not started. {spent}"))
        self._core = SessionCore(
            id=parent.id, toolbox=toolbox, shared=parent.shared.for_task(task, step.counts),
            transcript=parent.transcript,
            artifacts=parent.artifacts.child(f"{parent.id}/{task}"),
            ids=CallIds(clean=parent.scrubber, prefix=f"{task}/"), walk=parent.walk, own_loop=parent.own_loop,
            running=parent.running, state=parent.state, person=parent.person, scrubber=parent.scrubber,
            tracing=parent.tracing, is_budgeted=parent.is_budgeted, loaded=parent.tools.loaded, parent=parent,
            task=task, depth=depth,
        )  # fmt: skip
        self._entered = True
        self.scope = anyio.CancelScope()
        """Ends the task, and nothing else of its call."""
        here = parent.running[task] = copy(step)
        here.watch(self.scope)

    async def enter(self, cwd: str | None) -> None:
        """Work in this directory, which lies in the parent's. Raises ToolFailed for any other."""
        if cwd is None or not cwd.strip():
            return
        try:
            await self._enter(cwd)
        except ToolFailed:
            self._core.shared.counts.calls -= self._spent  # it was refused, and spends nothing
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
        self._core.shared.sandbox = self.sandbox.at(stat.real_path)

    async def end(self) -> None:
        """End the jobs that the task left behind, and take no more calls."""
        self._core.closed = True
        for job in self._core.jobs:
            if job.running and self.sandbox is not None:
                await self.sandbox.terminate(job.id)
        self._core.running.pop(self.task, None)
