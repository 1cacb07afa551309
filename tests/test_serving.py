"""A client that sends slowly, or holds more than its share, is cut off; one that waits for its answer is not."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from time import monotonic

import anyio
import pytest
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from handrail.serving import ServingLimits, bound, serve_app

pytestmark = pytest.mark.anyio
SHORT = 0.4
"""Seconds of the deadlines in these tests."""
SLOW = ServingLimits(header_seconds=SHORT, body_seconds=SHORT, idle_seconds=60)


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"got {len(await request.body())}")


async def wait(request: Request) -> PlainTextResponse:
    await anyio.sleep(4 * SHORT)
    return PlainTextResponse("waited")


async def events(request: Request) -> StreamingResponse:
    async def some() -> AsyncIterator[bytes]:
        for number in range(8):
            yield b"event %d\n" % number
            await anyio.sleep(SHORT / 2)

    return StreamingResponse(some())


async def forever(request: Request) -> StreamingResponse:
    async def none() -> AsyncIterator[bytes]:
        yield b"begun\n"
        await anyio.sleep_forever()

    return StreamingResponse(none())


APP = Starlette(
    routes=[
        Route("/echo", echo, methods=["GET", "POST"]),
        Route("/wait", wait),
        Route("/events", events),
        Route("/forever", forever),
    ]
)


def named(scope: Scope) -> str | None:
    """The client that a header names."""
    return next((value.decode() for name, value in scope["headers"] if name == b"client"), None)


class Peer:
    """One connection to the server."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def read(self, until: bytes = b"\0") -> bytes:
        """All that comes until the connection ends, or until these bytes."""
        data = b""
        with anyio.fail_after(60):
            while until not in data:
                try:
                    data += await self.stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    break
        return data


Connect = Callable[[], AbstractAsyncContextManager[Peer]]


@asynccontextmanager
async def serving(limits: ServingLimits) -> AsyncIterator[Connect]:
    """A server of APP; gives what connects to it."""
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]

    @asynccontextmanager
    async def connected() -> AsyncIterator[Peer]:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            yield Peer(stream)

    async with anyio.create_task_group() as group:
        group.start_soon(partial(serve_app, APP, listening, named, limits))
        try:
            yield connected
        finally:
            group.cancel_scope.cancel()


async def trickle(peer: Peer, data: bytes) -> None:
    """Send a byte at a time, each well before the deadline, without end."""
    try:
        while True:
            for byte in data:
                await peer.send(bytes([byte]))
                await anyio.sleep(SHORT / 10)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"POST /echo HTTP/1.1\r\nHost: x\r\n", b"x-more: y\r\n"),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", b"x"),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\nGET /ec", b"h"),
    ],
    ids=["headers", "body", "chunks", "second-request"],
)
async def test_a_request_that_comes_byte_by_byte_is_ended_at_its_deadline(begin: bytes, more: bytes) -> None:
    async with serving(SLOW) as connected, connected() as peer, anyio.create_task_group() as group:
        began = monotonic()
        await peer.send(begin)
        group.start_soon(trickle, peer, more)
        answer = await peer.read()
        group.cancel_scope.cancel()
        assert b" 408 " in answer
        assert monotonic() - began >= SHORT


async def test_a_connection_on_which_nothing_comes_is_closed_without_a_word() -> None:
    async with serving(SLOW) as connected, connected() as peer:
        assert await peer.read() == b""


async def test_an_answer_that_takes_longer_than_the_deadlines_is_waited_for() -> None:
    async with serving(SLOW) as connected, connected() as peer:
        await peer.send(b"GET /wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await peer.read()).endswith(b"waited")


async def test_a_stream_of_events_that_lasts_longer_than_the_deadlines_is_not_cut() -> None:
    async with serving(SLOW) as connected, connected() as peer:
        await peer.send(b"GET /events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"event 7" in await peer.read()


async def test_requests_that_are_sent_together_are_answered_in_order() -> None:
    async with serving(SLOW) as connected, connected() as peer:
        posts = [b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (n, b"x" * n) for n in range(20)]
        await peer.send(b"".join(posts))
        answer = await peer.read(until=b"got 19")
        assert [f"got {n}".encode() in answer for n in range(20)] == [True] * 20


async def test_a_client_with_its_share_of_requests_open_is_refused_and_another_is_served() -> None:
    request = b"GET /%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nClient: %s\r\n\r\n"
    async with serving(ServingLimits(requests_per_client=2)) as connected:
        async with connected() as one, connected() as two, connected() as three, connected() as other:
            for peer in (one, two):
                await peer.send(request % (b"forever", b"greedy"))
                assert b"begun" in await peer.read(until=b"begun")
            await three.send(request % (b"echo", b"greedy"))
            assert b" 429 " in await three.read()
            await other.send(request % (b"echo", b"modest"))
            assert b"got 0" in await other.read()
        async with connected() as again:
            with anyio.fail_after(60):
                while True:  # until the server has seen that the streams are gone
                    await again.send((request % (b"echo", b"greedy")).replace(b"Connection: close\r\n", b""))
                    if b"got 0" in await again.read(until=b"\r\n\r\n"):
                        break


async def test_a_new_connection_displaces_a_stranger_s_and_never_a_request_of_a_known_client() -> None:
    async with serving(ServingLimits(connections=3)) as connected, connected() as known, connected() as stranger:
        await known.send(b"GET /forever HTTP/1.1\r\nHost: x\r\nClient: known\r\n\r\n")
        await known.read(until=b"begun")
        await stranger.send(b"GET /forever HTTP/1.1\r\nHost: x\r\n\r\n")
        await stranger.read(until=b"begun")
        for _ in range(5):
            async with connected() as another:
                await another.send(b"GET /echo HTTP/1.1\r\nHost: x\r\nClient: another\r\n\r\n")
                assert b"got 0" in await another.read(until=b"got 0")
                async with connected() as half:
                    await half.send(b"GET /echo HT")
        assert await stranger.read() == b""
        with anyio.move_on_after(SHORT) as still_open:
            await known.stream.receive()
        assert still_open.cancelled_caught


FULL = """
import logging, os, resource, anyio
from handrail.serving import ServingLimits, bound, serve_app
from tests.test_serving import APP, named

logging.basicConfig()

async def main():
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    async with anyio.create_task_group() as group:
        group.start_soon(serve_app, APP, listening, named, ServingLimits(header_seconds=600))
        await anyio.sleep(0.5)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, 4096))  # room for eight connections
        print(port, flush=True)

anyio.run(main)
"""


def test_a_server_without_a_free_file_drops_strangers_and_says_so_once() -> None:
    with subprocess.Popen([sys.executable, "-c", FULL], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        port = int(server.stdout.readline())
        held = []
        try:
            for _ in range(100):
                held.append(socket.create_connection(("127.0.0.1", port), timeout=60))
                held[-1].sendall(b"GET /echo HT")
            with socket.create_connection(("127.0.0.1", port), timeout=60) as good:
                good.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\nClient: good\r\nConnection: close\r\n\r\n")
                assert b"got 0" in good.makefile("rb").read()
        finally:
            server.terminate()
            printed = server.stderr.read().decode().splitlines()
            for each in held:
                each.close()
    [line] = printed
    assert "Too many open files" in line
