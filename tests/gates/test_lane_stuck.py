"""A body that cannot be stopped makes its lane unavailable until it ends, and nobody waits for himself."""

import threading
from typing import Any

import anyio
import pytest

from handrail import Call, Context, Sandbox, Session, Tool, tool
from handrail.gates.lane import lane_of_sandbox
from handrail.session.session import core_of
from handrail.testing import MemoryDriver
from tests.gates.asked import until
from tests.gates.lanes import OPEN, World, doing
from tests.journeys.evidence import events_of

pytestmark = pytest.mark.anyio


class Stuck:
    """A `def` tool that hangs until it is let go."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def tool(self) -> Tool:
        def hangs() -> str:
            self.end.wait(20)
            return "at last"

        return tool(effects=["writes"], needs=["files"], timeout=0.02)(hangs)


async def test_a_stuck_body_makes_its_lane_unavailable_naming_the_call_until_it_ends() -> None:
    world, sandbox, stuck = World(), Sandbox(MemoryDriver()), Stuck()
    async with world.session(stuck.tool(), sandbox=sandbox) as session:
        results: list[Any] = await session.call_all([Call("h", "hangs", "{}"), Call("waits", "look", doing())])
        results.append(await session.call("look", doing()))
        assert [result.kind for result in results] == ["timeout", "unavailable", "unavailable"]
        assert "may still be running" in results[0].message
        assert all("still used by h" in result.message and result.retryable for result in results[1:])
        assert world.order == []
        stuck.end.set()
        await until(lambda: len(lane_of_sandbox(sandbox)) == 0)
        assert (await session.call("look", doing())).ok
    (late,) = events_of(session, "call_late")
    assert (late.call_id, late.data["outcome"]) == ("h", "ended")


async def test_a_stuck_body_inside_another_call_holds_the_lane_after_that_call_has_ended() -> None:
    world, sandbox, stuck = World(), Sandbox(MemoryDriver()), Stuck()
    async with world.session(stuck.tool(), sandbox=sandbox) as session:
        assert (await session.call("change", doing(0, ("hangs", {})), id="outer")).ok
        blocked: Any = await session.call("look", doing())
        assert blocked.kind == "unavailable"
        stuck.end.set()
        await until(lambda: len(lane_of_sandbox(sandbox)) == 0)
        assert (await session.call("look", doing())).ok
        assert len(lane_of_sandbox(sandbox).inner) == 0


async def test_sessions_on_one_sandbox_share_its_lane_and_their_calls_are_not_mixed_up() -> None:
    world, sandbox, stuck = World(), Sandbox(MemoryDriver()), Stuck()
    async with (
        sandbox,
        Session([stuck.tool()], sandbox=sandbox, policy=OPEN) as one,
        world.session(sandbox=sandbox) as two,
    ):
        assert (await one.call("hangs", id="same")).kind == "timeout"  # type: ignore[union-attr]
        blocked: Any = await two.call("look", doing(), id="same")
        assert blocked.kind == "unavailable"
        assert "same" in blocked.message
        stuck.end.set()
        await until(lambda: len(lane_of_sandbox(sandbox)) == 0)
        assert (await two.call("look", doing(), id="same")).ok


async def test_of_two_calls_that_would_wait_for_each_other_one_is_told_and_the_other_goes_on() -> None:
    ready, go = {"one": anyio.Event(), "two": anyio.Event()}, anyio.Event()

    def holder(name: str, lane: str, calls: str) -> Tool:
        async def body(context: Context) -> str:
            ready[name].set()
            await go.wait()
            inner = await context.use(calls)
            return "ran" if inner.ok else inner.kind

        return tool(name=name, lane=lane)(body)

    leaves = [tool(name=f"into_{lane}", lane=lane)(lambda: "ran") for lane in "xy"]
    tools = [holder("one", "x", "into_y"), holder("two", "y", "into_x"), *leaves]
    results: dict[int, Any] = {}

    async def both(session: Session) -> None:
        await session.call_all([Call("1", "one", "{}"), Call("2", "two", "{}")], into=results)

    async with Session(tools) as session:
        with anyio.fail_after(90):
            async with anyio.create_task_group() as group:
                group.start_soon(both, session)
                for each in ready.values():
                    await each.wait()
                go.set()
    assert sorted(results[at].value for at in range(2)) == ["ran", "unavailable"]
    (told,) = [
        event.data["result"] for event in events_of(session, "call_ended") if event.data["kind"] == "unavailable"
    ]
    assert "waits for the call that made this one" in told["message"]


async def test_waiting_in_a_lane_runs_out_no_deadline_around_it_but_the_seconds_of_the_run_go_on() -> None:
    world = World()

    @tool(timeout=0.5)
    async def outer(context: Context) -> bool:
        return (await context.use("change", doing())).ok

    @tool(effects=["writes"], needs=["files"])
    async def long() -> None:
        await anyio.sleep(0.8)

    async with world.session(outer, long) as session:
        results = await session.call_all([Call("l", "long", "{}"), Call("o", "outer", "{}")])
        assert [result.ok for result in results] == [True, True]
        assert core_of(session).shared.counts.clock.now() >= 0.75
