"""Limits end a block without an exception, nest, and stand still while any pause is open."""

import asyncio
import time
from contextlib import ExitStack

import anyio
import anyio.lowlevel
import pytest

from handrail import Budget, Context, Session, tool
from handrail.clock import CallClock
from tests.journeys.evidence import endings

pytestmark = pytest.mark.anyio
LONG = 30.0


async def test_a_limit_ends_its_block_without_an_exception_and_says_so() -> None:
    clock = CallClock()
    with clock.limit(0.02) as limit:
        await anyio.sleep(LONG)
    assert limit.passed
    assert limit.seconds == 0.02
    with clock.limit(LONG) as kept:
        await anyio.sleep(0)  # noqa: ASYNC115
    assert not kept.passed
    assert clock.limits == []


async def test_work_that_blocks_past_its_limit_is_ended_where_it_first_waits() -> None:
    reached: list[str] = []
    with CallClock().limit(0.02) as limit:
        time.sleep(0.05)
        reached.append("waits")
        await anyio.sleep(LONG)
        reached.append("goes on")
    assert (limit.passed, reached) == (True, ["waits"])


async def test_work_that_never_waits_sets_no_timer_and_work_that_waits_sets_one() -> None:
    timers: list[float] = []
    loop = asyncio.get_running_loop()
    call_at = loop.call_at
    loop.call_at = lambda when, *rest, **more: timers.append(when) or call_at(when, *rest, **more)  # type: ignore[assignment, method-assign, func-returns-value]
    for _ in range(3):
        with CallClock().limit(LONG):
            pass
    assert timers == []
    with CallClock().limit(LONG):
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
    assert len(timers) == 1


async def test_of_two_nested_limits_the_shorter_ends_what_it_stands_around() -> None:
    clock = CallClock()
    after_inner = False
    with clock.limit(LONG) as outer:
        with clock.limit(0.02) as inner:
            await anyio.sleep(LONG)
        after_inner = True
    assert (inner.passed, outer.passed, after_inner) == (True, False, True)
    with clock.limit(0.02) as outer, clock.limit(LONG) as inner:
        await anyio.sleep(LONG)
    assert (inner.passed, outer.passed) == (False, True)


async def test_a_pause_stops_every_limit_of_the_clock_and_of_those_around_it() -> None:
    around = CallClock()
    clock = CallClock(around)
    reached: list[str] = []
    with around.limit(0.05) as outer, clock.limit(0.05) as inner:
        with clock.pause():
            await anyio.sleep(0.15)
            reached.append("after the pause")
        reached.append("before the rest")
        await anyio.sleep(LONG)
    assert reached == ["after the pause", "before the rest"]
    assert inner.passed or outer.passed


async def test_a_pause_around_does_not_stop_what_is_inside_of_it() -> None:
    around = CallClock()
    clock = CallClock(around)
    with around.pause(), clock.limit(0.02) as limit:
        await anyio.sleep(LONG)
    assert limit.passed


async def test_time_stands_still_until_the_last_of_several_pauses_ends() -> None:
    clock = CallClock()
    first, second = anyio.Event(), anyio.Event()
    reached: list[str] = []

    async def asked(answered: anyio.Event) -> None:
        with clock.pause():
            await answered.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(asked, first)
        group.start_soon(asked, second)
        await anyio.sleep(0.01)
        with clock.limit(0.05) as limit:
            with clock.pause(), clock.pause():
                pass
            await anyio.sleep(0.1)
            reached.append("both asked")
            first.set()
            await anyio.sleep(0.1)
            reached.append("one asked")
            second.set()
            await anyio.sleep(LONG)
    assert reached == ["both asked", "one asked"]
    assert limit.passed
    assert not clock.paused


async def test_a_limit_that_begins_during_a_pause_begins_to_run_after_it() -> None:
    clock = CallClock()
    with clock.pause(), clock.limit(0.02) as held:
        await anyio.sleep(0.06)
    assert not held.passed
    with ExitStack() as held_open:
        held_open.enter_context(clock.pause())
        with clock.limit(0.03) as limit:
            await anyio.sleep(0.06)
            held_open.close()
            await anyio.sleep(LONG)
    assert limit.passed


async def test_now_counts_only_what_was_not_paused() -> None:
    clock = CallClock()
    assert clock.now() == 0.0
    clock.start()
    await anyio.sleep(0.02)
    with clock.pause():
        held = clock.now()
        await anyio.sleep(0.2)
        assert clock.now() == held
    assert held <= clock.now() < held + 0.15
    assert held >= 0.015


async def test_a_body_sees_its_own_clock_run_and_can_limit_parts_of_its_work() -> None:
    async def careful(context: Context) -> list[float | bool]:
        with context.clock.limit(0.02) as limit:
            await anyio.sleep(LONG)
        return [limit.passed, context.clock.now()]

    async with Session([careful]) as session:
        passed, now = (await session.call("careful")).value
    assert passed is True
    assert 0.015 <= now < 10


async def test_a_pause_inside_a_call_holds_the_deadlines_of_all_calls_around_it_and_the_budget() -> None:
    @tool(timeout=0.4)
    async def asks(context: Context) -> str:
        with context.clock.pause():
            await anyio.sleep(1.1)
        return "answered"

    @tool(timeout=0.4)
    async def outer(context: Context, name: str) -> str:
        return (await context.use(name)).value

    @tool
    async def only_slow() -> str:
        await anyio.sleep(LONG)
        return "never"

    async with Session([asks, outer, only_slow], budget=Budget(seconds=1.0)) as session:
        assert (await session.call("outer", {"name": "asks"})).value == "answered"
        timed_out = await session.call("outer", {"name": "only_slow"})  # the control: without a pause it runs out
    assert not timed_out.ok
    assert timed_out.kind == "timeout"
    assert [event.data["kind"] for event in endings(session).values()] == [None, None, "cancelled", "timeout"]


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-12])
async def test_a_limit_of_no_time_at_all_passes_at_once(seconds: float) -> None:
    clock = CallClock()
    clock.start()
    with anyio.fail_after(30):
        with clock.limit(seconds) as limit:
            await anyio.sleep_forever()
    assert limit.passed
