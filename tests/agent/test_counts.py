"""A call and a round enter a bounded number of functions, of Python and of C."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from handrail import Agent, Budget, Call, Session, Turn, tool
from handrail.testing import ScriptedModel

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the bounds are counts of CPython 3.11"),
]
MAX_CALL = (120, 72)
MAX_ROUND = (170, 115)
"""Functions of Python, and of C, that one call and one round of one call may enter."""
UNLIMITED = Budget(calls=None)
TURNS = [Turn("", (Call(str(n), "add", f'{{"a": {n}, "b": 2}}'),), stop="tool_use") for n in range(300)]
Work = Callable[[int], Awaitable[None]]


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def calls(count: int) -> None:
    async with Session([add], budget=UNLIMITED) as session:
        for n in range(count):
            assert (await session.call("add", f'{{"a": {n}, "b": 2}}')).ok


async def rounds(count: int, **options: Any) -> None:
    lines = [*TURNS[:count], "done"]
    agent = Agent(ScriptedModel(lines), tools=[add], budget=UNLIMITED, rounds=count + 1, **options)
    async with agent:
        assert (await agent.run("go")).text == "done"


async def entered(work: Work, count: int) -> tuple[int, int]:
    """Functions of Python and of C that were entered while it ran."""
    seen = {"call": 0, "c_call": 0}

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in seen:
            seen[event] += 1

    sys.setprofile(note)
    try:
        await work(count)
    finally:
        sys.setprofile(None)
    return seen["call"], seen["c_call"]


async def each(work: Work) -> tuple[int, int]:
    """The same for one piece of work: the difference of 100 and 164 leaves the beginning and the end out."""
    await work(20)
    few, many = await entered(work, 100), await entered(work, 164)
    return round((many[0] - few[0]) / 64), round((many[1] - few[1]) / 64)


async def test_a_call_enters_few_functions() -> None:
    python, c = await each(calls)
    assert python > 50  # the control: they are counted
    assert (python, c) <= MAX_CALL
    assert c <= MAX_CALL[1]


async def test_a_round_enters_few_functions() -> None:
    python, c = await each(rounds)
    assert python <= MAX_ROUND[0]
    assert c <= MAX_ROUND[1]


async def test_a_round_with_secrets_would_be_found() -> None:
    """The control of the bounds: what a session without secrets does not pay for."""
    python, c = await each(lambda count: rounds(count, secrets=["a-secret-of-mine"]))
    assert python > MAX_ROUND[0]
    assert c > MAX_ROUND[1]


async def test_a_loop_without_steering_pays_for_none() -> None:
    with_steering, without = await each(rounds), await each(lambda count: rounds(count, steer=None))
    assert without[0] < with_steering[0]
