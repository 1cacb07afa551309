"""A person ends any call, wherever it is; its answer says who did."""

import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Call, Context, Decision, Policy, Sandbox, Session, Tool, tool
from handrail.drivers.memory import Script
from handrail.gates.lane import lane_of_sandbox
from handrail.testing import HeldApprovals, MemoryDriver
from tests.gates.asked import until
from tests.gates.lanes import OPEN, World, doing
from tests.journeys.evidence import endings, events_of
from tests.toolkit import isolated_tools

pytestmark = pytest.mark.anyio
LONG = 30.0


async def ended(session: Session, name: str, *, ready: Any, arguments: Any = "{}", times: int = 1) -> Any:
    """Call it, wait until `ready`, end it as a person does, and give back the answer."""
    found: list[Any] = []

    async def call() -> None:
        found.append(await session.call(name, arguments, id="it"))

    with anyio.fail_after(90):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await until(ready)
            for _ in range(times):
                assert await session.terminate("it")
    return found[0]


def check(result: Any, session: Session) -> None:
    assert (result.kind, result.data) == ("cancelled", {"killed_by": "user"})
    assert "ended by the user" in result.message
    event = endings(session)["it"]
    assert (event.data["kind"], event.data["result"]["data"]) == ("cancelled", {"killed_by": "user"})


async def test_an_async_body_is_ended() -> None:
    state: list[str] = []

    async def works() -> None:
        state.append("began")
        try:
            await anyio.sleep(LONG)
        finally:
            state.append("ended")

    for times in (1, 3):
        state.clear()
        async with Session([works]) as session:
            check(await ended(session, "works", ready=lambda: state == ["began"], times=times), session)
        assert state == ["began", "ended"]


async def test_a_body_that_swallows_it_is_ended_all_the_same() -> None:
    state: list[str] = []

    async def stubborn() -> str:
        state.append("began")
        try:
            await anyio.sleep(LONG)
        except BaseException:  # noqa: BLE001
            pass
        return "as if nothing had happened"

    async with Session([stubborn]) as session:
        check(await ended(session, "stubborn", ready=lambda: state == ["began"]), session)


async def test_a_thread_is_named_as_what_may_still_run() -> None:
    began, end = threading.Event(), threading.Event()

    def works(context: Context) -> str:
        began.set()
        end.wait(20)
        context.check()
        return "done"

    async with Session([works]) as session:
        result = await ended(session, "works", ready=began.is_set)
        check(result, session)
        assert "may still be running" in result.message
        end.set()
        await until(lambda: bool(events_of(session, "call_late")))
    assert events_of(session, "call_late")[0].data["outcome"] == "raised ToolFailed"  # `check` told it to stop


async def test_the_process_of_an_isolated_tool_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    async with Session([isolated_tools.hangs]) as session:
        ready = lambda: note.exists() and bool(note.read_text())  # noqa: E731
        check(await ended(session, "hangs", ready=ready, arguments={"note": str(note)}), session)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text().split()[0]), 0)


async def test_a_call_that_waits_for_approval_is_ended_and_asked_about_no_more() -> None:
    held, ran = HeldApprovals(), []

    @tool(effects=["writes"])
    async def works() -> None:
        ran.append(1)

    async with Session([works], policy=Policy(mode="ask"), approver=held) as session:
        check(await ended(session, "works", ready=lambda: len(held.pending) == 1), session)
    assert ran == []
    assert held.pending == {}
    assert [event.data["decision"] for event in events_of(session, "approval_settled")] == ["cancelled"]


async def test_a_yes_that_comes_with_the_end_is_too_late() -> None:
    held, ran = HeldApprovals(), []

    @tool(effects=["writes"])
    async def works() -> None:
        ran.append(1)

    async with Session([works], policy=Policy(mode="ask"), approver=held) as session:
        found: list[Any] = []

        async def call() -> None:
            found.append(await session.call("works", id="it"))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            request = await held.next()
            held.answer(request.id, Decision.approve())
            assert await session.terminate("it")
    check(found[0], session)
    assert ran == []


async def test_a_call_that_waits_in_a_lane_is_ended_and_frees_its_place() -> None:
    world, sandbox, go = World(), Sandbox(MemoryDriver()), anyio.Event()

    @tool(effects=["writes"], needs=["files"])
    async def holds() -> None:
        await go.wait()

    async with world.session(holds, sandbox=sandbox) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "holds")
        await until(lambda: len(lane_of_sandbox(sandbox)) == 1)
        ready = lambda: bool(events_of(session, "call_waiting"))  # noqa: E731
        result = await ended(session, "change", ready=ready, arguments=doing())
        assert len(lane_of_sandbox(sandbox)) == 1
        go.set()
    check(result, session)
    assert "before it started" in result.message
    assert world.order == []


async def test_a_call_in_any_other_place_is_ended_before_its_body_begins() -> None:
    """While a rule's path is looked up, say."""
    slow, go, ran = anyio.Event(), anyio.Event(), []

    class Slow(MemoryDriver):
        async def stat(self, path: str) -> Any:
            slow.set()
            await go.wait()
            return await super().stat(path)

    @tool(effects=["reads"], needs=["files"])
    async def read(path: str) -> None:
        ran.append(path)

    async with Session([read], sandbox=Sandbox(Slow()), policy=Policy(deny=["read(./x)"])) as session:
        found: list[Any] = []

        async def call() -> None:
            found.append(await session.call("read", {"path": "y"}, id="it"))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await slow.wait()
            assert await session.terminate("it")
            go.set()
    check(found[0], session)
    assert ran == []


async def test_whoever_is_around_goes_on_and_whoever_is_inside_ends_too() -> None:
    inside = anyio.Event()

    async def inner() -> None:
        inside.set()
        await anyio.sleep(LONG)

    async def middle(context: Context) -> Any:
        return (await context.use("inner")).ok

    async def outer(context: Context) -> Any:
        result: Any = await context.use("middle")
        return [result.kind, result.data]

    async with Session([inner, middle, outer]) as session, anyio.create_task_group() as group:
        found: list[Any] = []

        async def call() -> None:
            found.append(await session.call("outer"))

        group.start_soon(call)
        await inside.wait()
        ids = {event.data["tool"]: event.call_id for event in events_of(session, "call_started")}
        assert await session.terminate(ids["middle"])
    assert found[0].value == ["cancelled", {"killed_by": "user"}]
    kinds = {event.data["tool"]: event.data["kind"] for event in endings(session).values()}
    assert kinds == {"inner": "cancelled", "middle": "cancelled", "outer": None}


async def test_an_unknown_or_ended_call_is_not_there() -> None:
    async def works() -> int:
        return 1

    for sandbox in (None, Sandbox(MemoryDriver())):
        async with Session([works], sandbox=sandbox) as session:
            assert not await session.terminate("never")
            await session.call("works", id="it")
            assert not await session.terminate("it")


async def test_the_command_of_another_session_on_the_same_sandbox_goes_on() -> None:
    driver = MemoryDriver(commands={"hang": Script(hang=True)})
    sandbox = Sandbox(driver)

    def runs() -> Tool:
        async def runs(context: Context) -> str:
            return (await context.sandbox.run("hang")).ended_by

        return tool(lane="none", effects=["executes"])(runs)

    found: dict[str, Any] = {}

    async def call(session: Session, name: str) -> None:
        found[name] = await session.call("runs", id="same")

    one, two = (Session([runs()], sandbox=sandbox, policy=OPEN) for _ in range(2))
    async with sandbox, one, two, anyio.create_task_group() as group:
        group.start_soon(call, one, "one")
        group.start_soon(call, two, "two")
        await until(lambda: len(driver.processes) == 2)
        assert await one.terminate("same")
        assert list(found) == ["one"]
        assert await two.terminate("same")
    assert [result.value for result in found.values()] == ["user", "user"]


async def test_terminating_one_call_of_many_leaves_the_others() -> None:
    async def naps(n: int) -> int:
        await anyio.sleep(0.05 if n else LONG)
        return n

    async with Session([naps]) as session, anyio.create_task_group() as group:
        results: dict[int, Any] = {}

        async def batch() -> None:
            await session.call_all([Call(f"c{n}", "naps", {"n": n}) for n in range(3)], into=results)

        group.start_soon(batch)
        await until(lambda: len(events_of(session, "call_started")) == 3)
        assert await session.terminate("c0")
    assert [results[n].ok for n in range(3)] == [False, True, True]
