"""Carry messages to a server and back, over a process or over HTTP: bounded in size, with the process tree ended."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic_core import from_json

from handrail.aio import finish
from handrail.contract.driver import Process
from handrail.contract.errors import Unavailable
from handrail.contract.limits import CONNECT_WAIT, MCP_END_WAIT, MCP_LARGEST_MESSAGE
from handrail.mcp._sifting import Incoming, Sifted, unreadable_answer

Ended: TypeAlias = Callable[[str], None]
"""Function that is called with the reason when the server is gone."""
QUEUED: Final = 256
"""Number of messages to a server that wait while it does not read."""
LOG_KEPT: Final = 64 << 10
"""Size of a server's output that is kept, in bytes."""
BETWEEN_STREAMS: Final = 0.25
"""Time between two requests for a stream of events, in seconds, however soon a server ends the stream."""


class Log:
    """The end of a server's stderr, and of its stdout lines that are not messages."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        data = data[-LOG_KEPT:]
        self._pieces.append(data)
        self._size += len(data)
        while self._size - len(self._pieces[0]) >= LOG_KEPT:
            self._size -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        return b"".join(self._pieces)[-LOG_KEPT:].decode("utf-8", "replace")

    def last_lines(self, most: int = 5) -> str:
        return "\n".join(self.text.strip().splitlines()[-most:])[-1_000:]


class TooLong(Exception):
    """A message that exceeds the size limit."""


class Lines:
    """Lines of bytes that arrive in pieces. Raises TooLong for one that never seems to end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        *whole, rest = data.split(b"\n")
        lines = []
        for end in whole:
            lines.append(b"".join([*self._pieces, end]))
            self._pieces, self._size = [], 0
        self._size += len(rest)
        if rest:
            self._pieces.append(rest)
        if self._size > self._most or any(len(line) > self._most for line in lines):
            raise TooLong(f"it sent a message of more than {self._most >> 20} MiB")
        return lines


@asynccontextmanager
async def over_process(
    start: Callable[[], Awaitable[Process]], log: Log, ended: Ended
) -> AsyncIterator[tuple[Sifted, MemoryObjectSendStream[SessionMessage]]]:
    """Messages as lines of a process's stdin and stdout. The process's stderr goes into the log."""
    process = await start()
    try:
        incoming, received = anyio.create_memory_object_stream[Incoming](0)
        outgoing, sent = anyio.create_memory_object_stream[SessionMessage](QUEUED)
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process, incoming, log, ended)
            group.start_soon(_write, process, sent)
            with incoming, received, outgoing, sent:
                yield Sifted(received), outgoing
            group.cancel_scope.cancel()
    finally:
        await finish(partial(_end, process))


async def _read(process: Process, incoming: MemoryObjectSendStream[Incoming], log: Log, ended: Ended) -> None:
    lines = Lines(MCP_LARGEST_MESSAGE)
    reason = "it closed the connection"
    try:
        with incoming:
            output = process.output()
            async with aclosing(output) if isinstance(output, AsyncGenerator) else _nothing():
                async for chunk in output:
                    if chunk.stream == "stderr":
                        log.add(chunk.data)
                        continue
                    for line in lines.feed(chunk.data):
                        await _deliver(line, incoming, log)
            reason = f"it ended with exit code {await process.wait()}"
    except TooLong as error:
        reason = str(error)
    except Unavailable as error:
        reason = f"its sandbox is gone: {error}"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
    ended(reason)


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


async def _deliver(line: bytes, incoming: MemoryObjectSendStream[Incoming], log: Log) -> None:
    if not line.strip():
        return
    try:
        # In two steps: validate_json makes Python objects of the whole message for each kind that it tries.
        message = jsonrpc_message_adapter.validate_python(from_json(line), by_name=False)
    except ValueError as error:
        log.add(b"[not a message] " + line[:1_000] + b"\n")
        if (answer := unreadable_answer(line, error)) is not None:
            await incoming.send(answer)
        return
    await incoming.send(SessionMessage(message))


async def _write(process: Process, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with suppress(BrokenPipeError, Unavailable, anyio.ClosedResourceError):  # whoever reads its output tells of its end
        async for message in sent:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            await process.send(line.encode())


async def _end(process: Process) -> None:
    """Close the server's input, which asks it to end; then TERM, then KILL, to the whole tree."""
    with suppress(BrokenPipeError, Unavailable):
        with anyio.move_on_after(MCP_END_WAIT):
            await process.send(None)
            await _drain(process)
            return
        await process.signal("TERM")
        with anyio.move_on_after(MCP_END_WAIT):
            await _drain(process)
            return
        await process.signal("KILL")
        with anyio.move_on_after(MCP_END_WAIT):
            await process.wait()


async def _drain(process: Process) -> None:
    """Read the output until the process ends; a process that is stuck writing does not read its input."""
    async for _ in process.output():
        pass
    await process.wait()


@asynccontextmanager
async def over_http(url: str, headers: Mapping[str, str], log: Log) -> AsyncIterator[tuple[Sifted, Any]]:
    """Messages as HTTP requests. How long an answer may take is up to the call, not to the connection."""

    async def look(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            log.add(f"HTTP {response.status_code} {response.reason_phrase}\n".encode("utf-8", "replace"))
        _bound(response)

    turn, next_stream = anyio.Lock(), 0.0

    async def wait_for_turn(request: httpx2.Request) -> None:
        """Delay the next stream: a server says how soon to ask again for one that ended, and may say: at once."""
        nonlocal next_stream
        if request.method == "GET":
            async with turn:
                await anyio.sleep_until(next_stream)
                next_stream = anyio.current_time() + BETWEEN_STREAMS

    client = httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_WAIT, read=None),
        event_hooks={"request": [wait_for_turn], "response": [look]},
    )
    async with client, streamable_http_client(
        url, http_client=client, max_sse_event_size=MCP_LARGEST_MESSAGE
    ) as (received, outgoing):  # fmt: skip
        yield Sifted(received), outgoing


def _bound(response: httpx2.Response) -> None:
    """Refuse a body that grows too large; a stream of events has its own limit for each of them."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.StreamError("the server compressed an answer, though it was told not to")
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if size > MCP_LARGEST_MESSAGE:
                raise httpx2.StreamError(f"it sent a message of more than {MCP_LARGEST_MESSAGE >> 20} MiB")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
