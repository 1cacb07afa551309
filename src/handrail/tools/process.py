"""Manage background jobs: list, poll, wait, tail, output, send, kill; their exit codes stay known."""

from codecs import getincrementaldecoder
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import anyio
from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools.bash import Seconds

DEFAULT_WAIT: Final = 30
DEFAULT_LINES: Final = 50
Action = Annotated[
    Literal["list", "poll", "wait", "tail", "output", "send", "kill"],
    Field(json_schema_extra={"only_reads": ["list", "poll", "wait", "tail", "output"]}),
]


def _check(arguments: Mapping[str, Any]) -> None:
    """Raise ToolFailed for an action without what it needs."""
    action, start, end = arguments["action"], arguments.get("start", 0), arguments.get("end")
    if action != "list" and arguments.get("job") is None:
        raise _invalid("job", "Name a job; action=list shows them", "the id of a job")
    if action == "send" and not arguments.get("text") and not arguments.get("close"):
        raise _invalid("text", "There is nothing to send; give text, or close=true", "text for the job's input")
    if action == "output" and end is not None and end <= start:
        raise _invalid("end", f"end {end:,} is not after start {start:,}", f"more than {start}")


# a shell runs what it is sent
@tool(effects=["reads", "executes"], needs=["exec"], timeout=None, lane="none", polls=True, validate=_check)
async def process(
    action: Action,
    context: Context,
    job: str | None = None,
    timeout: Seconds = DEFAULT_WAIT,
    lines: Annotated[int, Field(ge=1, le=5_000)] = DEFAULT_LINES,
    start: Annotated[int, Field(ge=0)] = 0,
    end: Annotated[int | None, Field(ge=1)] = None,
    text: Annotated[str, Field(json_schema_extra={"blank": "keep"})] = "",
    close: bool = False,
) -> Any:
    """Manage the jobs that `bash` started in the background.

    Args:
        action: list all jobs; poll the state of one; wait until it ends; tail its last lines; output any range of its
            output; send it input; kill it and everything it started.
        job: The job's id, as `bash` returned it. Required except for list.
        timeout: For wait: seconds to wait; for send: seconds that it has to read its input.
        lines: For tail: how many lines to show.
        start: For output: the first byte, counted from 0.
        end: For output: the byte to stop before; by default, as many as fit.
        text: For send: the input, to a job that was started with input=true; end a line with a line feed.
        close: For send: close the input after the text, so that the job sees its end.
    """
    sandbox = context.sandbox
    if action == "list":
        return {"jobs": [_state(each) for each in sandbox.jobs()]}
    target = _find(sandbox, job)
    if action == "wait":
        await _wait(context, target, timeout)
    elif action == "send":
        return await _send(context, target, text.encode("utf-8", "surrogatepass"), close, timeout)
    elif action == "kill":
        ended = await sandbox.terminate(target.id, by="user" if context.call.origin == "user" else "model")
        return {**_state(target), "killed": ended}
    elif action == "tail":
        return _tail(target, lines, context.caps.file)
    elif action == "output":
        return _output(target, start, end, context.caps.file)
    return _state(target)


async def _wait(context: Context, job: Job, timeout: float) -> None:
    with context.clock.grace():
        await job.wait(min(timeout, max(0.001, context.clock.left())))
    if job.running and context.clock.left() <= 0:
        message = "The time budget of this run is spent, and the job still runs. Answer with what you have."
        raise ToolFailed(Failure("budget_exhausted", message, data=_state(job)))


async def _send(context: Context, job: Job, data: bytes, close: bool, timeout: float) -> dict[str, Any]:
    if not job.takes_input:
        message = f"{job.id} takes no input; start it with bash(background=true, input=true)"
        raise _invalid("job", message, "a job that was started with input=true")
    try:
        with (
            context.clock.grace(),
            anyio.move_on_after(min(timeout, max(0.001, context.clock.left()))) as scope,
        ):
            if data:
                await job.send(data)
            if close:
                await job.send(None)
    except BrokenPipeError:
        ended = "has closed its input" if job.running else f"has ended with exit code {job.exit_code}"
        message = f"{job.id} {ended}; not all of the text was read."
        raise ToolFailed(Failure("execution_error", message, data=_state(job), retryable=False)) from None
    if scope.cancelled_caught:
        message = (
            f"{job.id} did not read all of its input within {timeout:g} s. What it has not read may still reach it: "
            "see with action=tail what it does, and do not send the same text again."
        )
        raise ToolFailed(Failure("timeout", message, data=_state(job), retryable=False))
    return {**_state(job), "bytes_sent": len(data), "input_closed": close}


def _tail(job: Job, lines: int, cap: int) -> Success:
    size, (data, shortened) = job.size, job.last(lines, cap)
    start = size - len(data)
    value = {"kind": "output", **_state(job), "start": start, "end": size, "text": data.decode("utf-8", "replace")}
    if not shortened:
        return Success(value)
    before = _output_call(job, max(0, start - cap), start)
    return Success(value, (f"Not all of the last {lines} lines are shown; those before them: {before}.",))


def _output(job: Job, start: int, end: int | None, cap: int) -> Success:
    """A range of the job's output: at most `cap` bytes, ending with a whole character, and on one side of a gap."""
    size = job.size
    if start > size:
        raise _invalid("start", f"{job.id} has printed {size:,} bytes; start {start:,} is past the end", f"0 to {size}")
    gone, last = job.discarded, min(size, end or size)
    begin = gone.stop if start in gone else start
    stop = max(begin, min(last, begin + cap))
    if begin < gone.start < stop:  # what is read must not look as if nothing were missing
        stop = gone.start
    at_gap = bool(gone) and stop == gone.start
    try:
        data = job.read(begin, stop)
    except ValueError:
        message = f"The output of {job.id} is no longer kept; action=tail shows its last lines."
        raise ToolFailed(Failure("unavailable", message, retryable=False)) from None
    text, left = _whole_characters(data, stop < size and not at_gap)
    stop = gone.stop if at_gap else stop - left
    notes = []
    if stop < last:
        notes.append(f"More follows: {_output_call(job, stop, last)}.")
    if at_gap or start in gone:
        notes.append(f"Bytes {gone.start:,} to {gone.stop:,} were discarded: the job printed more than is kept.")
    return Success({"kind": "output", **_state(job), "start": begin, "end": stop, "text": text}, tuple(notes))


def _whole_characters(data: bytes, more: bool) -> tuple[str, int]:
    """The text, and how many bytes at its end belong to a character that is cut off."""
    decoder = getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    left = len(decoder.getstate()[0])
    return (text, left) if more and text else (data.decode("utf-8", "replace"), 0)


def _output_call(job: Job, start: int, end: int) -> str:
    return f'process(action="output", job="{job.id}", start={start}, end={end})'


def _invalid(field: str, message: str, expected: str) -> ToolFailed:
    return ToolFailed(Failure("invalid_args", f"{message}.", field=field, expected=expected))


def _find(sandbox: Sandbox, id: str | None) -> Job:
    target = sandbox.job(id or "")
    if target is None:
        known = ", ".join(each.id for each in sandbox.jobs()) or "none"
        raise ToolFailed(Failure("invalid_args", f"There is no job {id!r}. The jobs are: {known}.", field="job"))
    return target


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
