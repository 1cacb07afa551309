"""Over HTTP, clients that send half of a request or open thousands of connections lock nobody else out.

Run with `-s` to see the figures: how long a good client waits while the server is attacked, and what the server prints.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter, sleep

import pytest
from mcp.shared.exceptions import MCPError

from handrail.mcp.http import MAX_SESSIONS_PER_TOKEN_COUNT
from tests.mcp.commands import HANDRAIL, OTHER_TOKEN, TOKEN, Address, http_server
from tests.mcp.served import OLD
from tests.mcp.test_http import answer, client_with, is_served

DESCRIPTORS = 200
"""Files that the attacked server may have open."""
FEW_FILES = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *HANDRAIL)
HALVES = {
    "nothing": b"",
    "half headers": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthor",
    "half a body": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
    "half a body, with a token": (
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer second-token-of-this-test\r\n\r\n{"
    ),
}


@contextmanager
def held(server: Address, data: bytes, count: int) -> Iterator[None]:
    """So many connections on which this was sent, and nothing after it."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            try:
                connection.sendall(data)
            except OSError:
                continue  # it was dropped already
        yield


def seconds(server: Address, calls: int = 5) -> float:
    """How long a good client waits for one answer, on a connection of its own."""
    right = {"host": f"127.0.0.1:{server.port}", "origin": None, "token": f"Bearer {TOKEN}", "method": "POST"}
    began = perf_counter()
    for _ in range(calls):
        assert is_served(*answer(server, **right))
    return (perf_counter() - began) / calls


def ended(process: "subprocess.Popen[bytes]", signals: Sequence[int] = (signal.SIGTERM,)) -> int:
    """The exit code after these signals."""
    for each in signals:
        process.send_signal(each)
    return process.wait(60)


@pytest.mark.parametrize(
    "half",
    [
        pytest.param("nothing", marks=pytest.mark.long),
        "half headers",
        pytest.param("half a body", marks=pytest.mark.long),
        "half a body, with a token",
    ],
)
def test_a_good_client_is_served_while_others_hold_more_half_requests_than_there_are_files(
    half: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with http_server(work, argv=FEW_FILES) as server:
        seconds(server, 1)
        calm = seconds(server)
        with held(server, HALVES[half], DESCRIPTORS + 100):
            attacked = seconds(server)
            assert ended(server.process) == -signal.SIGTERM
    lines = server.log.read_text().splitlines()
    print(
        f"\n{half}: an answer took {calm * 1e3:.1f} ms, attacked {attacked * 1e3:.1f} ms; {len(lines):,} lines printed"
    )
    assert len(lines) < 50
    assert "Traceback" not in server.log.read_text()
    assert attacked < calm * 50


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with http_server(tmp_path_factory.mktemp("work")) as address:
        yield address


def test_a_token_that_opens_more_sessions_than_it_may_leaves_those_of_another_token_alone(server: Address) -> None:
    right = {"host": f"127.0.0.1:{server.port}", "origin": None, "method": "POST", "protocol": OLD}
    greedy = [answer(server, **right, token=f"Bearer {TOKEN}")[0] for _ in range(MAX_SESSIONS_PER_TOKEN_COUNT + 5)]
    assert greedy == [200] * MAX_SESSIONS_PER_TOKEN_COUNT + [503] * 5
    assert is_served(*answer(server, **right, token=f"Bearer {OTHER_TOKEN}"))


@pytest.mark.anyio
async def test_a_session_that_is_closed_makes_room_for_another(server: Address) -> None:
    for _ in range(MAX_SESSIONS_PER_TOKEN_COUNT + 5):
        async with client_with(server, OTHER_TOKEN, OLD):
            pass


def served_on(port: int) -> Callable[[], bool]:
    """Whether a server answers there."""

    def look() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return connection.recv(100).startswith(b"HTTP/1.1 4")
        return False

    return look


def full_pipe() -> tuple[int, int]:
    """A pipe that takes no more."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4_096)
    os.set_blocking(writing, True)
    return reading, writing


def unread_pipe() -> tuple[int, int]:
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.open(os.devnull, os.O_RDONLY), writing


@pytest.mark.parametrize("pipe", [full_pipe, unread_pipe])
def test_a_server_whose_stderr_nobody_reads_serves_and_ends_at_term(
    pipe: Callable[[], tuple[int, int]], tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    reading, writing = pipe()
    words = [*HANDRAIL, "--http", f"127.0.0.1:{port}", "--workspace", str(tmp_path)]
    with subprocess.Popen(words, stderr=writing) as process:
        try:
            ready = served_on(port)
            while not ready():
                assert process.poll() is None
                sleep(0.05)
            for _ in range(30):  # entries of the log
                with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                    connection.sendall(b"no HTTP\r\n\r\n")
                    connection.recv(100)
            assert ready()
            assert ended(process) == -signal.SIGTERM
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)


@pytest.mark.parametrize(
    ("half", "signals"),
    [
        ("half a body, with a token", (signal.SIGTERM,)),
        pytest.param("half headers", (signal.SIGTERM,), marks=pytest.mark.long),
        pytest.param("half a body, with a token", (signal.SIGTERM, signal.SIGTERM), marks=pytest.mark.long),
    ],
)
def test_term_ends_a_server_with_half_requests_without_a_traceback(
    half: str, signals: Sequence[int], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with http_server(work) as server:
        right = HALVES[half].replace(b"Host: 127.0.0.1", f"Host: 127.0.0.1:{server.port}".encode())
        with held(server, right, 3):
            seconds(server, 1)
            assert ended(server.process, signals) == -signal.SIGTERM
    assert len(server.log.read_text().splitlines()) == 2, server.log.read_text()


@pytest.mark.anyio
async def test_term_ends_a_server_with_an_open_stream_and_a_call_without_a_traceback(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with http_server(work) as server:
        with suppress(MCPError, BaseExceptionGroup):  # its call cannot be answered
            async with client_with(server, TOKEN, OLD) as client:
                ending = f"sleep 0.5; kill -TERM {server.process.pid}"
                with subprocess.Popen(["sh", "-c", ending]):
                    await client.call_tool("bash", {"command": "sleep 3600"})
        assert server.process.wait(60) == -signal.SIGTERM
    assert "Traceback" not in server.log.read_text()


def test_a_server_says_that_it_is_starting_and_then_where_it_serves(server: Address) -> None:
    assert server.log.read_text().splitlines()[:2] == ["handrail: starting", f"handrail: serving on {server.url}"]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = [*HANDRAIL, "--http", address, "--workspace", str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"handrail: {address} cannot be used")
