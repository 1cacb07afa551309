"""Servers that nobody here wrote, from npm, used through the client."""

from pathlib import Path

import pytest

import dev
from handrail import Image, Mount, Policy, Session, open_sandbox
from handrail.mcp import connect

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")


def program(name: str) -> list[str]:
    """What starts this server. Fails, naming Node, if it cannot be installed."""
    modules, missing = dev.node_modules(*dev.MCP_SERVERS)
    assert not missing, missing
    return ["node", str(modules / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js")]


async def test_the_filesystem_server_reads_and_writes_what_it_may(tmp_path: Path) -> None:
    async with connect("files", command=[*program("filesystem"), str(tmp_path)], trust=True) as server:
        assert server.warnings == []
        risks = {tool.name: tool.risk for tool in server.tools}
        assert (risks["files__read_text_file"], risks["files__write_file"]) == ("safe", "high")
        async with Session(server.tools, policy=OPEN) as session:
            file = str(tmp_path / "a.txt")
            assert (await session.call("files__write_file", {"path": file, "content": "hello"})).ok
            assert (await session.call("files__read_text_file", {"path": file, "head": "1"})).value[
                "content"
            ] == "hello"
            refused = await session.call("files__read_text_file", {"path": "/etc/passwd"})
            assert refused.kind == "execution_error"
            assert "Access denied" in refused.message


@pytest.mark.long
async def test_the_everything_server_sends_every_kind_of_content() -> None:
    async with (
        connect("all", command=[*program("everything"), "stdio"]) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        assert (await session.call("all__echo", {"message": "hi"})).value == "Echo: hi"
        assert "5" in (await session.call("all__get-sum", {"a": "2", "b": 3})).value
        picture = (await session.call("all__get-tiny-image")).value
        assert [isinstance(part, Image) for part in picture] == [False, True, False]
        weather = (await session.call("all__get-structured-content", {"location": "New York"})).value
        assert weather.keys() == {"temperature", "conditions", "humidity"}
        links = (await session.call("all__get-resource-links", {"count": 2})).value
        assert [part["resource_link"][:7] for part in links[1:]] == ["demo://"] * 2
        slow = {"duration": 1, "steps": 2}
        assert (await session.call("all__trigger-long-running-operation", slow)).ok
        shown = [event.data["text"] for event in session.trace if event.type == "call_output"]
        assert shown


@pytest.mark.long
async def test_the_memory_server_works_in_a_jail(tmp_path: Path) -> None:
    node, script = program("memory")
    mounts = [Mount(Path(script).parents[3])]
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}
    async with (
        open_sandbox("jail", workspace=tmp_path, mounts=mounts) as sandbox,
        connect("memory", command=[node, script], env=env, sandbox=sandbox) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        person = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
        assert (await session.call("memory__create_entities", {"entities": [person]})).ok
        found = await session.call("memory__search_nodes", {"query": "tea"})
        assert found.value["entities"][0]["name"] == "Ann"
    assert "likes tea" in (tmp_path / "memory.json").read_text()
