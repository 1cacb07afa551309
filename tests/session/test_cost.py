"""What a call costs does not grow with the calls before it: counted in function calls, not in seconds."""

import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from handrail import Agent, Budget, Call, Session
from handrail.testing import ScriptedModel, Turn

pytestmark = pytest.mark.anyio
UNLIMITED = Budget(calls=None, requests=None)


async def trivial(n: int) -> int:
    return n


async def steps(work: Callable[[], Awaitable[Any]]) -> int:
    """How many functions, of Python and of C, were entered while it ran."""
    entered = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return entered


async def test_the_800th_call_of_a_session_takes_as_many_steps_as_the_50th() -> None:
    cost: dict[int, int] = {}
    async with Session([trivial], budget=UNLIMITED) as session:
        for n in range(1, 802):
            if n in (50, 801):
                cost[n] = await steps(lambda n=n: session.call("trivial", {"n": n}))
            else:
                await session.call("trivial", {"n": n})
        grows = [await steps(lambda n=n: _scan(session, n)) for n in (50, 801)]
    assert cost[801] <= cost[50] * 1.1
    assert grows[1] > grows[0] * 5  # the control: work that scans what came before is noticed


async def _scan(session: Session, last: int) -> int:
    return sum(len(event.type) for event in session.trace[:last])


async def test_the_400th_round_of_an_agent_takes_as_many_steps_as_the_20th() -> None:
    seen: list[int] = []
    entered = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    def answer(messages: Any) -> Turn:
        seen.append(entered)
        return Turn("", (Call(f"c{len(seen)}", "trivial", {"n": len(seen)}),))

    agent = Agent(ScriptedModel([answer] * 401), tools=[trivial], budget=UNLIMITED, rounds=401)
    sys.setprofile(count)
    try:
        await agent.run("go")
    finally:
        sys.setprofile(None)
    rounds = [after - before for before, after in pairwise(seen)]
    early, late = sorted(rounds[10:30])[10], sorted(rounds[-20:])[10]
    assert early > 50  # the control: the rounds were counted
    assert late <= early * 1.1


async def test_the_last_rounds_of_a_full_context_take_as_many_steps_as_the_first() -> None:
    """Collapsing and summarising cost something from time to time; on average, a round costs the same."""
    seen: list[int] = []
    entered = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event in ("call", "c_call")

    async def large(n: int) -> str:
        return f"{n:04} " * 900

    class Small(ScriptedModel):
        window = 16_000
        max_tokens = 1_000

    def answer(messages: Any) -> Turn:
        seen.append(entered)
        return Turn("", (Call(f"c{len(seen)}", "large", {"n": len(seen)}),))

    agent = Agent(Small([answer] * 1_300), tools=[large], budget=UNLIMITED, rounds=1_201)
    sys.setprofile(count)
    try:
        await agent.run("go")
    finally:
        sys.setprofile(None)
    early, late = seen[600] - seen[300], seen[1_200] - seen[900]
    assert any(event.type == "summarised" for event in agent.session.trace)  # the control: the context was full
    assert late <= early * 1.25
