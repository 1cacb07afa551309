"""An answer of many calls: each has one result, others on the event loop go on, and what is over budget is cheap."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from handrail import STANDARD, Agent, Budget, Call, Context, Next, Result, Session, Step, Store, Turn
from handrail.session._together import MAX_STARTED_COUNT
from handrail.session.session import core_of
from handrail.testing import ScriptedModel
from handrail.tools.task import task
from tests.agent.test_loop import paired
from tests.gates.asked import until
from tests.journeys.evidence import endings, events_of
from tests.session.test_deep_arguments import nested

pytestmark = pytest.mark.anyio
MANY = 640


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def calls(count: int, name: str = "add") -> tuple[Call, ...]:
    """Calls that are all different: the same one in a row would be refused."""
    return tuple(Call(f"call_{n}", name, {"a": n, "b": 2}) for n in range(1, count + 1))


class Turns:
    """How often another task has had its turn."""

    count = 0


@asynccontextmanager
async def others() -> AsyncIterator[Turns]:
    turns = Turns()

    async def take() -> None:
        while True:
            turns.count += 1
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await checkpoint()
        yield turns
        group.cancel_scope.cancel()


@pytest.mark.parametrize("budget", [Budget(), Budget(calls=None), Budget(calls=0)])
@pytest.mark.parametrize("name", ["add", "x" * 500])
async def test_others_get_their_turns_while_an_answer_of_many_calls_is_worked_on(budget: Budget, name: str) -> None:
    agent = Agent(ScriptedModel([Turn("", calls(MANY, name), "tool_use"), "done"]), tools=[add], budget=budget)
    async with others() as turns:
        await agent.run("go")
    assert turns.count >= MANY // MAX_STARTED_COUNT
    assert len(endings(agent.session)) == len(paired(agent.messages)) == MANY


async def test_calls_over_the_budget_are_refused_without_passing_the_gates() -> None:
    passed: list[str] = []

    async def watch(step: Step, proceed: Next) -> Result:
        passed.append(step.call.id)
        return await proceed(step)

    session = Session([add], gates=[watch, *STANDARD], budget=Budget(calls=10))
    agent = Agent(ScriptedModel([Turn("", calls(MANY), "tool_use"), "done"]), session=session)
    assert (await agent.run("go")).reason == "budget"
    assert 10 <= len(passed) <= 10 + MAX_STARTED_COUNT
    results = [result for _, result in paired(agent.messages)]
    assert [result.ok for result in results] == [True] * 10 + [False] * (MANY - 10)
    assert {(result.kind, result.message) for result in results[10:]} == {
        ("budget_exhausted", "All 10 calls of this run are used. Answer with what you have.")
    }
    assert len(endings(session)) == session.call_count == MANY
    free = Session(
        [add], gates=[watch, *(gate for gate in STANDARD if gate.__name__ != "budget")], budget=Budget(calls=0)
    )
    async with free:
        assert all(result.ok for result in await free.call_all(calls(MANY)))


async def test_a_run_after_an_answer_over_the_budget_goes_on(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        model = ScriptedModel([Turn("", calls(MANY), "tool_use"), "fine"])
        async with Agent(model, tools=[add], budget=Budget(calls=10), store=store) as agent:
            assert (await agent.run("go")).reason == "budget"
            assert (await agent.run("go on")).text == "fine"
        assert list(store.events(agent.session.id)) == list(agent.session.trace)
        async with Agent.resume(ScriptedModel(["again"]), store, agent.session.id, tools=[add]) as resumed:
            assert resumed.messages == agent.messages
            assert (await resumed.run("and now?")).text == "again"


async def test_each_call_of_a_cancelled_answer_has_one_end() -> None:
    started = 0

    async def waits(a: int, b: int) -> None:
        """Wait."""
        nonlocal started
        started += 1
        await anyio.sleep_forever()

    agent = Agent(ScriptedModel([Turn("", calls(MANY, "waits"), "tool_use"), "fine"]), tools=[waits])
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "go")
        await until(lambda: started > 0)
        group.cancel_scope.cancel()
    assert 0 < started < MANY
    assert {event.data["kind"] for event in endings(agent.session).values()} == {"cancelled"}
    assert len(paired(agent.messages)) == MANY
    assert (await agent.run("go on")).text == "fine"


async def test_a_call_that_a_tool_makes_meanwhile_takes_no_id_of_the_answer() -> None:
    async def adds(a: int, b: int, context: Context) -> Any:
        """Add by another tool."""
        return (await context.use("add", {"a": a, "b": b})).value

    agent = Agent(
        ScriptedModel([Turn("", calls(100, "adds"), "tool_use"), "done"]),
        tools=[adds, add],
        budget=Budget(calls=None),
    )
    assert (await agent.run("go")).reason == "done"
    assert [(call.id, result.value) for call, result in paired(agent.messages)] == [
        (f"call_{n}", n + 2) for n in range(1, 101)
    ]
    assert len(endings(agent.session)) == 200


async def test_calls_that_were_not_begun_when_their_session_is_closed_have_a_result() -> None:
    async with anyio.create_task_group() as group:

        async def closes(a: int, b: int) -> None:
            """Close the session."""
            if not core_of(session).transcript.closed:
                group.start_soon(session.__aexit__, None, None, None)

        session = await Session([closes], budget=Budget(calls=None)).__aenter__()
        results = await session.call_all(calls(MANY, "closes"))
    assert len(results) == len(endings(session)) == MANY
    assert {result.kind for result in results} == {None, "cancelled"}
    assert results[0].ok
    assert not results[-1].ok


async def test_a_conversation_that_is_looked_at_while_it_is_read_is_whole() -> None:
    agent = Agent(ScriptedModel([Turn("", calls(MANY), "tool_use"), "done"]), tools=[add], budget=Budget(calls=None))
    seen: set[int] = set()

    async def look() -> None:
        while True:
            seen.add(len(agent.messages))
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        assert (await agent.run("go")).reason == "done"
        group.cancel_scope.cancel()
    assert len(seen) > 1, "nobody looked meanwhile, so nothing was shown"
    assert [message.role for message in agent.messages] == ["user", "assistant", "tool", "assistant"]
    assert len(paired(agent.messages)) == MANY


async def test_a_child_refuses_what_is_over_the_budget_of_the_run_under_its_own_ids() -> None:
    model = ScriptedModel(
        [Turn("", (Call("t", "task", {"prompt": "many"}),), "tool_use"), Turn("", calls(100), "tool_use"), "x"]
    )
    agent = Agent(model, tools=[add, task], budget=Budget(calls=20))
    assert (await agent.run("go")).reason == "budget"
    inside = [event for event in events_of(agent.session, "call_ended") if event.parent == "t/1"]
    assert [event.call_id for event in inside] == [f"t/1/call_{n}" for n in range(1, 101)]
    assert [event.data["kind"] for event in inside].count("budget_exhausted") == 81


async def test_calls_with_arguments_nested_too_deep_have_an_end_if_they_are_cancelled() -> None:
    calls = [Call(f"c{n}", "add", {"a": nested(5_000)}) for n in range(40)]
    async with Session([add]) as session:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.call_all(calls)
    assert "cancelled" in {event.data["kind"] for event in endings(session).values()}
    assert len(endings(session)) == 40
