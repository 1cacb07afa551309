"""A clock and those around it stand still together, for every overlap of pauses, and run on from where they were."""

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Context, Decision, Policy, Sandbox, Session, tool
from handrail.clock import CallClock
from handrail.drivers.memory import Script
from handrail.testing import HeldApprovals, MemoryDriver
from tests.gates.asked import until

pytestmark = pytest.mark.anyio


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=20))
@settings(max_examples=100, deadline=None)
def test_however_pauses_overlap_a_clock_runs_exactly_when_none_is_open_in_it_or_below(
    steps: list[tuple[int, bool]],
) -> None:
    async def story() -> None:
        run = CallClock()
        outer = CallClock(run)
        inner = CallClock(outer)
        clocks = [run, outer, inner]
        for clock in clocks:
            clock.start()
        open_pauses: list[tuple[int, object]] = []
        with run.limit(100) as a, outer.limit(100) as b, inner.limit(100) as c:
            await anyio.lowlevel.checkpoint()  # limits have deadlines when the work has waited
            for at, opens in steps:
                if opens:
                    pause = clocks[at].pause()
                    pause.__enter__()
                    open_pauses.append((at, pause))
                elif open_pauses:
                    open_pauses.pop(at % len(open_pauses))[1].__exit__(None, None, None)  # type: ignore[attr-defined]
                for level, (clock, limit) in enumerate(zip(clocks, (a, b, c), strict=True)):
                    held = any(below >= level for below, _ in open_pauses)
                    assert clock.paused is held
                    assert (limit.scope.deadline == float("inf")) is held
            for _, pause in open_pauses:
                pause.__exit__(None, None, None)  # type: ignore[attr-defined]
            left = [limit.scope.deadline - anyio.current_time() for limit in (a, b, c)]
            assert all(90 < seconds <= 100.01 for seconds in left)
        assert not any(clock.paused or clock.limits for clock in clocks)

    anyio.run(story)


async def test_a_limit_that_has_passed_stays_passed_though_a_pause_begins() -> None:
    clock = CallClock()
    with clock.limit(0.01) as limit:
        try:
            await anyio.sleep(30)
        finally:
            with clock.pause():
                pass
    assert limit.passed


async def test_a_pause_that_leaves_the_run_out_leaves_only_the_run_out() -> None:
    run = CallClock()
    outer = CallClock(run)
    inner = CallClock(outer)
    with inner.pause(run=False):
        assert [clock.paused for clock in (run, outer, inner)] == [False, True, True]
        with inner.pause():
            assert run.paused
        assert not run.paused
    assert not inner.paused


async def test_the_silence_of_a_command_is_not_counted_while_its_call_asks_somebody() -> None:
    held = HeldApprovals()
    driver = MemoryDriver(commands={"slow": Script(stdout="begun", delay=0.5)})

    @tool(effects=["writes"])
    async def save() -> str:
        return "saved"

    @tool(timeout=None)
    async def runs(context: Context) -> list[str]:
        found: list[str] = []

        async def command() -> None:
            done = await context.sandbox.run("slow", timeout=0.3, idle_timeout=0.2)
            found.append(done.ended_by)

        async with anyio.create_task_group() as group:
            group.start_soon(command)
            group.start_soon(context.use, "save")
        return found

    session = Session([save, runs], sandbox=Sandbox(driver), policy=Policy(ask=["save"]), approver=held)
    async with session, anyio.create_task_group() as group:
        results: list[object] = []

        async def call() -> None:
            results.append((await session.call("runs")).value)  # type: ignore[union-attr]

        group.start_soon(call)
        request = await held.next()
        await anyio.sleep(0.6)
        held.answer(request.id, Decision.approve())
        await until(lambda: bool(results))
        control = (await Sandbox(driver).run("slow", timeout=0.3, idle_timeout=0.2)).ended_by
    assert (results, control) == ([["exit"]], "idle")
