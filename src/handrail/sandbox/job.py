"""A Job: a command that outlives the call that started it, and stays known after its end."""

import re
from collections.abc import Callable
from time import time
from typing import Any, Final

import anyio

from handrail.aio import OwnLoop, on_own_loop
from handrail.contract.driver import Chunk, SignalName
from handrail.contract.errors import Unavailable
from handrail.contract.limits import DEFAULT_CAPS, Caps
from handrail.misuse import shown
from handrail.sandbox._execution import Execution
from handrail.sandbox._spool import Spool
from handrail.sandbox.checks import as_bytes, seconds, whole
from handrail.sandbox.completed import Answer, Completed

LOG_KEPT: Final = 64 << 10
"""Bytes of the end of a job's output that are kept for `tail` when the rest is dropped."""
TAIL_LINES: Final = 20
"""Default number of lines that `Job.tail` returns."""


class Log:
    """Both streams in the order of their output: up to a limit, and always the last bytes."""

    __slots__ = ("_last", "_size", "_spool")

    def __init__(self, limit: int) -> None:
        self._last = bytearray()
        self._size = 0
        self._spool = Spool(limit)

    def add(self, chunk: Chunk) -> None:
        self._size += len(chunk.data)
        self._spool.add("stdout", chunk.data)
        self._last += chunk.data[-LOG_KEPT:]
        if len(self._last) > 2 * LOG_KEPT:
            del self._last[:-LOG_KEPT]

    def last(self, n: int, room: int) -> tuple[bytes, bool]:
        """The last `n` lines, and whether they were shortened, to whole lines or characters, to fit `room` bytes."""
        data = bytes(self._last[-room:])
        lines = data.splitlines(keepends=True)
        if len(lines) > n or len(data) == self._size or n < 1:
            return b"".join(lines[-n:]) if n > 0 else b"", False
        if len(lines) == n and self._last[-len(data) - 1 : -len(data)] == b"\n":
            return data, False
        return b"".join(lines[1:]) or re.sub(rb"\A[\x80-\xbf]{1,3}", b"", data), True

    def read(self, start: int, end: int | None) -> bytes:
        """The bytes from `start` to `end`; one line marks discarded bytes. Raises as `Spool.read` does."""
        gap, kept = self.gap, self._spool.size()
        line = kept - (self._size - len(gap))  # the length of that line

        def at(offset: int, in_gap: int) -> int:
            if offset <= gap.start:
                return offset
            return offset - len(gap) + line if offset >= gap.stop else gap.start + in_gap

        begin = at(start, 0)
        return self._spool.read(begin, max(0, (kept if end is None else at(end, line)) - begin))

    @property
    def gap(self) -> range:
        return self._spool.gap()

    def close(self) -> None:
        """Drop everything but the last bytes."""
        self._spool.close()


class Job(Answer):
    """A command in the background, made by `Sandbox.start`. A Job ends by itself, by a signal, or with its sandbox.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            job: Job = await sandbox.start("echo ready; cat")
            await job.send("hello")
            await job.send(None)
            print(await job.wait(), job.tail())
        #> 0 ready
        #> hello
        ```
    """

    def __init__(self, execution: Execution, log: Log, own_loop: OwnLoop) -> None:
        self.own_loop = own_loop
        self.id = execution.id
        self.cwd = execution.spec.cwd
        self.started_at = time()
        self.completed: Completed | None = None
        """The outcome of a job that has ended."""
        self.error: Exception | None = None
        """The reason for an unknown outcome: the sandbox died or was closed."""
        self._execution = execution
        self._log = log
        self._done = anyio.Event()
        self._when_ended: list[Callable[[Job], object]] = []

    def __repr__(self) -> str:
        line = self.command if isinstance(self.command, str) else " ".join(self.command)
        code = "ended, nobody knows how" if self.exit_code is None else f"exit code {self.exit_code}"
        state = f"running, pid {self.pid}" if self.running else code
        return f"<Job {self.id}: {shown(line)}, {state}>"

    def to_data(self, caps: Caps = DEFAULT_CAPS) -> dict[str, Any]:
        """The answer of `bash` to a command in the background."""
        log = f'process(action="tail", job="{self.id}")'
        return {"job": self.id, "pid": self.pid, "log": log, "cwd": self.cwd, "background": True}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        text, pid = {"type": "string"}, {"type": ["integer", "null"]}
        properties = {"job": text, "pid": pid, "log": text, "cwd": text, "background": {"type": "boolean"}}
        return {"type": "object", "properties": properties, "required": list(properties)}

    @property
    def command(self) -> str | tuple[str, ...]:
        """The command's line or argv."""
        command = self._execution.spec.command
        return command.line if command.line is not None else command.argv or ()

    @property
    def pid(self) -> int | None:
        return getattr(self._execution.process, "pid", None)

    @property
    def takes_input(self) -> bool:
        """Whether the job's input stays open for `send`."""
        spec = self._execution.spec
        return spec.command.input and spec.stdin is None

    @property
    def running(self) -> bool:
        return not self._done.is_set()

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the job runs, and if the code is unknown."""
        return None if self.completed is None else self.completed.exit_code

    @property
    def spool(self) -> Spool:
        """The job's output so far, read by range."""
        return self._execution.spool

    @property
    def size(self) -> int:
        """Bytes that the job has printed so far."""
        return self._execution.received

    def poll(self) -> int | None:
        """Return the exit code, or None while the job runs. Raises Unavailable if the code can no longer be known."""
        if self.error is not None:
            raise self.error
        return self.exit_code

    @on_own_loop
    async def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the exit code; None if the job still runs after `timeout` seconds. Raises Unavailable as `poll`."""
        with anyio.move_on_after(seconds(timeout, "timeout")):
            await self._done.wait()
        return self.poll()

    def tail(self, n: int = TAIL_LINES) -> str:
        """Return the last `n` lines of both streams, in the order of their output, as far as kept."""
        whole(n, "n", "a number of lines from 0 up")
        return self.last(n)[0].decode("utf-8", "replace")

    def last(self, n: int, room: int = LOG_KEPT) -> tuple[bytes, bool]:
        """Return the last `n` lines as at most `room` bytes, and whether they were shortened."""
        return self._log.last(n, min(room, LOG_KEPT))

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Read a range of the job's output so far, both streams in the order of their output.

        One line marks `discarded` bytes. Raises ValueError if the sandbox has removed the output.
        """
        whole(start, "start")
        whole(end, "end")
        return self._log.read(start, end)

    @property
    def discarded(self) -> range:
        """The range of the output that was discarded, because the output exceeds the limit of kept bytes."""
        return self._log.gap

    def let_go_of_output(self) -> None:
        """Remove the job's output from disk, except the end that `tail` shows."""
        self.spool.close()
        self._log.close()

    @on_own_loop
    async def send(self, data: str | bytes | None) -> None:
        """Send input; None closes the input. Raises BrokenPipeError if the job has ended or closed its input."""
        if not self._execution.spec.command.input:
            raise Unavailable(
                "This job takes no input: the sandbox cannot send input to a running command.", retryable=False
            )
        await self._execution.feed(as_bytes(data, "data"))

    @on_own_loop
    async def signal(self, name: str) -> None:
        """Send TERM or KILL to the job's whole tree. A job that has ended is not an error."""
        plain = name.upper().removeprefix("SIG") if isinstance(name, str) else ""
        if plain not in ("TERM", "KILL"):
            raise ValueError(f"{name!r} is not a signal for a job; send TERM or KILL.")
        kind: SignalName = "TERM" if plain == "TERM" else "KILL"
        if self.running and self._execution.process is not None:
            await self._execution.process.signal(kind)

    def settle(self, completed: Completed | None, error: Exception | None) -> None:
        """Record the outcome, or the error that made it unknown."""
        self.completed, self.error = completed, error
        self._done.set()
        while self._when_ended:
            self._when_ended.pop()(self)

    def when_ended(self, tell: Callable[["Job"], object]) -> None:
        """Call `tell(job)` once, on the job's event loop, when the job has ended; at once if it has."""
        if self.running:
            self._when_ended.append(tell)
        else:
            tell(self)
