"""A cancelled caller ends the work and is recorded as cancelled, whenever it happens; never as ok."""

import asyncio
import threading
from collections.abc import Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint

from handrail import Call, Context, Result, Session, tool
from handrail.session.standard import STANDARD
from handrail.toolkit.gate import Gate, Next, Step
from tests.gates.asked import until
from tests.journeys.evidence import endings, events_of, only_ending

pytestmark = pytest.mark.anyio


async def test_a_call_that_is_cancelled_before_its_body_never_runs_it() -> None:
    ran: list[str] = []

    async def act() -> None:
        ran.append("x")

    async with Session([act]) as session:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.call("act")
        assert scope.cancelled_caught
        assert not ran
        assert (await session.call("act")).ok  # the control: not cancelled, it runs
    first, second = endings(session).values()
    assert ran == ["x"]
    assert (first.data["kind"], second.data["kind"]) == ("cancelled", None)


async def test_a_call_that_is_cancelled_in_a_gate_is_recorded_too() -> None:
    async def slow(step: Step, proceed: Next) -> Result:
        scope.cancel()
        await anyio.sleep(30)
        return await proceed(step)

    gates: Sequence[Gate] = (STANDARD[0], slow, *STANDARD[1:])
    async with Session([tool(name="act")(lambda: None)], gates=gates) as session:
        with anyio.CancelScope() as scope:
            await session.call("act")
    assert only_ending(session).data["kind"] == "cancelled"


async def test_a_body_that_is_cancelled_cleans_up_and_is_recorded() -> None:
    cleaned: list[str] = []

    async def act() -> None:
        try:
            scope.cancel()
            await anyio.sleep(30)
        finally:
            cleaned.append("x")

    async with Session([act]) as session:
        with anyio.CancelScope() as scope:
            await session.call("act")
    assert (scope.cancelled_caught, cleaned) == (True, ["x"])
    assert only_ending(session).data["kind"] == "cancelled"


@pytest.mark.parametrize("raises", [False, True])
async def test_a_body_that_swallows_its_cancellation_has_not_undone_it(raises: bool) -> None:
    begun: list[str] = []

    async def stubborn() -> str:
        begun.append("x")
        try:
            await anyio.sleep(30)
        except BaseException:  # noqa: BLE001 - the fault that is shown
            if raises:
                raise ValueError("instead") from None
        return "as if nothing had happened"

    async with Session([stubborn, tool(name="timed", timeout=0.02)(stubborn)]) as s:
        async with anyio.create_task_group() as group:
            group.start_soon(s.call, "stubborn")
            await until(lambda: len(begun) == 1)
            group.cancel_scope.cancel()
        timed_out = await s.call("timed")
        task = asyncio.ensure_future(s.call("stubborn"))
        await until(lambda: len(begun) == 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert group.cancel_scope.cancelled_caught
    assert not timed_out.ok
    assert [event.data["kind"] for event in endings(s).values()] == ["cancelled", "timeout", "cancelled"]


async def test_two_hundred_running_calls_are_cancelled_together_and_each_is_recorded() -> None:
    begun: list[int] = []
    ended = 0

    async def waits(n: int) -> int:
        nonlocal ended
        begun.append(n)
        try:
            await anyio.sleep(30)
        finally:
            ended += 1
        return n

    release = threading.Event()

    def stuck(n: int) -> int:
        begun.append(n)
        release.wait(30)
        return n

    calls = [Call(f"c{n}", "stuck" if n % 10 == 0 else "waits", {"n": n}) for n in range(200)]
    async with Session([waits, stuck]) as session:
        async with anyio.create_task_group() as group:
            group.start_soon(session.call_all, calls)
            await until(lambda: len(begun) == 200)
            group.cancel_scope.cancel()
        release.set()
    assert group.cancel_scope.cancelled_caught
    assert ended == 180
    found = endings(session)
    assert len(found) == 200
    assert {event.data["kind"] for event in found.values()} == {"cancelled"}
    assert "may still be running" in found["c0"].data["result"]["message"]
    assert "may still be running" not in found["c1"].data["result"]["message"]


async def test_a_def_body_learns_that_it_was_left_and_its_late_end_is_told() -> None:
    told: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def slow(context: Context) -> str:
        begun.set()
        go.wait(30)
        try:
            context.check()
        except Exception as error:
            told.append(type(error).__name__)
            raise
        return "not stopped"

    async with Session([slow]) as session:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(session.call, "slow")
                await anyio.to_thread.run_sync(begun.wait)
                scope.cancel()
        assert not events_of(session, "call_late")
        go.set()
        async for event in session.events():
            if event.type == "call_late":
                break
        control = await session.call("slow")
    assert told == ["ToolFailed"]
    assert control.value == "not stopped"
    assert (event.call_id, event.data["outcome"]) == ("call_1", "raised ToolFailed")
    assert [e.data["kind"] for e in endings(session).values()] == ["cancelled", None]


async def test_a_cancelled_call_takes_the_calls_inside_it_along() -> None:
    async def outer(context: Context) -> None:
        await context.use("inner")

    async def inner() -> None:
        scope.cancel()
        await anyio.sleep(30)

    async with Session([outer, inner]) as session:
        with anyio.CancelScope() as scope:
            await session.call("outer")
        await checkpoint()
    found = endings(session)
    assert [(event.data["tool"], event.data["kind"]) for event in found.values()] == [
        ("inner", "cancelled"), ("outer", "cancelled"),
    ]  # fmt: skip
