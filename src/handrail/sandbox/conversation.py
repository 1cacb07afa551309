"""A CommandConversation: frames to a running command and back, over its input and output."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import anyio

from handrail.aio import OwnLoop, finish, in_background, on_own_loop, running_loop
from handrail.contract.clock import Clock
from handrail.contract.driver import Chunk, Driver, Process
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import FRAME_BYTES, Caps
from handrail.sandbox._capture import Capture
from handrail.sandbox._execution import CommandSpec, Execution
from handrail.sandbox.pipes import Pipes

HEADER: Final = 4
"""Bytes of a frame's length, the highest first."""
UNREAD_BYTES: Final = 2 * FRAME_BYTES
"""Bytes of unreceived frames from which on the command is blocked."""


class FramedCommand(Execution):
    """A command whose output is frames, which are kept until they are received; its stderr is its log.

    A driver of this machine has `start_piped`: frames then go through pipes of the command's own, and not through the
    driver. Any other one passes its input and output on.
    """

    def __init__(self, id: str, spec: CommandSpec, driver: Driver, clock: Clock, caps: Caps) -> None:
        super().__init__(id, spec, driver, clock, caps)
        self.inbox = bytearray()
        self._waiting: list[Any] = []
        self._pipes: Pipes | None = None
        self._launch = getattr(driver, "start_piped", driver.start)
        self.log = Capture(caps.stdout)
        self.on_log: Callable[[Chunk], object] | None = None

    async def _take(self, chunk: Chunk) -> None:
        self.received += len(chunk.data)
        if chunk.stream == "stderr":
            self.log.add(chunk.data)
            if self.on_log is not None:
                self.on_log(chunk)
            return
        self.inbox += chunk.data
        self.change()
        while len(self.inbox) > UNREAD_BYTES and self.end_reason is None:
            await self.until_changed()

    async def _start(self) -> Process:
        process = await super()._start()
        self._pipes = getattr(process, "pipes", None)
        if self._pipes is not None:
            self._pipes.read_into(self.arrived)
        return process

    def arrived(self, data: bytes) -> None:
        """Add data from the command to the inbox."""
        self.received += len(data)
        self.inbox += data
        if self._pipes is not None and len(self.inbox) > UNREAD_BYTES:
            self._pipes.pause()
        self.change()

    def taken(self) -> None:
        """A frame was received: there is room for more."""
        if self._pipes is not None:
            self._pipes.resume()
        self.change()

    async def until_changed(self) -> None:
        future = running_loop().create_future()
        self._waiting.append(future)
        await future

    def change(self) -> None:
        """Wake the tasks that wait for frames or for room."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def push(self, data: bytes) -> int:
        """Send as much as possible without waiting; return the number of bytes. Raises BrokenPipeError."""
        if self.ended.is_set():
            return 0
        if self._pipes is not None:
            return self._pipes.write(data)
        push = getattr(self.process, "push", None)
        return len(data) if push is not None and push(data) else 0

    async def feed(self, data: bytes | None) -> None:
        if self._pipes is None or data is None or self.ended.is_set():
            await super().feed(data)
        else:
            await self._pipes.write_all(data)

    async def _finish(self) -> None:
        if self._pipes is not None:
            self.inbox += self._pipes.rest()
            self._pipes.close()
        await super()._finish()
        self.change()


def framed(data: bytes) -> bytes:
    """Put the length before the data. Raises ValueError for data that is too large."""
    if len(data) > FRAME_BYTES:
        raise ValueError(f"A frame has at most {FRAME_BYTES:,} bytes, and this one has {len(data):,}.")
    return len(data).to_bytes(HEADER, "big") + data


class CommandConversation:
    """A conversation in frames: a length of 4 bytes, the highest first, then at most 4 MiB."""

    def __init__(self, command: FramedCommand, own_loop: OwnLoop) -> None:
        self.own_loop = own_loop
        self._command = command
        self._outbox: list[tuple[bytes, Any]] = []
        """Unsent parts of frames, each with the future of its sender, if the sender waits."""
        # One task sends them all, so that a frame goes out whole even if its sender is cancelled.

    def __repr__(self) -> str:
        state = "running" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"<conversation with {' '.join(self._command.spec.command.argv or ())[:60]!r}: {state}>"

    @property
    def logs(self) -> str:
        """The command's stderr; a Truncated if it is long."""
        return self._command.log.cut().text

    def watch(self, on_log: Callable[[Chunk], object]) -> None:
        """Call `on_log` with each further chunk of the command's stderr."""
        self._command.on_log = on_log

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self._command.ended.is_set()

    @property
    def exit_code(self) -> int | None:
        """The exit code of a command that has ended by itself or by a signal; else None."""
        return self._command.exit_code

    def begin(self, first: bytes) -> None:
        """Send the first frame, without waiting for the command to take all of it. Raises ValueError as `send`."""
        frame = framed(first)
        with suppress(OSError):  # it has ended already; who sends or receives is told
            self._put(frame[self._command.push(frame) :], None)

    def _put(self, rest: bytes, sent: Any) -> None:
        if rest:
            self._outbox.append((rest, sent))
            if len(self._outbox) == 1:
                in_background(self._send_all()).add_done_callback(self._stop_sending)

    async def _send_all(self) -> None:
        while self._outbox:
            rest, sent = self._outbox[0]
            error: Exception | None = None
            try:
                await self._command.feed(rest)
            except (OSError, Unavailable) as raised:
                error = raised
            del self._outbox[0]
            if sent is not None and not sent.done():
                if error is None:
                    sent.set_result(None)
                else:
                    sent.set_exception(error)

    def _stop_sending(self, task: Any) -> None:
        """Cancel the senders of unsent frames when the event loop ends."""
        while task.cancelled() and self._outbox:
            sent = self._outbox.pop()[1]
            if sent is not None:
                with suppress(RuntimeError):  # the loop is closed
                    sent.cancel()

    @on_own_loop
    async def send(self, data: bytes) -> None:
        """Send one frame; one that is begun goes out whole, even if the caller is cancelled.

        Raises BrokenPipeError when the command no longer reads, ValueError for a frame too large.
        """
        frame = framed(data)
        taken = 0 if self._outbox else self._command.push(frame)
        if taken < len(frame):
            sent = running_loop().create_future()
            self._put(frame[taken:], sent)
            await sent

    @on_own_loop
    async def receive(self) -> bytes | None:
        """The next frame; None when the command has ended. Raises HandrailError, and ends it, for a frame too large."""
        command = self._command
        while True:
            size = int.from_bytes(command.inbox[:HEADER], "big") if len(command.inbox) >= HEADER else -1
            if size > FRAME_BYTES:
                await self.kill()
                raise HandrailError(f"The command sent a frame of {size:,} bytes; the limit is {FRAME_BYTES:,}.")
            if 0 <= size <= len(command.inbox) - HEADER:
                frame = bytes(command.inbox[HEADER : HEADER + size])
                del command.inbox[: HEADER + size]
                command.taken()
                return frame
            if command.ended.is_set() or command.settled.is_set():  # a silent driver never reports the end
                return None
            await command.until_changed()

    @on_own_loop
    async def until_ended(self, seconds: float) -> None:
        """Wait at most `seconds` for the command to end by itself."""
        with anyio.move_on_after(seconds):
            await self._command.ended.wait()

    @on_own_loop
    async def kill(self) -> None:
        """Kill the command and its tree. Return when the tree is gone, or if the driver stays silent."""
        if self.ended or self._command.settled.is_set():
            return
        self._command.request_end("close")
        self._command.change()
        await finish(self._command.settled.wait)
        self._command.change()
