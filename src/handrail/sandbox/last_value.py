"""Run a program that is given as text; of a Python program, also return the value of its last expression."""

import json
import posixpath
from dataclasses import fields
from functools import partial
from os import urandom
from typing import TYPE_CHECKING, Final

import anyio

from handrail.aio import finish
from handrail.contract.errors import Unavailable
from handrail.contract.limits import CODE_FILE_WAIT
from handrail.sandbox.code import language as known_language
from handrail.sandbox.completed import CodeResult, Completed

if TYPE_CHECKING:
    from handrail.sandbox._execution import OnOutput
    from handrail.sandbox.sandbox import Sandbox

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


async def run_for_value(
    sandbox: "Sandbox", code: str, language: str, timeout: float | None, *, most: int,
    on_output: "OnOutput | None" = None,
) -> CodeResult:  # fmt: skip
    """Run the program; read at most `most` bytes of its value. Raises as `Sandbox.run_code`."""
    told: dict[str, str] = {}
    if known_language(language) == PYTHON and isinstance(code, str):
        path = posixpath.join(sandbox.cwd, f".handrail-code-{urandom(4).hex()}.json")
        program = RUNNER % (f"{code!a}, {path!a}", ascii(code))
        try:
            completed = await sandbox.run_code(program, language, timeout, on_output=on_output)
            told = await _told(sandbox, path, most)
        finally:
            await finish(partial(_remove_quietly, sandbox, path))
    else:
        completed = await sandbox.run_code(code, language, timeout, on_output=on_output)
    failed = f"exit code {completed.exit_code}" if completed.exit_code else None
    same = {each.name: getattr(completed, each.name) for each in fields(Completed)}
    same["notes"] = (*completed.notes, *([told["note"]] if "note" in told else []))
    return CodeResult(**same, language=language, text=told.get("text"), error=told.get("error", failed))


async def _told(sandbox: "Sandbox", path: str, most: int) -> dict[str, str]:
    """The last value as `text`, or the traceback as `error`, as far as the program left them in its file."""
    try:
        data = await sandbox.read_bytes(path, length=most + 1)
        if len(data) > most:
            return {"note": f"The last value has more than {most:,} bytes and is lost: print a part of it."}
        told = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return {}  # it has no value, or was ended; or the program wrote the file itself
    found = told.items() if isinstance(told, dict) else ()
    return {name: text for name, text in found if name in ("text", "error") and isinstance(text, str)}


async def _remove_quietly(sandbox: "Sandbox", path: str) -> None:
    with anyio.move_on_after(CODE_FILE_WAIT):
        try:
            await sandbox.remove(path)
        except (OSError, Unavailable):
            pass  # there is none, or the sandbox is gone
