"""Run a function in a process of its own, which is killed, with its process group, when nobody waits any more."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import Process

from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.result import Failure
from handrail.lazy import Lazy

pickle, subprocess = Lazy("pickle"), Lazy("subprocess")
HEADER: Final = 8
"""Bytes of the length before the answer."""
KEPT: Final = 4_000
"""Bytes of what the process printed to its error stream, for the message when it dies."""


def refuse_unimportable(name: str, function: Callable[..., Any], context_parameter: str | None) -> None:
    """Raise HandrailError for what another process cannot import: lambdas, local functions, bound methods."""
    qualname, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if context_parameter is not None:
        raise HandrailError(f"tool {name}: isolate=True cannot pass the Context parameter {context_parameter!r} along")
    if not qualname or not module or "<" in qualname or getattr(function, "__self__", None) is not None:
        raise HandrailError(
            f"tool {name}: isolate=True needs a function that another process can import by name; "
            f"{qualname or function!r} is a lambda, a local function or a method: move it to the top of a module"
        )
    if module == "__main__" and not hasattr(sys.modules.get("__main__"), "__file__"):
        raise HandrailError(f"tool {name}: isolate=True needs a function in a file, and {qualname} is in none")


async def run_isolated(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The function's value; what it raised comes as ToolFailed. Cancelling kills the process."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) if function.__module__ == "__main__" else None
    order = pickle.dumps((list(sys.path), main, function.__module__, function.__qualname__))
    process = await anyio.open_process(
        [sys.executable, "-m", "handrail.toolkit.isolated_child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    errors = bytearray()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_feed, process, order + pickle.dumps(dict(arguments)))
            group.start_soon(_drain, process, errors)
            answer = await _answer(process)
            group.cancel_scope.cancel()
        if answer is None:
            raise ToolFailed(Failure("execution_error", await _died(process, bytes(errors))))
    finally:
        _kill(process)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return _unpack(answer)


async def _feed(process: Process, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.send(data)  # type: ignore[union-attr]
        await process.stdin.aclose()  # type: ignore[union-attr]


async def _drain(process: Process, kept: bytearray) -> None:
    async for chunk in process.stderr:  # type: ignore[union-attr]
        kept += chunk
        del kept[:-KEPT]


async def _answer(process: Process) -> bytes | None:
    """The whole answer, or None when the process ended without one. What the process left behind holds nobody up."""
    data = bytearray()
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while len(data) < HEADER or len(data) < HEADER + int.from_bytes(data[:HEADER], "big"):
            data += await process.stdout.receive()  # type: ignore[union-attr]
        return bytes(data[HEADER:])
    return None


async def _died(process: Process, errors: bytes) -> str:
    with anyio.move_on_after(1):
        await process.wait()
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
    return f"The tool's process ended with exit code {process.returncode} before it answered: {last[0][:500]}"


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _unpack(answer: bytes) -> Any:
    try:
        outcome, value = pickle.loads(answer)
    except Exception as error:  # noqa: BLE001 - unpickling runs the code of the value's own type
        raise ToolFailed(Failure("execution_error", f"The answer cannot leave its process: {error}")) from None
    if outcome == "failure":
        raise ToolFailed(value)
    if outcome == "error":
        raise value
    return value
