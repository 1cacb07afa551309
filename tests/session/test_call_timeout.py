"""A session's own limit ends every call, also of a tool that keeps its own clock, and keeps what was printed."""

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Agent, Call, Decision, HandrailError, Policy, Session, Turn, builtin_tools, open_sandbox, tool
from handrail.testing import ScriptedModel
from tests.tools.world import in_time

pytestmark = pytest.mark.anyio


@tool(timeout=None)
async def own_clock(seconds: float) -> str:
    """Sleep."""
    await anyio.sleep(seconds)
    return "slept"


@tool(timeout=0.1)
async def short(seconds: float) -> str:
    """Sleep."""
    await anyio.sleep(seconds)
    return "slept"


@tool
async def long(seconds: float) -> str:
    """Sleep."""
    await anyio.sleep(seconds)
    return "slept"


async def test_every_call_ends_by_the_earlier_of_both_limits() -> None:
    released = threading.Event()

    @tool(timeout=None)
    def in_thread() -> str:
        """Wait."""
        released.wait(60)
        return "late"

    with in_time():
        async with Session([own_clock, short, long, in_thread], call_timeout=0.5) as session:
            for name, limit in (("own_clock", "0.5 s"), ("long", "0.5 s"), ("short", "0.1 s")):
                result = await session.call(name, {"seconds": 60})
                assert result.kind == "timeout"
                assert f"{name} ran longer than {limit}" in result.message
            stuck = await session.call("in_thread")
            assert (stuck.kind, "may still be running" in stuck.message) == ("timeout", True)
            released.set()
            assert (await session.call("own_clock", {"seconds": 0})).value == "slept"


async def test_without_a_limit_a_tool_keeps_its_own_clock() -> None:
    async with Session([own_clock]) as session:
        assert (await session.call("own_clock", {"seconds": 0.6})).value == "slept"


async def test_a_command_is_ended_and_what_it_printed_is_kept(tmp_path: Path) -> None:
    tools = builtin_tools("all")
    async with (
        open_sandbox(workspace=str(tmp_path)) as sandbox,
        Session(tools, sandbox=sandbox, call_timeout=2) as session,
    ):
        with in_time():
            result = await session.call("bash", {"command": "echo begun; setsid sleep 60 & sleep 60; touch ended"})
        assert result.kind == "timeout"
        assert "bash ran longer than 2 s" in result.message
        assert (result.data["stdout"], result.data["exit_code"]) == ("begun\n", 124)
        assert result.data["ended_by"] == "timeout"
        code = {"code": "print('on', flush=True)\nimport time\ntime.sleep(60)"}
        for name in ("run_code", "script"):
            with in_time():
                result = await session.call(name, code)
            assert result.kind == "timeout", result
        job = await session.call("bash", {"command": "sleep 3; echo on", "background": True})
        waited = await session.call("process", {"action": "wait", "job": job.value["job"], "timeout": 60})
        assert waited.kind == "timeout"
        assert sandbox.job(job.value["job"]).running, "what runs in the background is not part of the call"  # type: ignore[union-attr]
        quick = await session.call("bash", {"command": "echo quick", "timeout": 1})
        assert quick.value["stdout"] == "quick\n"


async def test_the_limit_does_not_count_while_a_person_is_asked() -> None:
    async def slow(request: Any) -> Decision:
        await anyio.sleep(1)
        return Decision.approve()

    @tool(timeout=None, effects=["spends"])
    async def pay() -> str:
        """Pay."""
        return "paid"

    async with Session([pay], policy=Policy(mode="ask"), approver=slow, call_timeout=0.5) as session:
        assert (await session.call("pay")).value == "paid"


async def test_a_task_has_the_limit_too() -> None:
    task = next(each for each in builtin_tools("all") if each.name == "task")
    turns = [
        Turn(calls=(Call("t", "task", {"prompt": "sleep"}),)),
        Turn(calls=(Call("s", "own_clock", {"seconds": 60}),)),
        Turn(text="done"),
        Turn(text="done"),
    ]
    session = Session([task, own_clock], call_timeout=1)
    async with session:
        with in_time():
            await Agent(ScriptedModel(turns), session=session).run("go")
    ended = {event.data["tool"]: event.data["kind"] for event in session.trace if event.type == "call_ended"}
    assert set(ended) == {"task", "own_clock"}
    assert "timeout" in ended.values()


@pytest.mark.parametrize("wrong", [0, -1, "5", True, float("nan"), float("inf")])
def test_a_limit_that_is_no_number_of_seconds_is_refused(wrong: Any) -> None:
    with pytest.raises(HandrailError, match="call_timeout"):
        Session([long], call_timeout=wrong)
