"""Run one script: check it, give it to an interpreter within its time, and make a result of its end."""

from collections.abc import Mapping
from math import inf
from typing import Any

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Result, Success
from handrail.script._calls import ScriptCalls
from handrail.script._interpreter import Interpreter
from handrail.script._media import media_of
from handrail.script.plan import read_plan
from handrail.toolkit.context import Context, session_of


async def run_script(context: Context, code: str, timeout: float) -> Result:
    """Run the script for at most `timeout` seconds, and the seconds of its budget; a wrong script is not begun."""
    plan = read_plan(code, session_of(context).toolbox.all())
    if isinstance(plan, Failure):
        return plan
    most = session_of(context).budget.script_seconds
    interpreter, calls = await Interpreter.open(context), ScriptCalls(context)
    try:
        ended = await _ended(context, interpreter, calls, code, min(timeout, inf if most is None else most))
        await interpreter.close()  # before its media are read: nothing changes them any more
        return await _result(context, interpreter, calls, ended)
    except BaseExceptionGroup as group:
        raise _with_logs(_first(group), interpreter) from None
    except ToolFailed as error:
        raise _with_logs(error, interpreter) from None
    finally:
        try:
            await interpreter.close()
        finally:  # a cancellation is raised when the interpreter is closed
            calls.values.release()


async def _ended(
    context: Context, interpreter: Interpreter, calls: ScriptCalls, code: str, seconds: float
) -> Mapping[str, Any]:
    """The end of the script, as `Interpreter.run` tells it. Raises ToolFailed when its time is over."""
    left = context.clock.left()
    with context.clock.grace(), context.clock.limit(max(0.0, min(seconds, left))) as limit:
        ended = await interpreter.run(code, calls)
    if limit.passed and left <= seconds:
        raise calls.failed(
            "The seconds of this run are used up: the script was ended with its calls", "budget_exhausted"
        )
    if limit.passed:
        raise calls.failed(f"The script ran longer than {seconds:g} s and was ended with its calls", "timeout")
    return ended


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a task group of ours."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _with_logs(error: BaseException, interpreter: Interpreter) -> BaseException:
    if not isinstance(error, ToolFailed) or not (logs := interpreter.logs):
        return error
    failure = error.failure
    return ToolFailed(Failure(failure.kind, failure.message, data={**(failure.data or {}), "logs": logs}))


async def _result(context: Context, interpreter: Interpreter, calls: ScriptCalls, ended: Mapping[str, Any]) -> Result:
    error = ended.get("error")
    more = {**({"logs": logs} if (logs := interpreter.logs) else {}), **await media_of(context.sandbox, ended)}
    if isinstance(error, dict):
        line = f" in line {error['line']}" if isinstance(error.get("line"), int) else ""
        what = str(error.get("message", "")).strip()
        message = f"The script failed{line}: {what}\n{calls.done()}"
        return Failure("execution_error", message, data={"calls": calls.ended[-200:], **more})
    return Success({"result": calls.values.returned(ended.get("value")), "calls": len(calls.ended), **more})
