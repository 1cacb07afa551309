"""Run a program that is given as text; of a Python program, also return the value of its last expression."""

import json
import posixpath
from functools import partial
from os import urandom
from typing import Annotated, Any, Final

import anyio
from pydantic import Field

from handrail.aio import finish
from handrail.contract.errors import ToolFailed, Unavailable
from handrail.contract.limits import CODE_FILE_WAIT
from handrail.contract.result import Failure, Success
from handrail.sandbox.code import language as known_language
from handrail.sandbox.completed import Completed
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import explain_errors
from handrail.tools.bash import Seconds, answer, watcher

DEFAULT_TIMEOUT: Final = 60
PYTHON: Final = known_language("python")
RUNNER: Final = """
def _run(code, answer, scope):
    import ast, json, linecache, sys, traceback
    name, said = "<code>", {}
    scope.pop("_run")
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), scope)
        value = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), scope)
        if value is not None:
            said["text"] = repr(value)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        said["error"] = "".join(traceback.format_exception(type(error), error, trace))
    if said:
        with open(answer, "w") as file:
            json.dump(said, file)
    if "error" in said:
        sys.exit(1)


if __name__ == "__main__":
    _run(%s, globals())
else:  # a child of multiprocessing
    exec(compile(%s, "<code>", "exec"), globals())
"""
"""Runs Python code, and leaves the value of its last expression, or its traceback, in a file."""


@tool(risk="high", effects=["executes"], needs=["exec", "files"], timeout=None)
async def run_code(
    code: Annotated[str, Field(min_length=1)],
    context: Context,
    language: str = "python",
    timeout: Seconds = DEFAULT_TIMEOUT,
) -> Any:
    """Run a program and return its output; in Python, `text` is the value of its last expression.

    Only files persist between calls.

    Args:
        code: The whole program.
        language: python, bash, or another language that the sandbox has, such as node or ruby.
        timeout: Seconds after which the program and everything it started are killed.
    """
    sandbox = context.sandbox
    try:
        tongue = known_language(language)
    except ValueError as error:
        raise ToolFailed(Failure("invalid_args", str(error), field="language")) from None
    said: dict[str, str] = {}
    with explain_errors(sandbox, sandbox.cwd):
        if tongue == PYTHON:
            completed, said = await _run_python(context, code, language, timeout)
        else:
            completed = await sandbox.run_code(code, language, timeout, on_output=watcher(context))
    result = answer(completed, sandbox, timeout=timeout)
    if isinstance(result, Failure):
        return result
    failed = f"exit code {completed.exit_code}" if completed.exit_code else None
    return Success({"language": language, "error": failed, **said, **result.value}, result.warnings)


async def _run_python(context: Context, code: str, language: str, timeout: float) -> tuple[Completed, dict[str, str]]:
    """The outcome, and what is known beside it: the last value as `text`, or the traceback as `error`."""
    sandbox = context.sandbox
    path = posixpath.join(sandbox.cwd, f".handrail-code-{urandom(4).hex()}.json")
    program = RUNNER % (f"{code!a}, {path!a}", ascii(code))
    try:
        completed = await sandbox.run_code(program, language, timeout, on_output=watcher(context))
        return completed, await _said(sandbox, path, context.caps.spool)
    finally:
        await finish(partial(_remove_quietly, sandbox, path))


async def _said(sandbox: Sandbox, path: str, most: int) -> dict[str, str]:
    try:
        said = json.loads(await sandbox.read_bytes(path, length=most))
    except (OSError, ValueError, RecursionError):
        return {}  # it has no value, or was ended; or the program wrote the file itself
    fields = said.items() if isinstance(said, dict) else ()
    return {name: text for name, text in fields if name in ("text", "error") and isinstance(text, str)}


async def _remove_quietly(sandbox: Sandbox, path: str) -> None:
    with anyio.move_on_after(CODE_FILE_WAIT):
        try:
            await sandbox.remove(path)
        except (OSError, Unavailable):
            pass  # there is none, or the sandbox is gone
