"""A run is held to its calls, refusals and seconds; a refused call gets its place back."""

import threading
from typing import Any

import anyio
import pytest

from handrail import Budget, Call, Failure, Sandbox, Session, ToolFailed, tool
from handrail.gates.lane import lane_of_sandbox
from handrail.testing import MemoryDriver
from tests.gates.asked import until
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
    async with Session([trivial], budget=Budget(seconds=0.5)) as session:
        await anyio.sleep(0.6)  # before the first call no time runs
        assert (await session.call("trivial", {"n": 1})).ok
        await anyio.sleep(0.6)
        result = await session.call("trivial", {"n": 2})
        assert not result.ok
        assert result.kind == "budget_exhausted"
        assert "0.5 s" in result.message
        session.begin_run()
        assert (await session.call("trivial", {"n": 3})).ok


async def test_a_call_that_runs_when_the_seconds_are_over_is_ended_as_budget_exhausted() -> None:
    state: list[str] = []

    async def naps() -> None:
        try:
            await anyio.sleep(60)
        finally:
            state.append("ended")

    async with Session([naps], budget=Budget(seconds=0.2)) as session:
        with anyio.fail_after(30):
            result = await session.call("naps")
    assert not result.ok
    assert (result.kind, result.retryable, state) == ("budget_exhausted", False, ["ended"])
    assert "0.2 s of this run are used up" in result.message
    assert kinds(session) == ["budget_exhausted"]


async def test_a_thread_that_runs_when_the_seconds_are_over_is_named_as_what_may_still_run() -> None:
    go = threading.Event()

    def works() -> None:
        go.wait(30)

    async with Session([works], budget=Budget(seconds=0.2)) as session:
        result = await session.call("works")
        go.set()
    assert not result.ok
    assert result.kind == "budget_exhausted"
    assert "may still be running" in result.message


async def test_a_call_that_waits_in_a_lane_when_the_seconds_are_over_is_ended_before_it_began() -> None:
    sandbox, go, ran = Sandbox(MemoryDriver()), anyio.Event(), []

    @tool(effects=["writes"], needs=["files"])
    async def holds() -> None:
        await go.wait()

    @tool(effects=["writes"], needs=["files"])
    async def waits() -> None:
        ran.append(1)

    async with (
        sandbox,
        Session([holds], sandbox=sandbox) as other,
        Session([waits], sandbox=sandbox, budget=Budget(seconds=0.2)) as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(other.call, "holds")
        await until(lambda: len(lane_of_sandbox(sandbox)) == 1)
        with anyio.fail_after(30):
            result = await session.call("waits")
        go.set()
    assert not result.ok
    assert (result.kind, ran, len(lane_of_sandbox(sandbox))) == ("budget_exhausted", [], 0)


async def test_a_deadline_that_comes_before_the_end_of_the_budget_is_a_timeout() -> None:
    @tool(timeout=0.1)
    async def naps() -> None:
        await anyio.sleep(60)

    async with Session([naps], budget=Budget(seconds=60)) as session:
        assert (await session.call("naps")).kind == "timeout"


async def test_a_script_has_a_budget_of_its_own_inside_the_runs() -> None:
    async with Session([trivial], budget=Budget(script_calls=2)) as session:
        made = [await session.call("trivial", {"n": n}, origin="script", parent="one") for n in range(3)]
        other = await session.call("trivial", {"n": 9}, origin="script", parent="two")
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
