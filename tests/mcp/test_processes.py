"""A call in the jail that its client gives up, in whichever way, leaves no process."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from handrail import HandrailError, Policy, Session, Unavailable
from handrail.mcp import connect
from tests.mcp.commands import HANDRAIL, TOKEN, http_server
from tests.mcp.served import NEW, OLD, PROTOCOLS, until
from tests.mcp.test_http import client_with

pytestmark = pytest.mark.anyio


def running(mark: str) -> list[str]:
    """The processes of this machine whose command has this word."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if mark.encode() in words:
            found.append(entry.name)
    return found


@asynccontextmanager
async def client_over(transport: str, protocol: str, directory: Path) -> AsyncIterator[Client]:
    directory.mkdir()
    if transport == "http":
        with http_server(directory) as server:
            async with client_with(server, TOKEN, protocol) as client:
                yield client
    else:
        [command, *words] = [*HANDRAIL, "--workspace", str(directory)]
        async with Client(StdioServerParameters(command=command, args=words), mode=protocol) as client:
            yield client


@pytest.mark.parametrize(
    ("transport", "protocol"),
    [
        ("http", NEW),
        pytest.param("stdio", OLD, marks=pytest.mark.long),
        pytest.param("stdio", NEW, marks=pytest.mark.long),
        pytest.param("http", OLD, marks=pytest.mark.long),
    ],
)
async def test_a_call_that_is_cancelled_or_times_out_leaves_no_process(
    transport: str, protocol: str, tmp_path: Path
) -> None:
    mark = f"1{os.getpid()}{PROTOCOLS.index(protocol)}"
    command = f"setsid sleep {mark} & sleep {mark} | sleep {mark}; sleep {mark}"
    async with client_over(transport, protocol, tmp_path / "work") as client:
        await client.list_tools()
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "bash", {"command": command})
            await until(lambda: len(running(mark)) >= 3)
            group.cancel_scope.cancel()
        await until(lambda: not running(mark))
        with pytest.raises(MCPError):
            await client.call_tool("bash", {"command": command}, read_timeout_seconds=1.5)
        await until(lambda: not running(mark))
        assert (await client.call_tool("bash", {"command": "echo on"})).structured_content["ok"]


@pytest.mark.parametrize("protocol", [NEW, pytest.param(OLD, marks=pytest.mark.long)])
async def test_a_client_that_leaves_takes_its_processes_with_it(protocol: str, tmp_path: Path) -> None:
    mark = f"2{os.getpid()}{PROTOCOLS.index(protocol)}"
    async with client_over("stdio", protocol, tmp_path / "work") as client:
        await client.call_tool("bash", {"command": f"sleep {mark}", "background": True})
        assert running(mark)
    await until(lambda: not running(mark))


async def test_a_server_of_root_makes_sandboxes_if_it_keeps_its_privileges(tmp_path: Path) -> None:
    command = [*HANDRAIL, "--workspace", str(tmp_path)]
    if os.geteuid() == 0:
        with pytest.raises(Unavailable, match="privileges='kept'"):
            async with connect("plain", command=command):
                pass
    async with (
        connect("kept", command=command, privileges="kept") as server,
        Session(server.tools, policy=Policy(mode="open")) as session,
    ):
        assert "hello" in str((await session.call("kept__bash", {"command": "echo hello"})).value)


def test_other_privileges_are_refused() -> None:
    with pytest.raises(HandrailError, match="'dropped' or 'kept'"):
        connect("x", command=["true"], privileges="all")  # type: ignore[arg-type]
