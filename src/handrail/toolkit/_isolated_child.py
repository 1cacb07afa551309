"""The child process of isolated.py: import one function, call it once, and send back its value."""

import inspect
import os
import pickle
import pkgutil
import runpy
import sys
from functools import reduce
from typing import Any

import anyio

from handrail.contract.errors import ToolFailed, Unavailable
from handrail.contract.result import Failure
from handrail.toolkit.isolated import LENGTH_BYTES


def main() -> None:
    """The answer goes to standard output; what the function prints goes to standard error."""
    answer_stream = os.dup(1)
    os.dup2(2, 1)
    answer = _answer()
    with open(answer_stream, "wb") as stream:
        stream.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)


def _answer() -> bytes:
    try:
        value = _call()
        return pickle.dumps(("value", value))
    except ToolFailed as error:
        return pickle.dumps(("failure", error.failure))
    except (OSError, Unavailable) as error:  # invoke turns these into a Failure, as for any other body
        return pickle.dumps(("error", error))
    except BaseException as error:  # noqa: BLE001 - the caller gets every error
        return pickle.dumps(("failure", Failure("execution_error", f"{type(error).__name__}: {error}"[:2_000])))


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
