"""Look after background jobs: list, poll, wait, tail, output, kill, with the real exit code long after the end."""

from codecs import getincrementaldecoder
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from handrail.artifacts.page import PAGE
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool

WAIT: Final = 30
LINES: Final = 50


@tool(effects=["reads"], needs=["exec"], timeout=None, lane="none")
async def process(
    action: Literal["list", "poll", "wait", "tail", "output", "kill"],
    context: Context,
    job: str | None = None,
    timeout: Annotated[int, Field(ge=1, le=3_600)] = WAIT,
    lines: Annotated[int, Field(ge=1, le=5_000)] = LINES,
    start: Annotated[int, Field(ge=0)] = 0,
    end: Annotated[int | None, Field(ge=1)] = None,
) -> Any:
    """Look after the jobs that `bash` started in the background.

    Args:
        action: list all jobs; poll one's state; wait for its end; tail what it printed last; output any range of what
            it printed; kill it with all it started.
        job: The job's id, as `bash` gave it. Needed for everything but list.
        timeout: Seconds to wait for the end, with wait.
        lines: How many of the last lines to show, with tail.
        start: The byte to begin with, counted from 0, with output.
        end: The byte to stop before, with output; by default as many as fit.
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
        return _tail(found, lines)
    elif action == "output":
        return _output(found, start, end)
    return _state(found)


def _tail(job: Job, lines: int) -> Success:
    size, (data, shortened) = job.size, job.last(lines, PAGE)
    start = size - len(data)
    value = {**_state(job), "start": start, "end": size, "text": data.decode("utf-8", "replace")}
    if not shortened:
        return Success(value)
    before = _call(job, max(0, start - PAGE), start)
    return Success(value, (f"These are not all of the last {lines} lines; what is before them: {before}.",))


def _output(job: Job, start: int, end: int | None) -> Success:
    """A range of what the job printed, at most a page of it, which ends with a whole character."""
    size = job.size
    if start > size:
        raise _wrong("start", f"{job.id} has printed {size:,} bytes; start {start:,} is past the end", f"0 to {size}")
    if end is not None and end <= start:
        raise _wrong("end", f"end {end:,} is not after start {start:,}", f"more than {start}")
    gone, last = job.discarded, min(size, end or size)
    stop = min(last, (gone.stop if start in gone else start) + PAGE)
    try:
        data = job.read(start, stop)
    except ValueError:
        message = f"The output of {job.id} is no longer kept; action=tail shows its last lines."
        raise ToolFailed(Failure("unavailable", message, retryable=False)) from None
    text, left = _whole_characters(data, stop < size)
    notes = []
    if stop - left < last:
        notes.append(f"More follows: {_call(job, stop - left, last)}.")
    if gone and start < gone.stop and stop > gone.start:
        notes.append(f"The bytes {gone.start:,} to {gone.stop:,} were discarded: more was printed than is kept.")
    return Success({**_state(job), "start": start, "end": stop - left, "text": text}, tuple(notes))


def _whole_characters(data: bytes, more: bool) -> tuple[str, int]:
    """The text, and how many bytes at the end of the data belong to a character that goes on behind it."""
    decoder = getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    left = len(decoder.getstate()[0])
    return (text, left) if more and text else (data.decode("utf-8", "replace"), 0)


def _call(job: Job, start: int, end: int) -> str:
    return f'process(action="output", job="{job.id}", start={start}, end={end})'


def _wrong(field: str, message: str, expected: str) -> ToolFailed:
    return ToolFailed(Failure("invalid_args", f"{message}.", field=field, expected=expected))


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
