"""A run can be watched while it happens; whoever stops watching ends it, and harms nothing else."""

import gc
from contextlib import aclosing

import anyio
import pytest

from handrail import Agent, Call, HandrailError, Session
from handrail.testing import ScriptedModel, Turn
from tests.journeys.evidence import endings

pytestmark = pytest.mark.anyio


async def slow(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "slept"


def agent(seconds: float) -> Agent:
    turn = Turn("let me see", (Call("1", "slow", {"seconds": seconds}),))
    return Agent(ScriptedModel([turn, "done"]), tools=[slow])


async def test_the_events_come_as_they_happen_and_the_last_one_is_the_end() -> None:
    watched = agent(0.01)
    seen = [event async for event in watched.stream("go")]
    assert [event.type for event in seen if not event.type.startswith("model_")] == [
        "run_started", "text", "call_started", "call_ended", "text", "run_ended",
    ]  # fmt: skip
    assert seen == list(watched.session.trace)
    assert seen[-1].data == {"reason": "done", "text": "done"}
    again = Agent(ScriptedModel(["more"]), session=watched.session)
    assert [event.type async for event in again.stream("on")][0] == "run_started"  # noqa: RUF015


@pytest.mark.parametrize("closed", [True, False])
async def test_leaving_early_ends_the_run_and_leaves_the_watcher_unharmed(closed: bool) -> None:
    watched = agent(30)
    if closed:
        async with aclosing(watched.stream("go")) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type == "call_started":
                    break
    else:
        async for event in watched.stream("go"):
            if event.type == "call_started":
                break
        gc.collect()
    with anyio.fail_after(90):
        while watched.session.trace[-1].type != "run_ended":  # noqa: ASYNC110 - it ends in its own task
            await anyio.sleep(0.001)
    (ended,) = endings(watched.session).values()
    assert ended.data["kind"] == "cancelled"
    assert watched.session.trace[-1].data["reason"] == "cancelled"
    assert len(watched.messages[-1].results) == 1
    with anyio.move_on_after(0.01) as scope:  # the control: this task's own scopes still work
        await anyio.sleep(30)
    assert scope.cancelled_caught


async def test_a_watcher_that_is_cancelled_takes_the_run_along() -> None:
    watched = agent(30)
    with anyio.move_on_after(0.05) as scope:
        async for _ in watched.stream("go"):
            pass
    assert scope.cancelled_caught
    assert watched.session.trace[-1].type == "run_ended"
    assert [event.data["kind"] for event in endings(watched.session).values()] == ["cancelled"]


async def test_what_the_programmer_did_wrong_is_raised_to_the_watcher() -> None:
    async with Session([slow]) as session:
        pass
    closed = Agent(ScriptedModel([Turn("", (Call("1", "slow", {"seconds": 0}),))]), session=session)
    with pytest.raises(HandrailError, match="closed"):
        async for _ in closed.stream("go"):
            pass
