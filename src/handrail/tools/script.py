"""Run a script of the model's that calls tools itself; every call in it goes through every gate."""

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from math import inf
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field

from handrail.contract.errors import HandrailError, ToolFailed, Unavailable
from handrail.contract.result import Failure, Result, Success
from handrail.misuse import nearest
from handrail.toolkit.context import Context, session_of
from handrail.toolkit.tool import ALL, Behaviour, Tool, tool
from handrail.tools._script_cpython import CPython
from handrail.tools._script_engine import CannotRun, Engine, ScriptCalls
from handrail.tools._script_media import Media
from handrail.tools._script_monty import Monty
from handrail.tools._script_plan import MAX_CODE_CHARS, named_tools, not_run, read_plan
from handrail.tools._script_stubs import CPYTHON, MONTY, describe

EngineName = Literal["cpython", "monty", "auto"]


async def run_script(context: Context, code: str, timeout: float, engine: EngineName) -> Any:
    """Run it by this engine; what it names is checked first, while an interpreter that waits reads it."""
    ready = CPython.waiting(context) if engine == "cpython" and len(code) <= MAX_CODE_CHARS else None
    if ready is not None:
        ready.read(code)
    plan = read_plan(code, session_of(context).toolbox.all())
    if isinstance(plan, Failure):
        if ready is not None:
            await ready.give_back()
        return plan
    most = session_of(context).budget.script_seconds
    seconds = min(timeout, inf if most is None else most)
    began = context.clock.now()
    if engine != "cpython":
        try:
            return await _by_monty(context, code, seconds, must=engine == "monty")
        except CannotRun as error:
            if engine == "monty":
                return not_run(str(error))
        seconds = max(0.0, seconds - (context.clock.now() - began))
    return await _run(context, code, seconds, ready or await CPython.open(context), Media(context.sandbox))


async def _by_monty(context: Context, code: str, seconds: float, *, must: bool) -> Result:
    """Run it by Monty. Raises CannotRun before its first call, and Unavailable where Monty `must` run it."""
    seen = await Media.before(context.sandbox)
    try:
        engine = await Monty.open(context, code)
    except Unavailable as error:  # no jail
        if must:
            raise
        raise CannotRun(str(error)) from None
    return await _run(context, code, seconds, engine, seen, must=must)


async def _run(
    context: Context, code: str, seconds: float, engine: Engine, media: Media, *, must: bool = True
) -> Result:
    """Run it. Raises CannotRun if it failed before its first call, unless this engine `must` run it."""
    calls = ScriptCalls(context)
    try:
        left = context.clock.left()
        with context.clock.grace(), context.clock.limit(max(0.0, min(seconds, left))) as limit:
            ended = await engine.run(code, calls)
        if limit.passed and left <= seconds:
            why = "The seconds of this run are used up: the script was ended with its calls"
            raise calls.failed(why, "budget_exhausted")
        if limit.passed:
            raise calls.failed(f"The script ran longer than {seconds:g} s and was ended with its calls", "timeout")
        if not must and "error" in ended and not calls.made:
            raise CannotRun("it failed before its first call")
        await engine.close()
        return await _answer(calls, engine, media, ended)
    except BaseExceptionGroup as group:
        raise _with_logs(_first(group), engine) from None
    except ToolFailed as error:
        raise _with_logs(error, engine) from None
    finally:
        try:
            await engine.close()
        finally:  # a cancellation is raised when the engine is closed
            calls.values.release()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error of a task group of ours."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _with_logs(error: BaseException, engine: Engine) -> BaseException:
    if not isinstance(error, ToolFailed) or not (logs := engine.logs):
        return error
    failure = error.failure
    return ToolFailed(Failure(failure.kind, failure.message, data={**(failure.data or {}), "logs": logs}))


async def _answer(calls: ScriptCalls, engine: Engine, media: Media, ended: Mapping[str, Any]) -> Result:
    error = ended.get("error")
    more = {**({"logs": logs} if (logs := engine.logs) else {}), **await media.made(ended)}
    if isinstance(error, dict):
        line = f" in line {error['line']}" if isinstance(error.get("line"), int) else ""
        what = str(error.get("message", "")).strip()
        message = f"The script failed{line}: {what}\n{calls.done()}"
        return Failure("execution_error", message, data={"calls": calls.ended[-200:], **more})
    return Success({"result": calls.values.returned(ended.get("value")), "calls": len(calls.ended), **more})


def script_tool(engine: EngineName = "cpython") -> Tool:
    """The tool `script`. `monty` and `auto` need the extra `monty`; `auto` tries Monty first."""
    if engine not in get_args(EngineName):
        raise HandrailError(f"there is no engine {engine!r}; {nearest(str(engine), get_args(EngineName))}")
    if engine != "cpython" and find_spec("pydantic_monty") is None:
        raise HandrailError(f"the engine {engine} needs pydantic-monty: pip install 'handrail[monty]'")

    @tool(
        risk="high", effects=["executes"], needs=["exec", "files", "stdin"], timeout=None, lane="none",
        callable_from=ALL - {"script"}, behaviour=Behaviour(
            covers=named_tools, describe=partial(describe, introduction=MONTY if engine == "monty" else CPYTHON)
        ),
    )  # fmt: skip
    async def script(code: str, context: Context, timeout: Annotated[float, Field(gt=0)] = 300.0) -> Any:
        """Run a Python script that calls tools itself.

        Args:
            code: The script.
            timeout: Seconds after which the script and its calls are ended; waiting for approval does not count.
        """
        return await run_script(context, code, timeout, engine)

    return script


script: Final = script_tool()
