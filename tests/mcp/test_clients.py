"""Who a client is, how long its session lives, and the sandboxes that it opens besides its own."""

import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from handrail import Failure, Session, ToolFailed, tool
from handrail.mcp._clients import CALLS_KEPT, MAX_SANDBOXES_COUNT, Caller
from handrail.mcp.server import make_server
from handrail.session.session import core_of
from tests.mcp.commands import TOKEN, http_server
from tests.mcp.served import NEW, NO_LIMIT, OLD, PROTOCOLS, client_of, envelope, jailed, server_of, until
from tests.mcp.test_arguments import AnyCall, AnyParams
from tests.mcp.test_http import client_with

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@tool
def note(text: str = "") -> str:
    """Note something."""
    return text


@both
async def test_all_calls_of_a_client_go_to_one_session(protocol: str) -> None:
    seen: list[Session] = []
    async with client_of(server_of(note, seen=seen), protocol) as client:
        for _ in range(3):
            await client.call_tool("note", {})
        await client.list_tools()
    assert [session.call_count for session in seen] == [3]
    assert core_of(seen[0]).transcript.closed, "it is closed with its client"


async def test_a_session_is_closed_when_it_is_idle_and_opened_again() -> None:
    seen: list[Session] = []
    async with client_of(server_of(note, seen=seen, idle=0.1), NEW) as client:
        await client.call_tool("note", {})
        await until(lambda: core_of(seen[0]).transcript.closed)
        assert envelope(await client.call_tool("note", {"text": "again"}))["result"] == {"text": "again"}
    assert len(seen) == 2


@both
async def test_a_client_that_opens_nothing_is_not_remembered(protocol: str) -> None:
    async with client_of(server_of(note, handles=True), protocol) as client:
        await client.list_resources()
        await client.call_tool("note", {"sandbox": "sandbox_of_nobody"})
        assert remembered() == []
        await client.call_tool("note", {})
        assert len(remembered()) == 1, "the control"


def remembered() -> list[Caller]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Caller)]


async def test_a_session_is_not_idle_while_a_call_runs() -> None:
    seen: list[Session] = []

    @tool
    async def slow() -> str:
        """Take longer than a client may be idle."""
        await anyio.sleep(1.0)
        return "done"

    async with client_of(server_of(slow, seen=seen, idle=0.1), NEW) as client:
        assert envelope(await client.call_tool("slow", {}))["result"] == {"text": "done"}
    assert len(seen) == 1


async def test_what_failed_again_and_again_is_tried_anew_after_a_pause() -> None:
    found: list[str] = []

    @tool(effects=["reads"])
    def look() -> str:
        """Look for something."""
        if not found:
            raise ToolFailed(Failure("not_found", "There is none."))
        return found[0]

    async with client_of(server_of(look, pause=1.0), NEW) as client:
        kinds = [envelope(await client.call_tool("look", {}))["kind"] for _ in range(4)]
        found.append("it")
        await anyio.sleep(1.5)
        answer = envelope(await client.call_tool("look", {}))
    assert kinds == ["not_found"] * 3 + ["rejected"]
    assert answer["result"] == {"text": "it"}


async def test_a_session_forgets_old_calls_and_mints_its_own_ids() -> None:
    seen: list[Session] = []
    async with client_of(server_of(note, seen=seen), OLD) as client:
        for _ in range(3):
            await client.call_tool("note", {})
        ids = [event.call_id for event in seen[0].trace if event.type == "call_started"]
        for _ in range(CALLS_KEPT):
            await seen[0].call("note")
        assert ids == ["call_1", "call_2", "call_3"]
        kept = {event.call_id for event in seen[0].trace if event.type == "call_started"}
    assert len(kept) == CALLS_KEPT
    assert not kept & set(ids)


@both
async def test_a_handle_is_a_sandbox_of_its_own(protocol: str, tmp_path: Path) -> None:
    async with client_of(jailed(tmp_path, handles=True), protocol) as client:
        tools = {each.name: each.input_schema for each in (await client.list_tools()).tools}
        handle = envelope(await client.call_tool("sandbox_open", {}))["result"]["sandbox"]
        await client.call_tool("bash", {"command": "echo there > /tmp/x; echo shared > y", "sandbox": handle})
        there = envelope(await client.call_tool("bash", {"command": "cat /tmp/x y", "sandbox": handle}))
        here = envelope(await client.call_tool("bash", {"command": "cat /tmp/x y", "sandbox": None}))
        closed = envelope(await client.call_tool("sandbox_close", {"sandbox": handle}))
        gone = envelope(await client.call_tool("bash", {"command": "true", "sandbox": handle}))
        again = envelope(await client.call_tool("sandbox_close", {"sandbox": handle}))
    assert "sandbox" in tools["bash"]["properties"]
    assert "sandbox" not in tools["bash"]["required"]
    assert set(tools) > {"sandbox_open", "sandbox_close"}
    assert there["result"]["stdout"] == "there\nshared\n"
    assert here["result"]["stdout"] == "shared\n"
    assert closed["ok"]
    assert [(each["kind"], each["field"]) for each in (gone, again)] == [("not_found", "sandbox")] * 2


@pytest.mark.parametrize("named", ["sandbox_0000", "", 7, ["x"], {"a": 1}])
async def test_a_handle_that_nobody_opened_is_not_found(named: Any) -> None:
    async with client_of(server_of(note, handles=True), NEW) as client:
        result = envelope(await client.call_tool("note", {"text": "a", "sandbox": named}))
    assert result["ok"] if named == "" else result["kind"] == "not_found"


async def test_a_handle_in_arguments_that_are_text_is_taken_out_too() -> None:
    async with client_of(server_of(note, handles=True), NEW) as client:
        text = json.dumps({"text": "a", "sandbox": "sandbox_0000"})
        request: Any = AnyCall(params=AnyParams(name="note", arguments=text))
        result = envelope(await client.session.send_request(request, types.CallToolResult))
    assert result["kind"] == "not_found"


async def test_an_idle_handle_expires_and_the_client_stays() -> None:
    async with client_of(server_of(note, handles=True, idle=1.0), NEW) as client:
        handle = envelope(await client.call_tool("sandbox_open", {}))["result"]["sandbox"]
        assert envelope(await client.call_tool("note", {"text": "a", "sandbox": handle}))["ok"]
        with anyio.fail_after(30):
            while True:
                await anyio.sleep(1.5)
                result = envelope(await client.call_tool("note", {"text": "a", "sandbox": handle}))
                if not result["ok"]:
                    break
    assert result["kind"] == "not_found"


async def test_a_client_may_open_only_so_many() -> None:
    async with client_of(server_of(note, handles=True), NEW) as client:
        results = [envelope(await client.call_tool("sandbox_open", {})) for _ in range(MAX_SANDBOXES_COUNT + 1)]
    assert [result["ok"] for result in results] == [True] * MAX_SANDBOXES_COUNT + [False]
    assert "sandbox_close" in results[-1]["message"]


async def test_a_sandbox_whose_opening_is_cancelled_is_not_left_open() -> None:
    opened, closed, go = anyio.Event(), anyio.Event(), anyio.Event()
    first = True

    @asynccontextmanager
    async def slow() -> AsyncIterator[Session]:
        nonlocal first
        own, first = first, False
        if not own:
            opened.set()
            await go.wait()
        async with Session([note], budget=NO_LIMIT) as session:
            yield session
        if not own:
            closed.set()

    async with client_of(make_server(slow, handles=True), NEW) as client:
        await client.call_tool("note", {})
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "sandbox_open", {})
            await opened.wait()
            group.cancel_scope.cancel()
        go.set()
        with anyio.fail_after(90):
            await closed.wait()


async def test_without_handles_there_are_none() -> None:
    async with client_of(server_of(note), NEW) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["note"]
        assert envelope(await client.call_tool("note", {"text": "a", "sandbox": "x"}))["kind"] == "invalid_args"


async def test_a_session_that_the_client_ends_is_closed_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    with http_server(directory) as server:
        async with client_with(server, TOKEN, OLD) as client:
            await client.call_tool("bash", {"command": "sleep 1000 & echo started"})
            await client.call_tool("bash", {"command": "sleep 1000", "background": True})
            assert children(server.process.pid)
        await until(lambda: not children(server.process.pid))


def children(pid: int) -> list[str]:
    """The processes that this one started and that still run."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
