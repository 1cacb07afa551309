"""A running command. It always ends with a definite outcome, whatever its driver does.

Every call of the driver has its own task, so that a silent driver blocks nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from time import monotonic
from typing import Final, Literal

import anyio
import anyio.lowlevel

from handrail.aio import Task, in_background, loop_here
from handrail.contract.clock import Clock
from handrail.contract.driver import Chunk, Command, Driver, Process, SignalName, StreamName
from handrail.contract.errors import BrokenDriver, Unavailable
from handrail.contract.limits import KILL_WAIT, SLOW_DRIVER, Caps
from handrail.sandbox._capture import Capture, Cut
from handrail.sandbox._notes import notes_on, notes_on_failure
from handrail.sandbox._spool import Spool
from handrail.sandbox.completed import EXIT_TIMED_OUT, Completed, EndedBy

EndReason = Literal["timeout", "idle", "user", "model", "output", "budget", "close", "cancel"]
OnOutput = Callable[[Chunk], object]
"""A function called with each chunk. A returned awaitable is awaited. After an exception the function is dropped."""
EXIT_KILLED: Final = 137
"""Exit code of a command whose end the driver did not report: 128 + KILL."""
CHECKPOINT_BYTES: Final = 1 << 20
"""Bytes of output after which other tasks get a turn."""
INPUT_PIECE: Final = 256 << 10
"""Bytes of input sent to the driver at a time."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A checked request: the command, its input, and its limit of output."""

    command: Command
    cwd: str
    stdin: bytes | None = None
    max_output: int | None = None
    on_output: OnOutput | None = None
    offline: bool = False
    """Whether the sandbox has no network."""
    read_only: bool = False
    """Whether the workspace cannot be written."""


class Execution:
    """A command from start to outcome.

    `wake` is set when the command ended or its end was requested, `ended` when the driver has reported the end,
    `settled` when supervision is over.
    """

    task: Task
    """The task that drives the command; set by `begin`."""

    def __init__(self, id: str, spec: CommandSpec, driver: Driver, clock: Clock, caps: Caps) -> None:
        self.id = id
        self.spec = replace(spec, on_output=None)
        self.clock = clock
        self.process: Process | None = None
        self.end_reason: EndReason | None = None
        self.exit_code: int | None = None
        self.error: Exception | None = None
        self.started = anyio.Event()
        self.wake = anyio.Event()
        self.ended = anyio.Event()
        self.settled = anyio.Event()
        self.received = 0
        self.heard = clock.now()
        self.on_late: Callable[[Execution], Awaitable[None]] | None = None
        self.spool = Spool(caps.spool)
        self._launch = driver.start
        self._streams = {"stdout": Capture(caps.stdout), "stderr": Capture(caps.stderr)}
        self._on_output = spec.on_output
        self._notes: list[str] = []
        self._began = monotonic()
        self._duration: float | None = None

    def begin(self) -> None:
        """Start the command, in a task of its own."""
        self.task = in_background(self._work())

    def request_end(self, reason: EndReason) -> None:
        """Request the end of the command. The first reason counts."""
        if self.end_reason is None and not self.ended.is_set():
            self.end_reason = reason
            self.wake.set()

    async def end(self, grace: float) -> None:
        """Stop the process tree: TERM, `grace` seconds, KILL. Returns when it has ended, or if the driver is silent."""
        if grace > 0:
            self._signal("TERM")
            with anyio.move_on_after(grace):
                await self.ended.wait()
        self._signal("KILL")
        with anyio.move_on_after(KILL_WAIT):
            await self.ended.wait()

    async def feed(self, data: bytes | None) -> None:
        """Send input; None closes the input. Raises BrokenPipeError if the command has ended or closed its input."""
        if self.process is None or self.ended.is_set():
            raise BrokenPipeError("The command has ended and no longer reads input.")
        for begin in range(0, len(data or b""), INPUT_PIECE):
            await self.process.send((data or b"")[begin : begin + INPUT_PIECE])
        if data is None:
            await self.process.send(None)

    def abandon(self, tell: "Callable[[Execution], Awaitable[None]]") -> bool:
        """Stop waiting for the driver; return whether the end is still unknown. `tell` then gets the late outcome."""
        if self.ended.is_set():
            return False
        self.on_late = tell
        return True

    def outcome(self) -> Completed:
        """Return the outcome, as far as known. Raises the driver's exception, unless the end was requested."""
        if self.end_reason == "close":
            raise Unavailable("The sandbox was closed while the command ran.", retryable=False)
        if self.error is not None and self.end_reason is None:
            raise self.error
        ended_by: EndedBy = "exit" if self.end_reason is None or self.end_reason == "cancel" else self.end_reason
        exit_code = EXIT_KILLED if self.exit_code is None else self.exit_code
        if ended_by in ("timeout", "idle", "budget"):
            exit_code = EXIT_TIMED_OUT
        out, err = self._cut("stdout"), self._cut("stderr")
        out_size, err_size = self._streams["stdout"].size, self._streams["stderr"].size
        return Completed(
            exit_code, out.text, err.text, out.data, err.data, out_size, err_size, self.spool, ended_by,
            round(1000 * (self._duration or monotonic() - self._began)), self.spec.cwd,
            self._all_notes(ended_by, exit_code, (err.text, out.text)), out.truncated or err.truncated,
            self.exit_code is None, tuple(str(each) for each in getattr(self.process, "advice", ())),
            getattr(self.process, "limit", None),
        )  # fmt: skip

    def _cut(self, stream: StreamName) -> Cut:
        return self._streams[stream].cut(_Printed(self.spool, stream))

    async def _work(self) -> None:
        try:
            self.exit_code = await self._drive()
        except (OSError, ValueError, Unavailable, BrokenDriver) as error:
            self.error = error
        finally:
            if loop_here() is not None:  # otherwise the loop ended before the command did, and nobody waits
                await self._finish()

    async def _drive(self) -> int:
        self.process = process = await self._start()
        self._note_if_slow(self._began, "to start the command")
        self.started.set()
        if self.end_reason is not None:  # its end was requested before it started
            self._signal("KILL")
        feeder = None if self.spec.stdin is None else in_background(self._feed_all(self.spec.stdin))
        next_checkpoint = CHECKPOINT_BYTES
        try:
            async for chunk in process.output():
                await self._take(_checked(chunk))
                if self.received >= next_checkpoint:  # the limits are checked even if the driver never pauses
                    next_checkpoint = self.received + CHECKPOINT_BYTES
                    await anyio.lowlevel.checkpoint()
            ended = monotonic()
            code = _exit_code(await process.wait())
            self._note_if_slow(ended, "to say how it ended")
            return code
        except OSError as error:
            raise Unavailable(f"The sandbox lost the command: {error}") from error
        except (Unavailable, BrokenDriver):
            raise
        except Exception as error:
            raise BrokenDriver(f"The driver broke its contract: {type(error).__name__}: {error}") from error
        finally:
            if feeder is not None:
                feeder.cancel()

    async def _start(self) -> Process:
        try:
            process = await self._launch(self.spec.command)
        except (OSError, ValueError, Unavailable):
            raise
        except Exception as error:
            raise BrokenDriver(f"The driver's start raised {type(error).__name__}: {error}") from error
        if not all(hasattr(process, name) for name in ("output", "send", "wait", "signal")):
            raise BrokenDriver(f"The driver's start returned {process!r}, which is not a Process.")
        return process

    def _note_if_slow(self, since: float, what: str) -> None:
        if (took := monotonic() - since) > SLOW_DRIVER:
            self._notes.append(f"The sandbox took {took:.1f} s {what}; that is not the command's own time.")

    async def _take(self, chunk: Chunk) -> None:
        stream, data = chunk.stream, chunk.data
        self.received += len(data)
        self.heard = self.clock.now()
        self._streams[stream].add(data)
        self.spool.add(stream, data)
        if self.spec.max_output is not None and self.received > self.spec.max_output:
            self.request_end("output")
        if self._on_output is not None:
            try:
                shown = self._on_output(chunk)
                if isawaitable(shown):
                    await shown
            except Exception as error:  # noqa: BLE001 - an error in on_output must not end the command
                self._on_output = None
                self._notes.append(f"Live output stopped: its reader raised {type(error).__name__}: {error}")

    async def _feed_all(self, data: bytes) -> None:
        try:
            await self.feed(data)
            await self.feed(None)
        except (OSError, Unavailable):
            pass  # the command does not read its input; its output and exit code show the rest

    def _signal(self, name: SignalName) -> None:
        if self.process is not None:
            in_background(_send_signal(self.process, name))

    async def _finish(self) -> None:
        if self.exit_code is None and self.error is None:
            self.error = Unavailable("The sandbox lost the command before it ended.")
        if self.error is not None:
            self._signal("KILL")
        self._duration = monotonic() - self._began
        self._on_output = None  # a job is kept long after its end; its watcher need not be
        self.started.set()
        self.ended.set()
        self.wake.set()
        if self.on_late is not None:
            await self.on_late(self)

    def _all_notes(self, ended_by: EndedBy, exit_code: int, texts: Sequence[str]) -> tuple[str, ...]:
        notes, told = list(self._notes), [str(note) for note in getattr(self.process, "notes", ())]
        if ended_by == "exit":  # where the driver tells of something, such as killed processes, silence proves nothing
            notes += notes_on(self.spec.command, exit_code, silent=not self.received and not told)
        notes += told
        if exit_code:
            spec = self.spec
            notes += notes_on_failure(spec.command, exit_code, texts, offline=spec.offline, read_only=spec.read_only)
        gone = self.spool.discarded()
        if gone:
            notes.append(
                f"{gone:,} bytes from the middle of the output were discarded, because it is larger than what is kept."
            )
        if self.exit_code is None:
            notes.append("The sandbox did not confirm that the command ended: it may still be running.")
            if self.error is not None:
                notes.append(f"The sandbox said: {self.error}")
        return tuple(notes)


class _Printed:
    """A stream up to the moment of the outcome; a command that may still run prints on."""

    __slots__ = ("_end", "_spool", "_stream")

    def __init__(self, spool: Spool, stream: StreamName) -> None:
        self._spool, self._stream, self._end = spool, stream, spool.size(stream)

    @property
    def incomplete(self) -> bool:
        return self._spool.discarded(self._stream) > 0

    def __call__(self, start: int, length: int, /) -> bytes:
        return self._spool.read(start, max(0, min(length, self._end - start)), stream=self._stream)


def _checked(chunk: Chunk) -> Chunk:
    if not isinstance(chunk, Chunk) or not isinstance(chunk.data, bytes):
        raise BrokenDriver(f"The driver gave {type(chunk).__name__} as output, not a Chunk of bytes.")
    if chunk.stream not in ("stdout", "stderr"):
        raise BrokenDriver(f"The driver named a stream {chunk.stream!r}; the streams are stdout and stderr.")
    return chunk


def _exit_code(code: int) -> int:
    if type(code) is not int:
        raise BrokenDriver(f"The driver returned {code!r} as an exit code, not an int.")
    return code


async def _send_signal(process: Process, name: SignalName) -> None:
    try:
        await process.signal(name)
    except Exception:  # noqa: BLE001 - `end` notices if the command goes on
        pass
