"""A run is held to its calls, refusals and seconds; a refused call gets its place back."""

from typing import Any

import anyio
import pytest

from handrail import Budget, Call, Failure, Session, ToolFailed, tool
from tests.journeys.evidence import endings

pytestmark = pytest.mark.anyio


async def trivial(n: int) -> int:
    return n


def kinds(session: Session) -> list[str | None]:
    return [event.data["kind"] for event in endings(session).values()]


async def test_the_501st_call_of_a_run_is_answered_and_not_run() -> None:
    ran = 0

    async def counts(n: int) -> int:
        nonlocal ran
        ran += 1
        return n

    async with Session([counts]) as session:
        for n in range(500):
            assert (await session.call("counts", {"n": n})).ok
        result = await session.call("counts", {"n": 500})
        assert not result.ok
        assert result.kind == "budget_exhausted"
        assert "500 calls" in result.message
        assert ran == 500
        session.begin_run()  # a new user turn
        assert (await session.call("counts", {"n": 1})).ok
    assert kinds(session).count("budget_exhausted") == 1


async def test_the_51st_refusal_is_answered_as_the_end_of_the_budget() -> None:
    async with Session([trivial]) as session:
        for n in range(50):
            result = await session.call("trivial", {"n": f"not a number {n}"})
            assert not result.ok
            assert result.kind == "invalid_args"
        last = await session.call("trivial", {"n": "not a number"})
        assert not last.ok
        assert last.kind == "budget_exhausted"
        assert "refused" in last.message
        session.begin_run()
        assert (await session.call("trivial", {"n": 1})).ok


@pytest.mark.parametrize(("arguments", "name"), [('{"n": ', "trivial"), ({"n": "x"}, "trivial"), ("{}", "missing")])
async def test_a_refused_call_gets_its_place_back(arguments: Any, name: str) -> None:
    async with Session([trivial], budget=Budget(calls=2)) as session:
        for _ in range(3):
            assert not (await session.call(name, arguments)).ok
        assert [(await session.call("trivial", {"n": n})).ok for n in range(3)] == [True, True, False]


async def test_a_call_that_failed_in_its_body_keeps_its_place() -> None:
    @tool
    def fails(n: int) -> None:
        raise ValueError(n)

    async with Session([fails], budget=Budget(calls=2)) as session:
        for n in range(3):
            await session.call("fails", {"n": n})
    assert kinds(session) == ["execution_error", "execution_error", "budget_exhausted"]


async def test_calls_that_arrive_together_cannot_share_a_place() -> None:
    most = running = 0

    async def waits(n: int) -> int:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await anyio.sleep(0.02)
        running -= 1
        return n

    async with Session([waits], budget=Budget(calls=3)) as session:
        results = await session.call_all([Call(f"c{n}", "waits", {"n": n}) for n in range(20)])
    assert [result.ok for result in results] == [True] * 3 + [False] * 17
    assert most == 3
    assert kinds(session).count("budget_exhausted") == 17


async def test_seconds_are_counted_from_the_first_call_and_anew_with_every_run() -> None:
    async def waits() -> None:
        await anyio.sleep(0.06)

    async with Session([waits], budget=Budget(seconds=0.05)) as session:
        await anyio.sleep(0.06)  # before the first call no time runs
        assert (await session.call("waits")).ok
        result = await session.call("waits")
        assert not result.ok
        assert result.kind == "budget_exhausted"
        assert "0.05 s" in result.message
        session.begin_run()
        assert (await session.call("waits")).ok


async def test_a_script_has_a_budget_of_its_own_inside_the_runs() -> None:
    async with Session([trivial], budget=Budget(script_calls=2)) as session:
        made = [await session.call("trivial", {"n": n}, origin="script", inside="one") for n in range(3)]
        other = await session.call("trivial", {"n": 9}, origin="script", inside="two")
        direct = await session.call("trivial", {"n": 10})
    assert [result.ok for result in (*made, other, direct)] == [True, True, False, True, True]
    assert "script" in made[2].message


async def test_no_limit_means_none_and_zero_means_none_at_all() -> None:
    async with Session([trivial], budget=Budget(calls=None, refusals=None)) as session:
        for n in range(600):
            assert (await session.call("trivial", {"n": n})).ok
        for n in range(60):
            result = await session.call(f"missing{n}")
            assert not result.ok
            assert result.kind == "tool_not_found"
    async with Session([trivial], budget=Budget(calls=0)) as session:
        assert (await session.call("trivial", {"n": 1})).kind == "budget_exhausted"


async def test_a_refusal_that_a_body_gives_counts_as_one() -> None:
    async def denies() -> None:
        raise ToolFailed(Failure("user_denied", "the person said no"))

    async with Session([denies], budget=Budget(calls=1, refusals=2)) as session:
        for _ in range(3):
            await session.call("denies")
    assert kinds(session) == ["user_denied", "user_denied", "budget_exhausted"]
