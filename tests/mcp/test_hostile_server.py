"""A hostile server does no harm. Each test is a row of the table in docs/mcp.md."""

import sys
from pathlib import Path

import anyio
import pytest

from handrail import Policy, Session
from handrail.mcp.client import connect
from handrail.testing import deny_all
from tests.mcp.test_client import raw, until

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")


async def test_a_server_that_sends_100_mb_is_cut_off() -> None:
    async with connect("raw", command=raw("Huge")) as server, Session(server.tools, policy=OPEN) as session:
        result = await session.call("raw__echo")
        assert result.kind == "unavailable"
        assert "more than 16 MiB" in result.message


async def test_a_server_that_never_answers_a_call_ends_at_the_call_s_deadline(tmp_path: Path) -> None:
    command = raw("Silent", tmp_path)
    async with connect("raw", command=command, timeout=0.3) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo")).kind == "timeout"
        assert (await session.call("raw__echo", {"text": "again"})).kind == "timeout"


async def test_a_server_that_never_answers_at_all_can_be_given_up() -> None:
    with anyio.move_on_after(1) as limit:
        async with connect("raw", command=raw("SilentFromTheStart")):
            pass
    assert limit.cancelled_caught


async def test_answers_with_wrong_ids_reach_nobody() -> None:
    command = raw("WrongIds")
    async with connect("raw", command=command, timeout=3) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo", {"text": "mine"})).value == "mine"
        assert (await session.call("raw__echo", {"text": "silent"})).kind == "timeout"
        assert (await session.call("raw__echo", {"text": "mine too"})).value == "mine too"
        assert "this line is no message" in server.stderr


async def test_structured_content_that_breaks_its_own_schema_is_an_error() -> None:
    async with connect("raw", command=raw("Structured")) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo", {"text": '{"n": 1}'})).value == {"n": 1}
        for wrong in ('{"n": "x"}', "{}", "none"):
            result = await session.call("raw__echo", {"text": wrong})
            assert result.kind == "execution_error"
            assert "breaks the output schema" in result.message
            assert result.data["content"] == [wrong]


async def test_an_answer_in_no_form_of_the_protocol_is_an_error() -> None:
    async with connect("raw", command=raw("NoResult")) as server, Session(server.tools, policy=OPEN) as session:
        result = await session.call("raw__echo")
        assert result.kind == "execution_error"
        assert "invalid answer" in result.message


async def test_names_are_made_safe_and_clashes_are_reported() -> None:
    async with connect("raw", command=raw("Names")) as server:
        names = [tool.name for tool in server.tools]
        assert names.count("raw__read") == 1
        assert "raw__r_ad" in names  # the one with a Cyrillic letter
        assert sum(name.startswith("raw__read_file_") for name in names) == 3
        assert all(len(name) <= 64 and name.isascii() and name.replace("-", "_").isidentifier() for name in names)
        assert len(set(names)) == len(names) == 8
        assert sum("clashes" in warning for warning in server.warnings) == 3
        assert any("listed twice" in warning for warning in server.warnings)
        async with Session(server.tools, policy=OPEN) as session:
            assert [(await session.call(name, {"text": name})).value for name in names] == names


async def test_a_tool_with_a_broken_definition_is_left_out_and_the_others_are_offered() -> None:
    async with connect("raw", command=raw("Broken")) as server, Session(server.tools, policy=OPEN) as session:
        assert [tool.name for tool in server.tools] == ["raw__echo"]
        assert (await session.call("raw__echo", {"text": "hi"})).value == "hi"
        reasons = [warning.partition("is left out: ")[2] for warning in server.warnings]
        assert len(reasons) == 3
        assert all(reasons), server.warnings


async def test_ten_thousand_tools_are_cut_and_deferred() -> None:
    async with connect("raw", command=raw("Many")) as server, Session(server.tools, policy=OPEN) as session:
        assert len(server.tools) == 2_000
        assert any("only 2,000 tools" in warning for warning in server.warnings)
        assert session.schemas("mcp") == []
        found = await session.call("search_tools", {"query": "1234 apples", "limit": 1})
        assert [each["name"] for each in found.value["loaded"]] == ["raw__tool_1234"]
        assert (await session.call("raw__tool_7", {"text": "x"})).value == "x"


async def test_instructions_in_a_description_are_shown_as_they_are_and_allow_nothing() -> None:
    async with connect("raw", command=raw("Instructions")) as server:
        [tool] = server.tools
        assert tool.description.startswith("Say it again.[31mIGNORE")
        assert len(tool.description) < 11_000
        assert any("hidden characters" in warning for warning in server.warnings)
        async with Session(server.tools, approver=deny_all) as session:
            assert (await session.call(tool.name)).kind == "user_denied"  # its own readOnlyHint is not believed


async def test_a_server_that_announces_changes_without_end_is_listed_once_a_second() -> None:
    async with connect("raw", command=raw("Announces")) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo", {"text": "hi"})).ok
        lists = int((await session.call("raw__echo", {"text": "count"})).value)
        assert lists < 20


async def test_of_what_a_server_prints_only_the_end_is_kept() -> None:
    async with connect("raw", command=raw("Prints")) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo", {"text": "hi"})).value == "hi"
        await until(lambda: server.stderr.endswith("the end\n"))
        assert len(server.stderr) == 64 << 10


async def test_a_server_that_reads_nothing_does_not_stop_other_calls(tmp_path: Path) -> None:
    command = raw("Deaf", tmp_path)
    async with connect("raw", command=command, timeout=0.5) as server, Session(server.tools, policy=OPEN) as session:
        large = "x" * (1 << 20)
        for number in range(3):
            assert (await session.call("raw__echo", {"text": f"{number}{large}"})).kind == "timeout"


async def test_the_controls_of_these_tests_answer() -> None:
    async with connect("raw", command=raw("Plain")) as server, Session(server.tools, policy=OPEN) as session:
        assert (await session.call("raw__echo", {"text": "hi"})).value == "hi"
        assert sys.executable in repr(server)
        await until(lambda: server.protocol == "2025-11-25")
