"""A Job: a command that outlives the call that started it, and can be asked about long after it ended."""

import re
from time import time
from typing import Final

import anyio

from handrail.contract.driver import Chunk, SignalName
from handrail.contract.errors import Unavailable
from handrail.sandbox.asked import as_bytes, seconds
from handrail.sandbox.background import Home, at_home
from handrail.sandbox.completed import Completed
from handrail.sandbox.running import Running
from handrail.sandbox.spool import Spool

LOG_KEPT: Final = 64 << 10
"""Bytes of the end of a job's output that `tail` can show, both streams in the order in which they came."""
TAIL_LINES: Final = 20


class Log:
    """The last bytes of both streams, in the order in which they came."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, chunk: Chunk) -> None:
        self._data += chunk.data[-LOG_KEPT:]
        if len(self._data) > 2 * LOG_KEPT:
            del self._data[:-LOG_KEPT]

    def lines(self, n: int) -> str:
        """The last `n` lines."""
        text = re.sub(rb"\A[\x80-\xbf]{1,3}", b"", self._data[-LOG_KEPT:]).decode("utf-8", "replace")
        return "".join(text.splitlines(keepends=True)[-n:]) if n > 0 else ""


class Job:
    """Made by `Sandbox.start`. It lives until it ends, is ended, or its sandbox closes."""

    def __init__(self, running: Running, log: Log, home: Home) -> None:
        self.home = home
        self.id = running.id
        self.cwd = running.order.cwd
        self.started_at = time()
        self.completed: Completed | None = None
        """What it came to, once it ended."""
        self.error: Exception | None = None
        """Why nobody knows what it came to: the sandbox below it died, or was closed."""
        self._running = running
        self._log = log
        self._done = anyio.Event()

    @property
    def command(self) -> str | tuple[str, ...]:
        """The line or the argv."""
        command = self._running.order.command
        return command.line if command.line is not None else command.argv or ()

    @property
    def pid(self) -> int | None:
        return getattr(self._running.process, "pid", None)

    @property
    def running(self) -> bool:
        return not self._done.is_set()

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and when nobody knows it."""
        return None if self.completed is None else self.completed.exit_code

    @property
    def spool(self) -> Spool:
        """What it printed so far, read by range."""
        return self._running.spool

    @property
    def size(self) -> int:
        """How many bytes it printed so far."""
        return self._running.received

    def poll(self) -> int | None:
        """The exit code, or None while it runs. Raises Unavailable when nobody can know it any more."""
        if self.error is not None:
            raise self.error
        return self.exit_code

    @at_home
    async def wait(self, timeout: float | None = None) -> int | None:
        """The exit code, or None if it still runs after `timeout` seconds. Raises Unavailable as `poll` does."""
        with anyio.move_on_after(seconds(timeout, "timeout")):
            await self._done.wait()
        return self.poll()

    def tail(self, n: int = TAIL_LINES) -> str:
        """The last `n` lines it printed, both streams in the order in which they came."""
        return self._log.lines(n)

    @at_home
    async def send(self, data: str | bytes | None) -> None:
        """Give it input; None closes the input. Raises BrokenPipeError when it has ended or reads no more."""
        if not self._running.order.command.input:
            raise Unavailable("This job's input is closed: the sandbox cannot feed a running command.", retryable=False)
        await self._running.feed(as_bytes(data, "data"))

    @at_home
    async def signal(self, name: str) -> None:
        """Send TERM or KILL to its whole tree. No error when it has ended."""
        plain = name.upper().removeprefix("SIG")
        if plain not in ("TERM", "KILL"):
            raise ValueError(f"{name!r} is no signal for a job; send TERM or KILL.")
        kind: SignalName = "TERM" if plain == "TERM" else "KILL"
        if self.running and self._running.process is not None:
            await self._running.process.signal(kind)

    def settle(self, completed: Completed | None, error: Exception | None) -> None:
        """The one who watched it says what it came to."""
        self.completed, self.error = completed, error
        self._done.set()
