"""Run a command line in the sandbox; a timeout stops its whole process tree and keeps its output."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.errors import ToolFailed, Unavailable
from handrail.contract.result import Failure, Result, Success
from handrail.sandbox.completed import Completed
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.live_output import watcher
from handrail.toolkit.tool import tool
from handrail.tools._paths import explain_errors, path_not_found

DEFAULT_TIMEOUT: Final = 120
Seconds = Annotated[float, Field(ge=0.1, le=86_400)]
"""Seconds that a command may take, or that somebody waits."""


def _check(arguments: Mapping[str, Any]) -> None:
    if arguments.get("input") and not arguments.get("background"):
        message = "input is only for background jobs; send background=true too, or put the input into the command."
        raise ToolFailed(Failure("invalid_args", message, field="input", expected="background=true beside it"))


@tool(risk="high", effects=["executes"], needs=["exec"], timeout=None, varies=["job", "pid", "log"], validate=_check)
async def bash(
    command: Annotated[str, Field(min_length=1, json_schema_extra={"aliases": ["cmd"]})],
    context: Context,
    timeout: Seconds = DEFAULT_TIMEOUT,
    idle_timeout: Seconds | None = None,
    background: bool = False,
    input: bool = False,
    cwd: str | None = None,
) -> Any:
    """Run a command line in bash (with pipefail). Each call starts a new shell; only files persist between calls.

    Processes that a command leaves running are killed when it ends; start servers with `background`.

    Args:
        command: The command line; it may have several lines.
        timeout: Seconds after which the command and everything it started are killed; background jobs have no timeout.
        idle_timeout: Seconds without output after which it is killed.
        background: Return at once and run it as a job; manage the job with the `process` tool.
        input: Keep the input of a background job open, for `process` with action=send; otherwise it is empty.
        cwd: The directory to run it in, absolute or relative to the workspace.
    """
    sandbox = context.sandbox
    if input and "stdin" not in sandbox.features:
        raise Unavailable("This sandbox cannot send input to a running command.", retryable=False)
    with explain_errors(sandbox, cwd or sandbox.cwd, "cwd"):
        try:
            if background:
                return await _start(context, command, idle_timeout, cwd, None if input else b"")
            completed = await sandbox.run(
                command, cwd=cwd, timeout=timeout, idle_timeout=idle_timeout, on_output=watcher(context)
            )
        except FileNotFoundError:
            raise await path_not_found(sandbox, cwd or sandbox.cwd, "cwd") from None
        except ValueError as error:
            field = "cwd" if cwd is not None and "\0" in cwd else "command"
            raise ToolFailed(Failure("invalid_args", str(error), field=field)) from None
    return answer(completed, sandbox, timeout=timeout, idle_timeout=idle_timeout)


def answer(
    completed: Completed, sandbox: Sandbox, *, timeout: float | None = None, idle_timeout: float | None = None
) -> Result:
    """The result of a command. Any exit code is a Success; a command that was stopped is a Failure."""
    data, notes = completed.to_data(), completed.notes
    killed = f"killed with {'all it started' if 'tree_kill' in sandbox.features else 'its process group'}"
    rest = "What it printed is kept." if completed.stdout_size or completed.stderr_size else "It had printed nothing."
    if completed.may_still_run:
        rest += " It may still be running: the sandbox did not confirm its end."
    if completed.ended_by == "timeout":
        message = f"The command ran longer than {timeout:g} s and was {killed}. {rest}"
        advice = "Give it a longer timeout, or run it in the background."
        return Failure("timeout", f"{message} {advice}", data=data, warnings=notes)
    if completed.ended_by == "idle":
        message = f"No output came from the command for {idle_timeout:g} s: it was {killed}. {rest}"
        return Failure("timeout", message, data=data, warnings=notes)
    if completed.ended_by == "budget":
        message = f"The time budget of this run is spent: the command was {killed}. {rest}"
        return Failure("budget_exhausted", f"{message} Answer with what you have.", data=data, warnings=notes)
    if completed.ended_by == "user":
        data["killed_by"] = "user"
        return Failure("cancelled", f"The user stopped the command. {rest}", data=data, warnings=notes)
    return Success(data, notes)


async def _start(
    context: Context, command: str, idle_timeout: float | None, cwd: str | None, stdin: bytes | None
) -> dict[str, Any]:
    job = await context.sandbox.start(
        command, cwd=cwd, idle_timeout=idle_timeout, stdin=stdin, on_output=watcher(context)
    )
    return job.to_data()
