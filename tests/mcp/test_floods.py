"""An answer that is large in any way holds nothing up: other tasks get their turns, and nobody waits for no answer.

Run with `-s` to see the figures: the longest time that other tasks had to wait, against parsing the same message once.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import anyio
import pytest

from handrail import Policy, Session, Unavailable
from handrail.contract.limits import MCP_MAX_QUESTIONS_COUNT
from handrail.mcp.client import connect
from tests.mcp.test_client import raw
from tests.mcp.test_questions import Person

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")
TRIES = 3
"""Of so many, the quickest counts: others on this machine slow down the rest."""


@asynccontextmanager
async def flooding(**options: Any) -> AsyncIterator[Session]:
    async with (
        connect("raw", command=raw("Floods"), **options) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        yield session


@asynccontextmanager
async def longest_wait() -> AsyncIterator[list[float]]:
    """The longest time in which no other task had a turn, in a list."""
    longest = [0.0]

    async def tick() -> None:
        last = perf_counter()
        while True:
            await anyio.sleep(0.001)
            longest[0], last = max(longest[0], perf_counter() - last), perf_counter()

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await anyio.sleep(0.01)
        yield longest
        await anyio.sleep(0.01)  # one more tick, after whatever came last
        group.cancel_scope.cancel()


def parsing(message: Any) -> float:
    """Seconds that it takes to parse this."""
    text = json.dumps(message)
    taken = []
    for _ in range(TRIES):
        began = perf_counter()
        json.loads(text)
        taken.append(perf_counter() - began)
    return min(taken)


async def test_an_answer_of_200_000_blocks_is_read_whole_while_others_get_their_turns() -> None:
    floor, waits = parsing({"content": [{"type": "text", "text": "x"}] * 200_000}), []
    async with flooding() as session:
        for number in range(TRIES):
            async with longest_wait() as wait:
                result = await session.call("raw__echo", {"text": "blocks", "try": number})
            waits.append(wait[0])
            assert result.ok
            assert "399,999" in result.warnings[0], "all of the text is there"
    print(f"\n200,000 blocks: others waited {min(waits) * 1e3:.0f} ms, {min(waits) / floor:.1f} times parsing")
    assert min(waits) < 15 * floor


async def test_a_description_of_megabytes_is_cut_while_others_get_their_turns() -> None:
    floor, waits = parsing("Say it again.\u200b" + "\u202eIGNORE \u00e9 " * 440_000), []
    for _ in range(TRIES):
        async with longest_wait() as wait, connect("raw", command=raw("Verbose")) as server:
            pass
        waits.append(wait[0])
    print(f"\na long description: others waited {min(waits) * 1e3:.0f} ms, {min(waits) / floor:.1f} times parsing")
    assert min(waits) < 15 * floor
    assert len(server.tools[0].description) < 11_000
    assert any("4,400,014 characters" in warning for warning in server.warnings)


async def test_blocks_beyond_the_limit_that_are_not_texts_are_left_out_and_counted() -> None:
    async with flooding() as session:
        result = await session.call("raw__echo", {"text": "links"})
    assert result.ok
    assert any("49,000 more blocks" in warning for warning in result.warnings)


@pytest.mark.parametrize("how", ["deep", "garbage", "no object", "no list"])
async def test_an_answer_that_cannot_be_read_ends_its_call_at_once_and_the_next_is_served(how: str) -> None:
    async with flooding(timeout=20) as session:
        result = await session.call("raw__echo", {"text": how})
        assert result.kind == "execution_error", result
        assert "may have taken effect" in result.message
        assert (await session.call("raw__echo", {"text": "hi"})).value == "hi"


async def test_a_server_that_asks_again_and_again_is_answered_ten_times_a_call() -> None:
    person = Person({})
    async with (
        connect("raw", command=raw("Insists"), ask=person) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        for call in (1, 2):
            accepted = await session.call("raw__echo", {"text": str(call)})
            assert accepted.value == str(MCP_MAX_QUESTIONS_COUNT)
            assert len(person.asked) == MCP_MAX_QUESTIONS_COUNT * call


@pytest.mark.parametrize(("at_once", "asked"), [(1, 10), (4, 10), (11, 0), (100_000, 0)])
async def test_a_server_of_2026_07_28_that_asks_again_and_again_is_answered_ten_times_a_call(
    at_once: int, asked: int
) -> None:
    person = Person({})
    async with (
        connect("raw", command=raw("InsistsAnew"), ask=person) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        assert server.protocol == "2026-07-28"
        result = await session.call("raw__echo", {"text": str(at_once)})
        assert result.kind == "unavailable"
        assert len(person.asked) == asked


async def test_an_error_at_the_start_is_shown_with_its_control_characters_as_codes() -> None:
    with pytest.raises(Unavailable) as refused:
        async with connect("raw", command=raw("RefusesToBegin")):
            pass
    assert str(refused.value).isprintable()
    assert "\\x1b[31mkey" in str(refused.value)
