"""Run a command line in the sandbox: its limits really end it, and what it printed is always kept."""

from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Annotated, Any, Final, get_args

from pydantic import Field

from handrail.contract.driver import Chunk, StreamName
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Result, Success
from handrail.sandbox.completed import Completed
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import explained, missing

TIMEOUT: Final = 120
LONGEST: Final = 3_600


@tool(risk="high", effects=["executes"], needs=["exec", "tree_kill"], timeout=None)
async def bash(
    command: Annotated[str, Field(min_length=1)],
    context: Context,
    timeout: Annotated[int, Field(ge=1, le=LONGEST)] = TIMEOUT,
    idle_timeout: Annotated[int | None, Field(ge=1, le=LONGEST)] = None,
    background: bool = False,
    cwd: str | None = None,
) -> Any:
    """Run a command line in bash (with pipefail). Each call is a new shell: nothing but files is kept between calls.

    What a command leaves running is ended with it; start servers with `background`.

    Args:
        command: The command line; several lines are fine.
        timeout: Seconds after which the command and everything it started is ended; a background job has no such end.
        idle_timeout: Seconds without any output after which it is ended.
        background: Return at once and let it run as a job; look after it with the `process` tool.
        cwd: Where to run it, absolute or relative to the workspace.
    """
    sandbox = context.sandbox
    with explained(sandbox, cwd or sandbox.cwd, "cwd"):
        try:
            if background:
                return await _start(context, command, idle_timeout, cwd)
            completed = await sandbox.run(
                command, cwd=cwd, timeout=timeout, idle_timeout=idle_timeout, on_output=watcher(context)
            )
        except FileNotFoundError:
            raise await missing(sandbox, cwd or sandbox.cwd, "cwd") from None
        except ValueError as error:
            field = "cwd" if cwd is not None and "\0" in cwd else "command"
            raise ToolFailed(Failure("invalid_args", str(error), field=field)) from None
    return answer(completed, timeout=timeout, idle_timeout=idle_timeout)


def watcher(context: Context) -> Callable[[Chunk], None]:
    """Lets whoever watches see each piece of output as it comes; a character is shown when all of it is there."""
    decoders = {name: getincrementaldecoder("utf-8")("replace") for name in get_args(StreamName)}

    def show(chunk: Chunk) -> None:
        if text := decoders[chunk.stream].decode(chunk.data):
            context.show(text, stream=chunk.stream)

    return show


def answer(completed: Completed, *, timeout: float | None = None, idle_timeout: float | None = None) -> Result:
    """What a command came to, as the model sees it. An exit code is an answer; a limit that passed is a Failure."""
    data, notes = completed.to_data(), completed.notes
    rest = " It may still be running: the sandbox did not confirm its end." if completed.may_still_run else ""
    kept = "What it printed is in data." if completed.stdout_size or completed.stderr_size else "It printed nothing."
    if completed.ended_by == "timeout":
        message = f"The command ran longer than {timeout:g} s and was ended with everything it started. {kept}{rest}"
        advice = "Give it more time, or run it in the background."
        return Failure("timeout", f"{message} {advice}", data=data, warnings=notes)
    if completed.ended_by == "idle":
        message = f"The command printed nothing for {idle_timeout:g} s and was ended with everything it started. {kept}"
        return Failure("timeout", f"{message}{rest}", data=data, warnings=notes)
    if completed.ended_by == "budget":
        message = f"The time of this run is over: the command was ended with everything it started. {kept}{rest}"
        return Failure("budget_exhausted", f"{message} Answer with what you have.", data=data, warnings=notes)
    if completed.ended_by == "user":
        data["killed_by"] = "user"
        return Failure("cancelled", f"The user ended the command. {kept}{rest}", data=data, warnings=notes)
    return Success(data, notes)


async def _start(context: Context, command: str, idle_timeout: int | None, cwd: str | None) -> dict[str, Any]:
    job = await context.sandbox.start(command, cwd=cwd, idle_timeout=idle_timeout, on_output=watcher(context))
    return {
        "job": job.id,
        "pid": job.pid,
        "log": f'process(action="tail", job="{job.id}")',
        "cwd": job.cwd,
        "background": True,
    }
