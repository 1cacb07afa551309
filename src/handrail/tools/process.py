"""Look after background jobs: list, poll, wait, tail, kill, with the real exit code long after the end."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool

WAIT: Final = 30
LINES: Final = 50


@tool(effects=["reads"], needs=["exec"], timeout=None, lane="none")
async def process(
    action: Literal["list", "poll", "wait", "tail", "kill"],
    context: Context,
    job: str | None = None,
    timeout: Annotated[int, Field(ge=1, le=3_600)] = WAIT,
    lines: Annotated[int, Field(ge=1, le=5_000)] = LINES,
) -> Any:
    """Look after the jobs that `bash` started in the background.

    Args:
        action: list all jobs; poll one's state; wait for its end; tail what it printed; kill it with all it started.
        job: The job's id, as `bash` gave it. Needed for everything but list.
        timeout: Seconds to wait for the end, with wait.
        lines: How many of the last lines to show, with tail.
    """
    sandbox = context.sandbox
    if action == "list":
        return {"jobs": [_state(each) for each in sandbox.jobs()]}
    found = _find(sandbox, job)
    if action == "wait":
        await found.wait(min(timeout, max(0.001, context.clock.left())))
        if found.running and context.clock.left() <= 0:
            message = "The time of this run is over, and the job still runs. Answer with what you have."
            raise ToolFailed(Failure("budget_exhausted", message, data=_state(found)))
    elif action == "kill":
        ended = await sandbox.terminate(found.id, by="user" if context.call.origin == "user" else "model")
        return {**_state(found), "killed": ended}
    elif action == "tail":
        return {**_state(found), "text": found.tail(lines)}
    return _state(found)


def _find(sandbox: Sandbox, id: str | None) -> Job:
    if id is None:
        raise ToolFailed(Failure("invalid_args", "Say which job.", field="job", expected="the id of a job"))
    found = sandbox.job(id)
    if found is None:
        known = ", ".join(each.id for each in sandbox.jobs()) or "none"
        raise ToolFailed(Failure("invalid_args", f"There is no job {id!r}. The jobs are: {known}.", field="job"))
    return found


def _state(job: Job) -> dict[str, Any]:
    state: dict[str, Any] = {
        "job": job.id,
        "command": job.command if isinstance(job.command, str) else list(job.command),
        "pid": job.pid,
        "running": job.running,
        "exit_code": job.exit_code,
        "output_bytes": job.size,
    }
    if job.error is not None:
        state["error"] = str(job.error)
    elif job.completed is not None:
        state["ended_by"] = job.completed.ended_by
        if job.completed.ended_by == "user":
            state["killed_by"] = "user"
    return state
