"""The child process of isolated.py: import one function, call it once, and send back its value."""

import inspect
import os
import pickle
import pkgutil
import runpy
import sys
import warnings
from contextlib import suppress
from functools import reduce
from typing import Any

import anyio

from handrail.contract.errors import ToolFailed, Unavailable, describe_error
from handrail.contract.result import Failure
from handrail.log import traceback_of
from handrail.toolkit.isolated import LENGTH_BYTES


def main() -> None:
    """Call the function. The answer goes to standard output; prints of the function go to standard error."""
    warnings.filterwarnings("ignore", "tool .* has no description")  # its own process was told when it made the tool
    answer_stream = os.dup(1)
    os.dup2(2, 1)
    answer = _answer()
    with open(answer_stream, "wb") as stream:
        stream.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)


def _answer() -> bytes:
    try:
        value = _call()
        return pickle.dumps(("value", value))
    except BaseException as error:  # noqa: BLE001 - the caller gets every error
        return _raised(error)


def _raised(error: BaseException) -> bytes:
    """The exception for the caller, with the traceback of this process; invoke makes a Failure of it."""
    if isinstance(error, ToolFailed):
        told = () if error.__cause__ is None else (traceback_of(error),)
        return pickle.dumps(("failure", error.failure, *told))
    if isinstance(error, OSError | Unavailable):
        with suppress(Exception):  # an OSError may have anything in it
            return pickle.dumps(("error", error, traceback_of(error)))
    failure = Failure("execution_error", describe_error(error)[:2_000])
    return pickle.dumps(("failure", failure, traceback_of(error), type(error).__name__))


def _call() -> Any:
    path, umask, main_file, module, qualname = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    if umask >= 0:
        os.umask(umask)
    if main_file is None:
        found = pkgutil.resolve_name(f"{module}:{qualname}")
    else:
        scope = runpy.run_path(main_file, run_name="__handrail_main__")
        sys.modules["__main__"].__dict__.update(scope)
        first, *rest = qualname.split(".")
        found = reduce(getattr, rest, scope[first])
    function = getattr(found, "function", found)
    arguments = pickle.load(sys.stdin.buffer)
    value = function(**arguments)
    return anyio.run(_await, value) if inspect.isawaitable(value) else value


async def _await(value: Any) -> Any:
    return await value
