"""Calls inside calls end at a limit, with an answer that the model can read."""

import sys

import pytest

from handrail import Context, Result, Session, run_sync, tool
from handrail.contract.limits import CALL_DEPTH

pytestmark = pytest.mark.anyio


@tool
async def again(left: int, context: Context) -> str:
    """Call itself."""
    return await deeper("again", left, context)


@tool
def again_in_a_thread(left: int, context: Context) -> str:
    """Call itself, in a thread."""
    return run_sync(deeper, "again_in_a_thread", left, context)


@tool
async def ping(left: int, context: Context) -> str:
    """Call pong."""
    return await deeper("pong", left, context)


@tool
async def pong(left: int, context: Context) -> str:
    """Call ping."""
    return await deeper("ping", left, context)


async def deeper(name: str, left: int, context: Context) -> str:
    if left <= 1:
        return "the end"
    result: Result = await context.use(name, {"left": left - 1})
    return str(result.value if result.ok else result.message)


@pytest.mark.parametrize("name", ["again", "again_in_a_thread", "ping"])
async def test_a_tool_that_never_ends_calling_is_told_the_limit(name: str) -> None:
    async with Session([again, again_in_a_thread, ping, pong]) as session:
        result = await session.call(name, {"left": 1_000_000})
    assert f"the limit is {CALL_DEPTH}" in result.value
    assert "A tool that calls itself needs an end" in result.value
    ended = [event.data for event in session.trace if event.type == "call_ended"]
    assert len(ended) == CALL_DEPTH + 1
    assert [data["kind"] for data in ended].count("rejected") == 1
    assert "RecursionError" not in str(ended)


@pytest.mark.parametrize("name", ["again", "again_in_a_thread", "ping"])
async def test_calls_up_to_the_limit_are_run(name: str) -> None:
    async with Session([again, again_in_a_thread, ping, pong]) as session:
        assert (await session.call(name, {"left": CALL_DEPTH})).value == "the end"


async def test_the_limit_comes_before_pythons_own_even_deep_in_a_program() -> None:
    async def below(frames: int) -> Result:
        if frames:
            return await below(frames - 1)
        return await session.call("again", {"left": 1_000_000})

    async with Session([again]) as session:
        result = await below(sys.getrecursionlimit() // 3)
    assert f"the limit is {CALL_DEPTH}" in result.value


async def test_calls_one_after_the_other_are_not_deep() -> None:
    async with Session([again]) as session:
        for number in range(3 * CALL_DEPTH):
            assert (await session.call("again", {"left": 1 + number % 2})).value == "the end"
