"""Run a function in its own process, which is killed with everything it started when the call ends."""

import os
import pickle
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from handrail.contract.driver import Command, Driver, Process
from handrail.contract.errors import HandrailError, ToolFailed, Unavailable
from handrail.contract.result import Failure
from handrail.log import RemoteTraceback

OpenGuard = Callable[[], Awaitable[Driver]]
"""Function that opens a driver whose commands run on this machine in this process's environment."""
LENGTH_BYTES: Final = 8
"""Size of the length field before the answer, in bytes."""
STDERR_KEPT: Final = 4_000
"""Size of the process's stderr that is kept for the message when it dies, in bytes."""
_SOURCE_DIRECTORY: Final = str(Path(__file__).parents[2])
_CHILD_CODE: Final = (
    "import pickle, sys; sys.path.append(pickle.load(sys.stdin.buffer)); "
    "from handrail.toolkit._isolated_child import main; main()"
)
"""The process's code. With -P, files in its working directory do not shadow modules."""


def refuse_unimportable(name: str, function: Callable[..., Any], context_parameter: str | None) -> None:
    """Raise HandrailError for a function that another process cannot import: a lambda, a local function, a method."""
    qualname, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if context_parameter is not None:
        raise HandrailError(
            f"tool {name}: isolate=True cannot pass a Context, remove the parameter {context_parameter!r}"
        )
    if not qualname or not module or "<" in qualname or getattr(function, "__self__", None) is not None:
        raise HandrailError(
            f"tool {name}: isolate=True needs a function that another process can import by name; "
            f"{qualname or function!r} is a lambda, a local function or a method: move it to the top of a module"
        )
    if module == "__main__" and not hasattr(sys.modules.get("__main__"), "__file__"):
        raise HandrailError(f"tool {name}: isolate=True needs a function in a file, and {qualname} is not in a file")


async def run_isolated(function: Callable[..., Any], arguments: Mapping[str, Any], open_guard: OpenGuard) -> Any:
    """Return the function's value; raise ToolFailed for what it raised. Cancelling kills the process.

    What the process started dies with it as far as the opened driver kills trees.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None) if function.__module__ == "__main__" else None
    target = (list(sys.path), _umask(), main, function.__module__, function.__qualname__)
    answer = _Answer(b"".join(map(pickle.dumps, (_SOURCE_DIRECTORY, target, dict(arguments)))))
    argv = (sys.executable, "-P", "-c", _CHILD_CODE)
    await _under_guard(await open_guard(), argv, answer)
    return answer.value()


def _umask() -> int:
    """This process's umask, read from /proc because os.umask would change it; -1 if unknown."""
    with suppress(OSError):
        if found := re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(), re.MULTILINE):
            return int(found[1], 8)
    return -1


class _Answer:
    """The order for the process, and the answer it sends back."""

    def __init__(self, order: bytes) -> None:
        self.order = order
        self.exit_code: int | None = None
        self._stdout = bytearray()
        self._stderr = bytearray()

    def add(self, stream: str, data: bytes) -> None:
        if stream == "stdout":
            self._stdout += data
        else:
            self._stderr += data
            del self._stderr[:-STDERR_KEPT]

    @property
    def whole(self) -> bool:
        """Whether the answer is complete. Processes that the function left behind are not waited for."""
        received, length = len(self._stdout), int.from_bytes(self._stdout[:LENGTH_BYTES], "big")
        return received >= LENGTH_BYTES and received >= LENGTH_BYTES + length

    def value(self) -> Any:
        """The function's value. Raises what the function raised, or ToolFailed if the process did not answer."""
        if not self.whole:
            printed = self._stderr.decode("utf-8", "replace").strip()
            last = printed.splitlines()[-1] if printed else "it printed no error"
            ended = f"The tool's process ended with exit code {self.exit_code} before it answered"
            cause = RemoteTraceback(f"{ended}. It printed:\n{printed}") if printed else None
            raise ToolFailed(Failure("execution_error", f"{ended}: {last[:500]}")) from cause
        try:
            outcome, value, *told = pickle.loads(self._stdout[LENGTH_BYTES:])
        except Exception as error:  # noqa: BLE001 - unpickling runs the code of the value's own type
            raise ToolFailed(
                Failure("execution_error", f"The function's value cannot be sent between processes: {error}")
            ) from None
        if outcome == "value":
            return value
        raised = ToolFailed(value) if outcome == "failure" else value
        raise raised from (RemoteTraceback(*told) if told else None)


async def _under_guard(driver: Driver, argv: tuple[str, ...], answer: _Answer) -> None:
    lost: list[Unavailable] = []
    try:
        process = await driver.start(Command(argv=argv, cwd=os.getcwd(), input=True))
        async with anyio.create_task_group() as group:
            group.start_soon(_feed, process, answer.order)
            try:
                async for chunk in process.output():
                    answer.add(chunk.stream, chunk.data)
                    if answer.whole:
                        break
                else:
                    answer.exit_code = await process.wait()
            except Unavailable as error:
                lost.append(error)
            group.cancel_scope.cancel()
    finally:
        await driver.close()
    if lost:
        raise lost[0]


async def _feed(process: Process, data: bytes) -> None:
    with suppress(BrokenPipeError, Unavailable):  # the reader of its output notices that it has ended
        await process.send(data)
        await process.send(None)
