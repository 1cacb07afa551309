"""The seconds of a run end every tool at once, and leave work that reports its outcome the time for that."""

from typing import Any

import anyio
import pytest

from handrail import Agent, Budget, Call, Context, Turn, tool
from handrail.testing import ScriptedModel
from tests.agent.test_loop import paired

pytestmark = pytest.mark.anyio


def using(name: str, **arguments: Any) -> Turn:
    return Turn("", (Call("c", name, arguments),), "tool_use")


async def test_a_tool_with_its_own_clock_ends_with_the_seconds_of_the_run() -> None:
    @tool
    async def naps() -> None:
        """Sleep."""
        await anyio.sleep(60)

    @tool(timeout=None)
    async def sleeps() -> None:
        """Sleep by its own clock."""
        await anyio.sleep(60)

    took = {}
    for name in ("naps", "sleeps"):
        agent = Agent(ScriptedModel([using(name)]), tools=[naps, sleeps], budget=Budget(seconds=0.2))
        began = anyio.current_time()
        with anyio.fail_after(60):
            assert (await agent.run("go")).reason == "budget"
        took[name] = anyio.current_time() - began
    assert took["sleeps"] < 5 * took["naps"]


async def test_work_that_reports_has_a_grace_period() -> None:
    @tool(timeout=None)
    async def reports(context: Context) -> str:
        """Work until the run's seconds are over."""
        with context.clock.grace():
            await anyio.sleep(context.clock.left() + 0.1)
            return "got so far"

    @tool(timeout=None)
    async def dawdles(context: Context) -> str:
        """Do not report."""
        await anyio.sleep(context.clock.left() + 0.1)
        return "got so far"

    for body, ok in ((reports, True), (dawdles, False)):
        agent = Agent(ScriptedModel([using(body.name)]), tools=[body], budget=Budget(seconds=0.2))
        await agent.run("go")
        ((_, result),) = paired(agent.messages)
        assert result.ok is ok
