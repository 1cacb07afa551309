"""What the MCP server costs: a call in memory and over stdio, and the start, against the SDK's own trivial server."""

import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Final

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.server.mcpserver import MCPServer

from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail import Budget, Session, builtin_tools, open_sandbox, tool
from handrail.mcp.http import serve_http
from handrail.mcp.server import make_server

CALLS: Final = 200
CLIENTS: Final = 50
TOKEN: Final = "token-of-the-bench"
MODES: Final = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
PLAIN: Final = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("plain")
@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
server.run("stdio")
"""
OURS: Final = """
import anyio
from handrail import Budget, Session, tool
from handrail.mcp.server import make_server, serve_stdio
@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
anyio.run(serve_stdio, make_server(lambda: Session([add], budget=Budget(calls=None, refusals=None))))
"""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def rows(effort: Effort) -> list[Row]:
    table: list[Row] = []
    for protocol, mode in MODES.items():
        table += _calls(effort, f"in memory, {protocol}", mode, _plain, _ours)
        table += _calls(effort, f"over stdio, {protocol}", mode, lambda: _command(PLAIN), lambda: _command(OURS))
    return [*table, *_starts(effort), *_many(effort)]


def _plain() -> MCPServer:
    server = MCPServer("plain", log_level="ERROR")
    server.tool()(add.function)  # type: ignore[arg-type]
    return server


def _ours() -> Any:
    return make_server(lambda: Session([add], budget=Budget(calls=None, refusals=None)))


def _command(program: str, *words: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-c", program, *words])


def _calls(effort: Effort, how: str, mode: str, plain: Callable[[], Any], ours: Callable[[], Any]) -> list[Row]:
    count = effort.count(CALLS)
    times = interleave(
        {
            "floor": lambda: anyio.run(_call_many, plain, mode, count),
            "ours": lambda: anyio.run(_call_many, ours, mode, count),
        },
        effort.rounds,
    )
    return [
        row(f"a call {how}: the SDK's server, wall", times["floor"], "ms"),
        row(f"a call {how}: ours, with all gates", times["ours"], "ms", floor=times["floor"]),
    ]


async def _call_many(server: Callable[[], Any], mode: str, count: int) -> float:
    async with Client(server(), mode=mode) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        with Stopwatch() as watch:
            for number in range(count):
                await client.call_tool("add", {"a": number, "b": 2})
    return watch.wall / count


def _starts(effort: Effort) -> list[Row]:
    with tempfile.TemporaryDirectory() as workspace:
        served = StdioServerParameters(command=sys.executable, args=["-m", "handrail", "mcp", "--workspace", workspace])
        times = interleave(
            {
                "floor": lambda: anyio.run(_start, _command(PLAIN), _connected),
                "answer": lambda: anyio.run(_start, served, _connected),
                "bash": lambda: anyio.run(_start, served, _ran),
            },
            effort.rounds,
        )
    floor = times["floor"]
    return [
        row("start until the first answer: the SDK's server, wall", floor, "ms"),
        row("start until the first answer: handrail mcp", times["answer"], "ms", floor=floor),
        row("start until bash has answered: handrail mcp", times["bash"], "ms", floor=floor),
    ]


async def _start(server: StdioServerParameters, until: Callable[[Client], Awaitable[object]]) -> float:
    began = perf_counter()
    async with Client(server, mode="legacy") as client:
        await until(client)
        return perf_counter() - began


async def _connected(client: Client) -> None:
    await client.send_ping()


async def _ran(client: Client) -> None:
    await client.call_tool("bash", {"command": "true"})


def _many(effort: Effort) -> list[Row]:
    """Clients over HTTP, each with an MCP session and a jail of its own."""
    count = effort.count(CLIENTS)
    with tempfile.TemporaryDirectory() as workspace:
        first, second = anyio.run(_together, workspace, count)
    return [
        Row(f"{count} clients at once: connect, make a jail and run a command", first, "s"),
        Row(f"{count} clients at once: one more command each", second, "s"),
    ]


async def _together(workspace: str, count: int) -> tuple[float, float]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Session]:
        unlimited = Budget(calls=None, refusals=None)
        async with (
            open_sandbox(workspace=workspace) as sandbox,
            Session(builtin_tools(), sandbox=sandbox, budget=unlimited) as session,
        ):
            yield session

    address: list[str] = []
    async with anyio.create_task_group() as serving:
        serving.start_soon(_serve, make_server(opened), address)
        while not address:  # noqa: ASYNC110 - it is told through a plain function
            await anyio.sleep(0.01)
        async with anyio.create_task_group() as group:
            ready, again = anyio.Event(), anyio.Event()
            done: list[float] = []
            began = perf_counter()
            for _ in range(count):
                group.start_soon(_client, address[0], done, count, ready, again)
            await ready.wait()
            first, began = perf_counter() - began, perf_counter()
            again.set()
        second = perf_counter() - began
        serving.cancel_scope.cancel()
    return first, second


async def _client(url: str, done: list[float], count: int, ready: anyio.Event, again: anyio.Event) -> None:
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        await _ran(client)
        done.append(perf_counter())
        if len(done) == count:
            ready.set()
        await again.wait()
        await _ran(client)


async def _serve(server: Any, address: list[str]) -> None:
    await serve_http(server, "127.0.0.1", 0, [TOKEN], ready=address.append)
