"""Talk to a guard over one stream: many requests at once, safe to cancel anywhere; raises Unavailable when it is gone.

There is no background task. One of the waiting tasks leads: it reads for all of them, and passes the lead on.
"""

import mmap
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import anyio.lowlevel

from handrail.contract.errors import Unavailable
from handrail.drivers.guard import frames

_INBOX: Final = 1 << 20
"""Size of the input buffer in bytes; larger than any frame of a guard."""
_CREDIT_STEP: Final = 128 << 10
"""Least number of bytes of new credit in one frame."""
_FRAMES_AT_ONCE: Final = 1000
"""Frames of one read after which other tasks get a turn."""
_FRAMES_A_TURN: Final = 8
"""Frames of several reads after which other tasks get a turn."""
# A turn of the event loop costs as much as reading and handling one frame (measured), so not every frame takes one.
_MESSAGE_MAX: Final = 500
"""Characters of a guard's message that are passed on."""


class Exchange:
    """One request and its state. Each frame is checked, because a command may have taken over its guard."""

    __slots__ = ("allowed", "chunks", "command", "deaf", "exited", "failed", "id", "owed", "pid", "untaken", "waiting")

    def __init__(self, id: int, most: int | None = None) -> None:
        self.id = id
        self.command = most is None
        """Whether the request is a command; a file operation has a whole answer of at most `most` bytes."""
        self.allowed = frames.FIRST_CREDIT + frames.OVERDRAFT if most is None else most
        """Bytes of output that the guard may still send."""
        self.pid: int | None = None
        self.failed: tuple[int, int] | None = None
        """The errno of a failed start, and the stage at which the start failed."""
        self.exited: tuple[int, int] | None = None
        """The exit code and flags of a command that has ended."""
        self.chunks: deque[tuple[int, bytes]] = deque()
        self.untaken = 0
        """Bytes of input that were sent, and that the command's pipe has not taken yet."""
        self.deaf = False
        """Whether no process reads the input any more."""
        self.owed = 0
        """Bytes of output that were consumed without new credit for the guard yet."""
        self.waiting: list[anyio.Event] = []

    @property
    def over(self) -> bool:
        return self.exited is not None or self.failed is not None

    def receive(self, kind: int, body: memoryview) -> None:
        """Apply one frame. Raises BadFrame for a frame that no guard sends."""
        if kind == frames.OUTPUT:
            self._receive_output(body)
        elif kind == frames.TAKEN:
            self.untaken -= frames.whole(body, 1, self.untaken)
        elif kind == frames.DEAF:
            self.deaf = True
        elif kind == frames.EXITED:
            self.exited = frames.pair(body, frames.CODE_MAX, frames.FLAGS_MAX)
        elif kind == frames.FAILED:
            self._need(self.pid is None, "a start that failed after it succeeded")
            self.failed = frames.pair(body, frames.ERRNO_MAX, frames.AT_EXEC)
        elif kind == frames.STARTED:
            self._need(self.command and self.pid is None, "a second start")
            self.pid = frames.whole(body, 1, frames.PID_MAX)
        else:
            raise frames.BadFrame(f"a frame of the unknown type {kind}")

    def _receive_output(self, body: memoryview) -> None:
        size = len(body) - 1
        self._need(size > 0, "output without content")
        self._need(body[0] == 1 or (body[0] == 2 and self.command), f"output on stream {body[0]}")
        self._need(size <= self.allowed, "more output than it was allowed")
        self.allowed -= size
        self.chunks.append((body[0], bytes(body[1:])))

    @staticmethod
    def _need(right: bool, wrong: str) -> None:
        if not right:
            raise frames.BadFrame(wrong)


class Channel:
    """One guard's stream. Used from one event loop."""

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        self._stream = stream
        self._inbox = memoryview(mmap.mmap(-1, _INBOX, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        # mmap instead of bytearray: untouched pages take no memory, and filling 1 MiB with zeros would take a sixth
        # of the time of opening a jail.
        self._read_to = 0
        self._handled_to = 0
        self._more = False
        """Whether the inbox may still have whole frames."""
        self._unturned = 0
        """Frames handled since other tasks last got a turn."""
        self._outbox = bytearray()
        self._exchanges: dict[int, Exchange] = {}
        self._last_id = 0
        self._leading = False
        self._parked: dict[anyio.Event, None] = {}
        self._writing = anyio.Lock()
        self.gone: str | None = None
        """The reason for which the guard is gone; None while the channel works."""
        self.message = ""
        """The guard's own last message."""
        self.greeting: frames.Greeting | None = None
        self._closing = False

    def open(self, request: Callable[[int], bytes], *, most: int | None = None) -> Exchange:
        """Send a new request, built from its id; `most` limits the answer to a file operation, in bytes."""
        frame = request(self._last_id + 1)
        self.check()
        self._last_id += 1
        exchange = self._exchanges[self._last_id] = Exchange(self._last_id, most)
        self.post(frame)
        return exchange

    def open_passing(self, request: Callable[[int], bytes], fds: Sequence[int]) -> Exchange | None:
        """Send a new request together with descriptors. Returns None, with nothing sent, if that fails now."""
        frame = request(self._last_id + 1)
        self.check()
        if self._outbox:  # descriptors travel with the first byte sent, which would belong to an earlier frame
            return None
        try:
            sent = socket.send_fds(self._stream, [frame], fds)
        except OSError:  # the stream is full, or too many descriptors of this user's are on their way
            return None
        self._last_id += 1
        exchange = self._exchanges[self._last_id] = Exchange(self._last_id)
        self.post(frame[sent:])
        return exchange

    def forget(self, exchange: Exchange) -> None:
        """Ignore all further frames about a request."""
        self._exchanges.pop(exchange.id, None)

    def check(self) -> None:
        """Raise Unavailable when the guard is gone."""
        if self.gone is not None:
            raise Unavailable(self.gone, retryable=False)

    def post(self, frame: bytes) -> None:
        """Send without waiting; bytes that do not fit into the stream are sent with the next wait."""
        if self.gone is None:
            self._outbox += frame
            self._flush()

    def consumed(self, exchange: Exchange, size: int) -> None:
        """Count consumed bytes of output, and give the guard new credit from time to time."""
        exchange.owed += size
        if exchange.owed >= _CREDIT_STEP and not exchange.over:
            self.grant(exchange, exchange.owed)
            exchange.owed = 0

    def grant(self, exchange: Exchange, size: int) -> None:
        """Allow `size` more bytes of output."""
        if exchange.command:
            exchange.allowed += size
        self.post(frames.frame(frames.CREDIT, exchange.id, size.to_bytes(4, "little")))

    async def until(self, exchange: Exchange | None, ready: Callable[[], bool]) -> None:
        """Wait until a frame makes `ready` true. Raises Unavailable when the guard is gone before that."""
        if self._outbox:
            await self._drain()
        try:
            while not ready():
                self.check()
                if self._leading:
                    await self._park(exchange)
                else:
                    await self._lead(ready)
        finally:
            if not self._leading:  # pass the lead on, else the others wait for a reader that is gone
                self._wake(next(iter(self._parked), None))

    def die(self, reason: str) -> None:
        """Make every waiting and every later request raise Unavailable."""
        if self.gone is None:
            self.gone = reason
            self._outbox.clear()
            for event in list(self._parked):
                event.set()

    def close(self) -> None:
        """Shut the stream down, also for other processes that have it open. May be called twice."""
        self.die("the sandbox is closed")
        self._closing = True
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the guard is gone already
        self._release()

    def drop(self) -> None:
        """Close the stream at once: the tasks that wait for it belong to an event loop that has ended."""
        self.close()
        self._stream.close()

    def _release(self) -> None:
        """Close the descriptor once no task waits for it.

        The number of a closed descriptor may be another file's a moment later.
        """
        if self._closing and not self._leading and not self._writing.locked():
            self._stream.close()

    async def _park(self, exchange: Exchange | None) -> None:
        event = anyio.Event()
        self._parked[event] = None
        if exchange is not None:
            exchange.waiting.append(event)
        try:
            await event.wait()
        finally:
            self._parked.pop(event, None)
            if exchange is not None and event in exchange.waiting:
                exchange.waiting.remove(event)

    @staticmethod
    def _wake(event: anyio.Event | None) -> None:
        if event is not None:
            event.set()

    async def _lead(self, ready: Callable[[], bool]) -> None:
        self._leading = True
        try:
            while self.gone is None and not ready():
                await self._read()
        finally:
            self._leading = False
            self._release()

    async def _read(self) -> None:
        if not self._more:
            if self._handled_to:
                self._read_to -= self._handled_to
                self._inbox[: self._read_to] = bytes(self._inbox[self._handled_to : self._handled_to + self._read_to])
                self._handled_to = 0
            try:
                size = self._stream.recv_into(self._inbox[self._read_to :])
            except BlockingIOError:
                await anyio.wait_readable(self._stream)
                return
            except OSError:
                size = 0
            if not size:
                self.die("the sandbox's guard has ended, and everything in the sandbox")
                return
            self._read_to += size
        self._handle_frames()
        if self._unturned < _FRAMES_A_TURN:
            await anyio.lowlevel.checkpoint_if_cancelled()  # a cancelled start must not return a process
        else:
            self._unturned = 0
            await anyio.lowlevel.checkpoint()

    def _handle_frames(self) -> None:
        """Handle some of the whole frames in the inbox."""
        self._more, count = False, 0
        try:
            for kind, id, body in frames.split(self._inbox[self._handled_to : self._read_to]):
                self._handled_to += frames.HEAD_SIZE + len(body)
                if id == 0:
                    self._receive_from_guard(kind, body)
                elif (exchange := self._exchanges.get(id)) is not None:
                    exchange.receive(kind, body)
                    for event in exchange.waiting:
                        event.set()
                    if exchange.over:
                        self.forget(exchange)
                elif id > self._last_id:
                    raise frames.BadFrame("a frame about a request that was never made")
                count += 1
                self._unturned += 1
                if count == _FRAMES_AT_ONCE:
                    self._more = True
                    return
        except frames.BadFrame as error:
            self.distrust(error)
        if self._read_to - self._handled_to == _INBOX:
            self.distrust("a frame that is too large")

    def distrust(self, wrong: object) -> None:
        """Treat the guard as gone because it broke the protocol."""
        self.die(f"the sandbox's guard broke its protocol: {wrong}")

    def _receive_from_guard(self, kind: int, body: memoryview) -> None:
        if kind == frames.GREETED and self.greeting is None:
            self.greeting = frames.greeting(body)
        elif kind == frames.BROKEN:
            self.message = frames.words(bytes(body[: 4 * _MESSAGE_MAX]))[:_MESSAGE_MAX]
            self.die(f"the sandbox's guard ended: {self.message}")
        else:
            raise frames.BadFrame(f"a frame of type {kind}, which is unknown or came twice")

    def _flush(self) -> None:
        try:
            while self._outbox:
                del self._outbox[: self._stream.send(self._outbox)]
        except BlockingIOError:
            pass  # the rest is sent when there is room
        except OSError:
            self._outbox.clear()  # the guard is gone; reading reports that, after what it still sent

    async def _drain(self) -> None:
        try:
            async with self._writing:
                while self._outbox and self.gone is None:
                    await anyio.wait_writable(self._stream)
                    self._flush()
        finally:
            self._release()
