"""The client: tools of real MCP servers, over stdio and HTTP, called through a session."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    ApprovalRequest,
    ArtifactRef,
    Decision,
    HandrailError,
    Image,
    Policy,
    Session,
    Unavailable,
    open_sandbox,
)
from handrail.contract.limits import MCP_RESTART_WAITS
from handrail.mcp.client import ToolServer, connect
from handrail.testing import approve_all, deny_all

pytestmark = pytest.mark.anyio
HERE = Path(__file__).parent
OPEN = Policy(mode="open")
RICH = [sys.executable, str(HERE / "rich_server.py")]
PNG = b"\x89PNG\r\n\x1a\n0000"


def raw(behaviour: str, *arguments: object) -> list[str]:
    return [sys.executable, str(HERE / "raw_server.py"), behaviour, *map(str, arguments)]


@asynccontextmanager
async def serving_http() -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await anyio.open_process([*RICH, "http", str(port)], stdout=None, stderr=None)
    try:
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                break
            except OSError:
                assert process.returncode is None
                await anyio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


async def until(holds: Any) -> None:
    while not holds():  # noqa: ASYNC110 - another process does it
        await anyio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture(params=["stdio", "http"])
async def rich(request: pytest.FixtureRequest) -> AsyncIterator[ToolServer]:
    if request.param == "stdio":
        async with connect("rich", command=[*RICH, "stdio"], trust=True) as server:
            yield server
    else:
        async with serving_http() as url, connect("rich", url=url, trust=True) as server:
            yield server


async def test_what_well_behaved_servers_send_is_kept(rich: ToolServer, tmp_path: Path) -> None:
    async with Session(rich.tools, policy=OPEN) as session:
        warm = await session.call("rich__weather", {"city": "Rome"})
        assert warm.value == {"city": "Rome", "degrees": 21.5}
        content = (await session.call("rich__everything")).value
        assert content[0] == "hello"
        assert content[1] == Image(PNG, "image/png")
        assert isinstance(content[2], ArtifactRef)
        assert content[2].media_type == "audio/wav"
        assert await session.artifacts.read(content[2]) == b"\x00\x01"
        assert content[3] == {"resource": "note://1", "media_type": "text/plain", "text": "a note"}
        assert await session.artifacts.read(content[4]["content"]) == b"\x00\x01"
        assert content[5] == {"resource_link": "file:///c.txt", "name": "c.txt", "media_type": "text/plain"}
        failed = await session.call("rich__fails", {"why": "the moon"})
        assert failed.kind == "execution_error"
        assert "the moon" in failed.message
        assert (await session.call("rich__works", {"steps": 3})).value == {"result": "done"}
    shown = "".join(event.data["text"] for event in session.trace if event.type == "call_output")
    assert [f"step {step}" in shown for step in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize("rich", ["http"], indirect=True)  # over stdio, a deadline is passed on the same way, below
async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(rich: ToolServer, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    async with Session(rich.tools, policy=OPEN) as session:
        task = asyncio.create_task(session.call("rich__waits", {"marker": str(marker)}))
        await until(lambda: marker.exists() and marker.read_text() == "waiting")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: marker.read_text() == "cancelled")
        assert (await session.call("rich__works", {"steps": 1})).ok


async def test_a_call_that_times_out_is_cancelled_at_the_server(tmp_path: Path) -> None:
    command = raw("Silent", tmp_path)
    async with connect("raw", command=command, timeout=0.5) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo")).kind == "timeout"
        await until((tmp_path / "cancelled").exists)
        assert (tmp_path / "called").exists(), "the server takes one message after the other"


async def test_annotations_of_a_trusted_server_give_risk() -> None:
    async with connect("raw", command=raw("Annotated"), trust=True) as server:
        found = {tool.name: (tool.risk, tool.effects) for tool in server.tools}
        assert found["raw__looks"] == ("safe", {"reads"})
        assert found["raw__notes"] == ("safe", {"reads", "writes"})
        assert found["raw__silent"] == found["raw__wrong"] == ("high", {"reads", "writes", "reaches_out"})
        async with Session(server.tools, approver=deny_all) as session:
            assert (await session.call("raw__looks")).ok
            assert (await session.call("raw__silent")).kind == "user_denied"


async def test_tools_of_a_server_that_is_not_trusted_ask() -> None:
    async with connect("raw", command=raw("Annotated")) as server:
        assert {tool.risk for tool in server.tools} == {"high"}
        async with Session(server.tools, approver=deny_all) as session:
            assert (await session.call("raw__looks")).kind == "user_denied"
        async with Session(server.tools, approver=approve_all) as session:
            assert (await session.call("raw__looks")).ok


async def test_off_shape_arguments_are_repaired_or_bounced_before_they_are_sent() -> None:
    async with connect("raw", command=raw("Numbers")) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo", '{"text": "2"}')).value == "2"
        assert (await session.call("raw__echo", "{}")).kind == "invalid_args"
        assert (await session.call("raw__echo", "[1]")).kind == "invalid_args"


async def test_all_pages_of_a_list_are_read() -> None:
    async with connect("raw", command=raw("Pages")) as server:
        assert [tool.name for tool in server.tools] == ["raw__tool_0", "raw__tool_1", "raw__tool_2"]
        assert server.warnings == []


@pytest.mark.parametrize(
    ("behaviour", "said"), [("SameCursor", "repeats a page"), ("NewCursors", "has no end in sight")]
)
async def test_a_list_without_end_is_cut(behaviour: str, said: str) -> None:
    async with connect("raw", command=raw(behaviour)) as server:
        assert said in server.warnings[-1]


async def test_a_crashed_server_is_unavailable_and_then_started_again() -> None:
    async with connect("raw", command=raw("Crashes")) as server, Session(server.tools, policy=OPEN) as session:
        died = await session.call("raw__echo", {"text": "die"})
        assert died.kind == "unavailable"
        assert "exit code 3" in died.message
        assert "the last words" in died.message
        assert "the last words" in server.stderr
        assert (await session.call("raw__echo", {"text": "again"})).value == "again"


async def test_a_server_that_crashes_again_and_again_is_waited_for_longer_and_longer() -> None:
    async with connect("raw", command=raw("Crashes")) as server, Session(server.tools, policy=OPEN) as session:
        for number in range(len(MCP_RESTART_WAITS)):
            result = await session.call("raw__echo", {"text": "die", "n": number})
            assert result.kind == "unavailable"
            if "is started again in" in result.message:
                break
        assert number == 3  # twice it was started again before that
        begun = anyio.current_time()
        assert (await session.call("raw__echo", {"text": "again"})).kind == "unavailable"
        assert anyio.current_time() - begun < MCP_RESTART_WAITS[number]  # it did not wait


async def test_a_server_that_does_not_start_is_unavailable_with_its_last_words() -> None:
    with pytest.raises(Unavailable, match=r"exit code 1.*no key was given"):
        async with connect("raw", command=raw("DiesAtOnce")):
            pass
    with pytest.raises(Unavailable, match="no-such-program"):
        async with connect("raw", command=["no-such-program"]):
            pass
    with pytest.raises(Unavailable, match="connect"):
        async with connect("raw", url="http://127.0.0.1:1/mcp"):
            pass


async def test_nothing_of_a_server_is_left_when_it_is_closed() -> None:
    async with connect("raw", command=raw("LeavesChildren")) as server, Session(server.tools, policy=OPEN) as session:
        child = int((await session.call("raw__echo")).value)
        assert is_alive(child)
    assert not is_alive(child)


async def test_a_connection_that_is_cancelled_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    command = ["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 3600"]
    with anyio.move_on_after(60) as limit:
        async with anyio.create_task_group() as group:

            async def work() -> None:
                async with connect("raw", command=command):
                    pass

            group.start_soon(work)
            await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            group.cancel_scope.cancel()
    assert not limit.cancelled_caught
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_a_command_has_the_usual_environment_and_not_this_process_s_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-live")
    command = raw("Environment")
    async with (
        connect("raw", command=command, env={"MODE": "test"}) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        seen = json.loads((await session.call("raw__echo")).value)
    assert seen["cwd"] == os.getcwd()
    assert seen["env"]["MODE"] == "test"
    assert seen["env"]["PATH"] == os.environ["PATH"]
    assert "SECRET_KEY" not in seen["env"]


async def test_a_server_can_run_in_a_sandbox_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text((HERE / "raw_server.py").read_text())
    async with open_sandbox("jail", workspace=tmp_path) as sandbox:
        command = ["python3", str(program), "Environment"]
        async with (
            connect("raw", command=command, sandbox=sandbox) as server,
            Session(server.tools, policy=OPEN) as session,
        ):
            seen = json.loads((await session.call("raw__echo")).value)
    assert seen["env"].get("HOME") == "/home/sandbox"
    assert seen["home"] != sorted(os.listdir("/"))
    with pytest.raises(Unavailable, match="gone"):  # there is no such file in a workspace of its own
        async with connect("raw", command=command, sandbox="jail"):
            pass


async def test_a_changed_definition_asks_again() -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision.approve()

    pins: dict[str, str] = {}
    async with connect("raw", command=raw("Changes"), pins=pins) as server:
        policy = Policy(mode="open")
        async with Session(server.tools, policy=policy, approver=approver) as session:
            assert (await session.call("raw__echo", {"text": "change"})).value == "change"
            assert asked == []
            await until(lambda: len(server.tools) == 2)
            result = await session.call("raw__echo", {"text": "hello"})
            assert "has changed" in asked[0].reason
            assert "Send it to me." in asked[0].reason
            assert "Say it again." in asked[0].reason
            assert result.kind == "invalid_args"  # it was agreed to, and takes a number now
        async with Session(server.tools, policy=policy, approver=approver) as session:
            assert (await session.call("raw__echo", {"text": 7})).value == "7"
            assert len(asked) == 1
            assert (await session.call("raw__new", {"text": "x"})).ok
            assert "added this tool" in asked[1].reason


async def test_a_change_that_nobody_agrees_to_is_refused() -> None:
    async with connect("raw", command=raw("Changes")) as server:
        async with Session(server.tools, policy=OPEN) as session:
            await session.call("raw__echo", {"text": "change"})
            await until(lambda: len(server.tools) == 2)
            refused = await session.call("raw__echo", {"text": "hello"})
            assert refused.kind == "rejected"
        async with Session(server.tools, policy=OPEN, approver=deny_all) as session:
            assert (await session.call("raw__echo", {"text": 7})).kind == "user_denied"


async def test_pins_outlive_the_connection(tmp_path: Path) -> None:
    pins: dict[str, str] = {}
    description = tmp_path / "description"
    for text, kind in [("one", None), ("one", None), ("two", "rejected"), ("one", None)]:
        description.write_text(text)
        async with (
            connect("raw", command=raw("ChangesBetweenStarts", tmp_path), pins=pins) as server,
            Session(server.tools, policy=OPEN) as session,
        ):
            assert (await session.call("raw__echo", {"text": "x"})).kind == kind
    assert list(pins) == ["raw__echo"]


async def test_a_session_on_another_event_loop_can_call_a_server() -> None:
    async with connect("raw", command=raw("Plain")) as server:

        async def elsewhere() -> Any:
            async with Session(server.tools, policy=OPEN) as session:
                return (await session.call("raw__echo", {"text": "hi"})).value

        assert await anyio.to_thread.run_sync(lambda: asyncio.run(elsewhere())) == "hi"


async def test_mistakes_are_refused_where_they_are_made() -> None:
    for wrong in ("", "9lives", "a__b", "ends_", "with space", "é", "x" * 33):
        with pytest.raises(HandrailError, match="name of a server"):
            connect(wrong, command=["x"])
    for given in ({}, {"command": "x", "url": "http://x"}):
        with pytest.raises(HandrailError, match="either a command"):
            connect("ok", **given)
    for address in ("ftp://x", "http://", "http://x:port/", "http://x\n/", 7):
        with pytest.raises(HandrailError, match="http://"):
            connect("ok", url=address)  # type: ignore[arg-type]
    with pytest.raises(HandrailError, match="list of words"):
        connect("ok", command=[])


SECRET = "sk-5eeecret"


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"Authorization": f"Bearer {SECRET}\n"}},
        {"headers": {"Authorization": f"Bearer {SECRET}\r\nX-Other: 1"}},
        {"headers": {"Authorization": f"Bearer \u00e9{SECRET}"}},
        {"headers": {"Authorization": f" {SECRET}"}},
        {"headers": {f"Authorization: Bearer {SECRET}": "x"}},
        {"headers": {"Authorization": [SECRET]}},
        {"headers": f"Authorization: {SECRET}"},
        {"url": f"https://me:{SECRET}/@example.com/mcp"},
        {"url": f"htps://me:{SECRET}@example.com/mcp"},
        {"url": None, "command": ["x"], "env": {"KEY": [SECRET]}},
        {"url": None, "command": ["x"], "env": [SECRET]},
    ],
)
def test_a_mistake_in_what_may_be_secret_is_refused_at_once_and_not_repeated(given: dict[str, Any]) -> None:
    with pytest.raises(HandrailError, match="server ok") as refused:
        connect("ok", **{"url": "https://example.com/mcp", **given})
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    for named in ("headers", "env"):
        for key in given.get(named, {}) if isinstance(given.get(named), dict) else ():
            assert key.partition(":")[0] in str(refused.value)


def test_a_header_may_have_every_character_that_can_be_sent() -> None:
    connect("ok", url="https://example.com", headers={"X-Every_1": "Bearer a b\tc~!", "Empty": ""})


def test_what_a_server_is_shown_as_has_no_secrets() -> None:
    url = f"https://me:{SECRET}@example.com:8443/{SECRET}/mcp?key={SECRET}#{SECRET}"
    server = connect("ok", url=url, headers={"Authorization": SECRET})
    assert repr(server) == "<ToolServer ok at https://example.com:8443: 0 tools>"
    assert SECRET not in repr(connect("ok", command=["run", SECRET], env={"KEY": SECRET}))


async def test_a_command_starts_in_the_directory_that_is_given(tmp_path: Path) -> None:
    async with (
        connect("raw", command=raw("Environment"), cwd=str(tmp_path)) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        assert json.loads((await session.call("raw__echo")).value)["cwd"] == str(tmp_path)
    with pytest.raises(Unavailable, match="nowhere"):
        async with connect("raw", command=raw("Environment"), cwd=f"{tmp_path}/nowhere"):
            pass
