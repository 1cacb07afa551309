"""Events of a session about its sandbox's commands: jobs, late outcomes, advice."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from handrail.contract.call import Call
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.sandbox.completed import Late
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.views import bind, on_late
from handrail.toolkit.context import Context

if TYPE_CHECKING:
    from handrail.session.core import SessionCore


def report_late_to(core: "SessionCore", sandbox: Sandbox | None) -> Callable[[], object]:
    """Report late outcomes to the session while it exists, entered or not. Call the returned function to stop."""
    heard = weakref.ref(core)
    late = on_late(sandbox) if sandbox is not None else []

    def tell(late: Late) -> None:
        if (listener := heard()) is not None:
            _record_late(listener, late)

    late.append(tell)
    return weakref.finalize(core, late.remove, tell)


def bound_sandbox(core: "SessionCore", context: Context) -> Sandbox:
    """The session's sandbox as one call sees it. Raises ToolFailed where there is none."""
    if core.sandbox is None:
        raise ToolFailed(Failure("unavailable", "This session has no sandbox. Go on without it.", retryable=False))
    call = context.call
    return bind(
        core.sandbox, clock=context.clock, call_id=sandbox_id(core, call.id), caps=context.caps,
        on_job=partial(job_started, core, call), on_advice=partial(advised, core, call),
    )  # fmt: skip


def job_started(core: "SessionCore", call: Call, job: Job) -> None:
    """Record that a call started a job, and later how the job ended."""
    if core.task is not None:
        core.jobs.append(job)
    command = job.command if isinstance(job.command, str) else list(job.command)
    core.emit("job_started", call.id, call.parent, {"job": job.id, "pid": job.pid, "command": command})
    job.when_ended(partial(_job_ended, core, call))


def advised(core: "SessionCore", call: Call, text: str) -> None:
    """Record what a person could change about the sandbox, where that is why a command of the call failed."""
    if not core.transcript.closed:
        core.emit("warning", call.id, call.parent, {"message": text})


def sandbox_id(core: "SessionCore", call_id: str) -> str:
    """The sandbox's id for a call: a sandbox may serve sessions whose calls have the same ids."""
    return f"{core.id}/{call_id}"


def _record_late(core: "SessionCore", late: Late) -> None:
    """Record the outcome of a command that ended after its call was answered."""
    own = sandbox_id(core, "")
    if "/" in late.id and not late.id.startswith(own):  # a call of another session on the same sandbox
        return
    outcome = f"raised {late.error}" if late.error is not None else f"ended with exit code {late.exit_code}"
    core.emit("call_late", late.id.removeprefix(own), data={"outcome": outcome})


def _job_ended(core: "SessionCore", call: Call, job: Job) -> None:
    if core.transcript.closed:  # the sandbox is somebody else's too
        return
    ended_by = None if job.completed is None else job.completed.ended_by
    error = None if job.error is None else str(job.error)
    data = {"job": job.id, "exit_code": job.exit_code, "ended_by": ended_by, "error": error}
    core.emit("job_ended", call.id, call.parent, data)
