"""A call that waits for a person ends with its client and with its server, and clients with equal ids do not meet."""

import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import time_ns
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.mcp.commands import HANDRAIL, OTHER_TOKEN, TOKEN, Address, http_server
from tests.mcp.served import NEW, OLD, envelope, until
from tests.mcp.test_http import client_with
from tests.mcp.test_processes import running

pytestmark = pytest.mark.anyio
CAN_ASK = {"elicitation": {"form": {}}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Address]:
    with http_server(directory, "--mode", "ask") as address:
        yield address


def message(command: str, id: int = 1, **more: Any) -> dict[str, Any]:
    """A call of `bash`, as any client of 2026-07-28 might write it."""
    meta = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": CAN_ASK}
    params = {"name": "bash", "arguments": {"command": command}, "_meta": {**meta, "progressToken": 1}, **more}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def sent(server: Address, body: dict[str, Any], token: str = TOKEN) -> HTTPConnection:
    """A connection on which this was asked."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=100)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= {"Authorization": f"Bearer {token}", "MCP-Protocol-Version": NEW}
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "bash"}
    connection.request("POST", "/mcp", json.dumps(body), headers)
    return connection


def answered(connection: HTTPConnection) -> tuple[list[str], dict[str, Any]]:
    """The texts of the progress that came, and the answer."""
    text = connection.getresponse().read().decode()
    connection.close()
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
    messages = [json.loads(line) for line in lines]
    return [each["params"]["message"] for each in messages[:-1]], messages[-1]


def asked(server: Address, command: str) -> dict[str, Any]:
    """What a client that was asked for approval comes back with."""
    result = answered(sent(server, message(command)))[1]["result"]
    [question] = result["inputRequests"]
    approve = {"action": "accept", "content": {"decision": "approve"}}
    return {"requestState": result["requestState"], "inputResponses": {question: approve}}


def test_the_state_of_one_token_is_refused_with_another(server: Address, directory: Path) -> None:
    again = asked(server, "echo x >> stolen")
    refused = answered(sent(server, message("echo x >> stolen", **again), OTHER_TOKEN))[1]
    assert "requestState" in refused["error"]["message"]
    assert not (directory / "stolen").exists()
    assert answered(sent(server, message("echo x >> stolen", **again)))[1]["result"]["structuredContent"]["ok"]
    assert (directory / "stolen").read_text() == "x\n"


async def test_clients_of_one_token_with_equal_ids_get_their_own_answers_and_cancel_their_own_calls(
    server: Address, directory: Path
) -> None:
    long = f"{time_ns()}"  # seconds that nobody else on this machine sleeps
    commands = [f"echo begun {name}; sleep {mark}; echo {name}" for name, mark in (("one", "0.5"), ("two", long))]
    states = [asked(server, command) for command in commands]
    one, two = (sent(server, message(command, **state)) for command, state in zip(commands, states, strict=True))
    await until(lambda: running(long))
    two.close()  # the client has gone
    await until(lambda: not running(long))
    progress, answer = answered(one)
    assert answer["result"]["structuredContent"]["result"]["stdout"] == "begun one\none\n"
    assert "".join(progress) in ("begun one\none\n", "begun one\n")


@asynccontextmanager
async def asked_person(server: Address | None, directory: Path) -> AsyncIterator[Client]:
    """A client of 2025-11-25 whose person is asked and never answers."""
    directory.joinpath("asked").unlink(missing_ok=True)

    async def silent(context: Any, params: Any) -> types.ElicitResult:
        directory.joinpath("asked").touch()
        await anyio.sleep_forever()
        raise AssertionError

    async with anyio.create_task_group() as group:
        if server is None:
            words = [*HANDRAIL[1:], "--workspace", str(directory), "--mode", "ask"]
            target: Any = StdioServerParameters(command=HANDRAIL[0], args=words)
            opened: Any = Client(target, mode=OLD, elicitation_callback=silent)
        else:
            opened = client_with(server, TOKEN, OLD, answers=silent)
        async with opened as client:
            group.start_soon(client.call_tool, "bash", {"command": "echo x >> never"})
            await until(directory.joinpath("asked").exists)
            yield client
            group.cancel_scope.cancel()


async def test_a_client_that_leaves_while_its_person_is_asked_has_not_approved(
    server: Address, directory: Path
) -> None:
    with anyio.fail_after(50):  # sooner than the person's time is over
        async with asked_person(server, directory):
            pass
        async with client_with(server, TOKEN, OLD) as client:
            assert envelope(await client.call_tool("read", {"path": "never"}))["kind"] == "not_found"


@pytest.mark.long
async def test_a_program_whose_client_leaves_while_its_person_is_asked_ends(tmp_path: Path) -> None:
    with anyio.fail_after(50):
        async with asked_person(None, tmp_path):
            assert running(str(tmp_path))
        await until(lambda: not running(str(tmp_path)))
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("protocol", [NEW, pytest.param(OLD, marks=pytest.mark.long)])
async def test_a_server_that_is_closed_while_calls_are_parked_ends_and_runs_none(protocol: str, tmp_path: Path) -> None:
    place = tmp_path / "work"
    place.mkdir()
    with http_server(place, "--mode", "ask") as server:
        if protocol == NEW:
            asked(server, "echo x >> never")
            _close(server)
        else:
            with pytest.raises(BaseExceptionGroup):
                async with asked_person(server, place):
                    await anyio.to_thread.run_sync(_close, server)
    assert not (place / "never").exists()


def _close(server: Address) -> None:
    server.process.send_signal(signal.SIGTERM)
    try:
        server.process.wait(50)
    except subprocess.TimeoutExpired:
        pytest.fail("it waits for the person")
