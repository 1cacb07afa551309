"""A run, with all of its tasks, is held to its requests, tokens and dollars, and has few requests out at once."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    Budget,
    Call,
    Event,
    HandrailError,
    Message,
    ModelEvent,
    ModelFailed,
    Sandbox,
    Session,
    Turn,
    Usage,
)
from handrail.contract.limits import MAX_OPEN_REQUESTS_COUNT, MAX_RUNNING_TASKS_COUNT
from handrail.contract.model import SUMMARISE
from handrail.testing import MemoryDriver, ScriptedModel
from handrail.tools.task import task
from tests.agent.test_compaction import dump
from tests.agent.test_loop import paired
from tests.gates.asked import until
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio
BUSY = ModelFailed("busy", transient=True, retry_after=0.01)


def doing(parts: int, id: str = "t", **more: Any) -> Turn:
    return Turn("", (Call(id, "task", {"batch": [{"prompt": f"part {n}", **more} for n in range(parts)]}),), "tool_use")


def using(name: str, **arguments: Any) -> Turn:
    return Turn("", (Call("c", name, arguments),), "tool_use")


async def works() -> str:
    """Do something."""
    return "done"


class Counting:
    """A model that answers by a function, and counts its requests; each takes a moment, or until it is let go."""

    def __init__(self, answer: Callable[[Sequence[Message]], Turn], *, holds: bool = False) -> None:
        self.answer = answer
        self.asked = self.out = self.most = 0
        self.go = anyio.Event()
        if not holds:
            self.go.set()

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        self.asked += 1
        self.out += 1
        self.most = max(self.most, self.out)
        try:
            if messages[0].text != "go":
                await self.go.wait()
            await anyio.sleep(0.002)
        finally:
            self.out -= 1
        yield self.answer(messages)


def first(messages: Sequence[Message]) -> bool:
    return len(messages) == 1


def bomb(messages: Sequence[Message]) -> Turn:
    """32 tasks in the first answer of everybody, as deep as they go."""
    return doing(32) if first(messages) else Turn("done")


async def test_a_task_bomb_makes_no_more_requests_than_its_calls_allow() -> None:
    model = Counting(bomb)
    agent = Agent(model, tools=[task], budget=Budget(calls=40))
    assert (await agent.run("go")).reason == "budget"
    children = len(events_of(agent.session, "run_started")) - 1
    assert 20 <= children <= 40
    assert model.asked <= 1 + 2 * children  # each asks once, and once more if its own tasks are done
    endings(agent.session)


async def test_at_most_32_requests_of_a_run_are_out_at_once_over_all_depths() -> None:
    model = Counting(_nested)
    agent = Agent(model, tools=[task], budget=Budget(calls=None))
    assert (await agent.run("go")).reason == "done"
    assert model.asked > 2 * MAX_OPEN_REQUESTS_COUNT
    assert model.most == MAX_OPEN_REQUESTS_COUNT


def _nested(messages: Sequence[Message]) -> Turn:
    """Eight tasks of eight tasks each."""
    text = messages[0].text
    if not first(messages) or text.endswith("leaf"):
        return Turn("done")
    more = [{"prompt": "a branch" if text == "go" else "a leaf"}] * 8
    return Turn("", (Call("t", "task", {"batch": more}),), "tool_use")


async def test_at_most_8_tasks_of_one_call_run_at_once() -> None:
    model = Counting(lambda messages: doing(32) if first(messages) and messages[0].text == "go" else Turn("done"))
    agent = Agent(model, tools=[task])
    assert (await agent.run("go")).reason == "done"
    assert (model.asked, model.most) == (2 + 32, MAX_RUNNING_TASKS_COUNT)
    ((_, result),) = paired(agent.messages)
    assert [each["result"]["task"] for each in result.value] == [f"t/{n + 1}" for n in range(32)]


async def test_each_task_of_a_batch_spends_one_call() -> None:
    model = Counting(lambda messages: doing(8) if first(messages) and messages[0].text == "go" else Turn("done"))
    agent = Agent(model, tools=[task], budget=Budget(calls=5))
    outcome = await agent.run("go")
    ((_, result),) = paired(agent.messages)
    assert [each["ok"] for each in result.value] == [True] * 5 + [False] * 3
    assert {each["kind"] for each in result.value if not each["ok"]} == {"budget_exhausted"}
    assert "All 5 calls" in result.value[-1]["message"]
    assert (outcome.reason, model.asked) == ("budget", 1 + 5)
    enough = Agent(model, tools=[task], budget=Budget(calls=8))
    assert (await enough.run("go")).reason == "done"


async def test_a_task_that_is_refused_gets_its_call_back() -> None:
    prompts = iter([doing(3, cwd="nowhere"), Turn("", (Call("u", "works", {}),), "tool_use"), Turn("done")])
    model = Counting(lambda messages: next(prompts))
    async with Sandbox(MemoryDriver()) as sandbox:
        agent = Agent(model, tools=[task, works], sandbox=sandbox, budget=Budget(calls=3))
        assert (await agent.run("go")).reason == "done"
    ((_, batch), (_, single)) = paired(agent.messages)
    assert [each["kind"] for each in batch.value] == ["not_found"] * 3
    assert single.ok


@pytest.mark.parametrize(("requests", "reason", "asked"), [(2, "budget", 2), (3, "done", 3)])
async def test_every_try_counts_as_a_request(requests: int, reason: str, asked: int) -> None:
    model = ScriptedModel([BUSY, BUSY, "fine"])
    outcome = await Agent(model, budget=Budget(requests=requests)).run("go")
    assert (outcome.reason, len(model.requests)) == (reason, asked)
    assert reason == "done" or "All 2 requests" in outcome.text


async def test_a_summary_counts_as_a_request() -> None:
    class Script(ScriptedModel):
        window = 4_000
        summaries = 0

        async def ask(self, messages: Sequence[Message], tools: Any, *, system: str = "") -> AsyncIterator[ModelEvent]:
            self.summaries += system == SUMMARISE
            async for event in super().ask(messages, tools, system=system):
                yield event

    async def run(requests: int | None) -> tuple[str, int, int]:
        turns = [Turn("", (Call(f"c{n}", "dump", {"n": n, "size": 300}),)) for n in range(60)]
        model = Script([*turns, "done"])
        outcome = await Agent(model, tools=[dump], budget=Budget(requests=requests)).run("go")
        return outcome.reason, len(model.requests), model.summaries

    reason, asked, summaries = await run(None)
    assert (reason, summaries > 0) == ("done", True)
    assert await run(asked + summaries) == ("done", asked, summaries)
    assert await run(asked + summaries - 1) == ("budget", asked - 1, summaries)


async def test_a_run_without_a_request_to_spend_asks_nobody() -> None:
    model = ScriptedModel(["fine"])
    outcome = await Agent(model, budget=Budget(requests=0)).run("go")
    assert (outcome.reason, len(model.requests)) == ("budget", 0)
    assert "All 0 requests" in outcome.text


async def test_each_run_begins_with_the_whole_budget() -> None:
    used = Usage(10, 10, cost=1.0)
    model = ScriptedModel([using("works"), Turn("one", usage=used), using("works"), Turn("two", usage=used)])
    agent = Agent(model, tools=[works], budget=Budget(requests=2, tokens=20, cost=1.0))
    assert [(await agent.run("go")).text for _ in range(2)] == ["one", "two"]
    assert agent.usage == used + used


@pytest.mark.parametrize("budget", [Budget(tokens=100), Budget(cost=1.0)])
async def test_tokens_and_dollars_are_compared_before_each_request(budget: Budget) -> None:
    used = Usage(30, 10, cost=0.4)
    model = ScriptedModel(Turn("", (Call(f"c{n}", "works", {}),), "tool_use", used) for n in range(9))
    outcome = await Agent(model, tools=[works], budget=budget).run("go")
    assert (outcome.reason, len(model.requests)) == ("budget", 3)  # after 40, 80 and 120 tokens
    assert ("tokens" if budget.tokens else "$1.2") in outcome.text


def _warnings(agent: Agent) -> list[str]:
    return [str(event.data["message"]) for event in events_of(agent.session, "warning")]


async def test_an_unknown_price_counts_as_nothing_and_is_said_once() -> None:
    costs = [0.4, None, float("nan"), -5.0, 0.7, None]
    model = ScriptedModel(
        Turn("", (Call(f"c{n}", "works", {}),), "tool_use", Usage(1, 1, cost=cost)) for n, cost in enumerate(costs)
    )
    agent = Agent(model, tools=[works], budget=Budget(cost=1.0))
    outcome = await agent.run("go")
    assert (outcome.reason, len(model.requests)) == ("budget", 5)
    (said,) = _warnings(agent)
    assert "price" in said
    known = Agent(ScriptedModel([Turn("fine", usage=Usage(1, 1, cost=0.1))]), budget=Budget(cost=1.0))
    await known.run("go")
    assert not _warnings(known)


@pytest.mark.parametrize("usage", [Usage(), Usage(None, None)])  # type: ignore[arg-type]
async def test_a_model_that_counts_no_tokens_is_said_once_and_harms_nothing(usage: Usage) -> None:
    model = ScriptedModel([Turn("", (Call("c", "works", {}),), "tool_use", usage), Turn("fine", usage=usage)])
    agent = Agent(model, tools=[works], budget=Budget(tokens=1))
    assert (await agent.run("go")).reason == "done"
    (said,) = _warnings(agent)
    assert "Budget(tokens=1)" in said


async def test_children_of_children_share_the_requests_of_the_run() -> None:
    def answer(messages: Sequence[Message]) -> Turn:
        depth = len(messages[0].text)
        return using("task", prompt="x" * (depth + 1)) if first(messages) and depth < 5 else Turn("done")

    model = Counting(answer)
    agent = Agent(model, tools=[task], budget=Budget(requests=3))
    assert (await agent.run("go")).reason == "budget"
    assert model.asked == 3
    assert {event.data["kind"] for event in endings(agent.session).values()} == {"budget_exhausted"}
    whole = Counting(answer)
    assert (await Agent(whole, tools=[task], budget=Budget(requests=None)).run("go")).reason == "done"
    assert whole.asked > 3


@pytest.mark.parametrize("budget", [Budget(requests=4), Budget(tokens=40), Budget(cost=4.0), Budget(calls=2)])
@pytest.mark.parametrize("is_batch", [True, False])
async def test_a_budget_that_ends_in_a_task_is_said_in_its_result_and_ends_the_run(
    budget: Budget, is_batch: bool
) -> None:
    used = Usage(5, 5, cost=1.0)

    def answer(messages: Sequence[Message]) -> Turn:
        if messages[0].text != "go":
            return Turn("", (Call(f"c{len(messages)}", "works", {}),), "tool_use", used)
        given = {"batch": [{"prompt": "child"}]} if is_batch else {"prompt": "child"}
        return Turn("", (Call("t", "task", given),), "tool_use", used)

    agent = Agent(Counting(answer), tools=[task, works], budget=budget)
    assert (await agent.run("go")).reason == "budget"
    ((_, result),) = paired(agent.messages)
    failure = result.value[0] if is_batch else result.to_envelope("task")
    assert (failure["kind"], failure["data"]["reason"]) == ("budget_exhausted", "budget")
    assert "The budget of this run is used up" in failure["message"]


async def test_a_task_goes_on_after_the_budget_has_ended_another() -> None:
    refused = anyio.Event()

    async def slow() -> str:
        """Wait for the other task."""
        await refused.wait()
        return "done"

    def answer(messages: Sequence[Message]) -> Turn:
        if messages[0].text == "go":
            return doing(2) if first(messages) else Turn("done")
        if first(messages):
            return using("slow") if messages[0].text == "part 0" else using("works")
        return Turn("got it")

    async def see(event: Event) -> None:
        if event.type == "run_ended" and event.data["reason"] == "budget":
            refused.set()

    async with Session([task, slow, works], budget=Budget(calls=3), readers=[see]) as session:
        agent = Agent(Counting(answer), session=session)
        with anyio.fail_after(60):
            assert (await agent.run("go")).reason == "budget"
        ((_, result),) = paired(agent.messages)
    assert [each["ok"] for each in result.value] == [True, False]
    assert result.value[0]["result"]["text"] == "got it"


async def test_a_run_is_cancelled_while_8_tasks_run_and_24_wait() -> None:
    model = Counting(lambda messages: doing(32) if first(messages) and messages[0].text == "go" else Turn("done"))
    model.go = anyio.Event()
    agent = Agent(model, tools=[task])
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "go")
        await until(lambda: model.out == MAX_RUNNING_TASKS_COUNT)
        group.cancel_scope.cancel()
    assert (model.out, model.asked) == (0, 1 + MAX_RUNNING_TASKS_COUNT)  # none of the 24 was begun
    assert len(events_of(agent.session, "run_started")) == len(events_of(agent.session, "run_ended")) == 1 + 8
    assert [event.data["kind"] for event in endings(agent.session).values()] == ["cancelled"]
    model.go.set()
    assert (await agent.run("go on")).reason == "done"


async def test_a_task_that_is_ended_while_it_waits_for_a_place_takes_none_with_it() -> None:
    def answer(messages: Sequence[Message]) -> Turn:
        if messages[0].text == "go" and first(messages):
            return Turn("", tuple(Call(f"t{n}", "task", {"prompt": f"part {n}"}) for n in range(40)), "tool_use")
        return Turn("done")

    model = Counting(answer, holds=True)
    agent = Agent(model, tools=[task])
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "go")
        await until(lambda: model.out == MAX_OPEN_REQUESTS_COUNT)
        await until(lambda: len(events_of(agent.session, "run_started")) == 41)
        for n in (32, 35, 39):  # they wait
            assert await agent.session.terminate(f"t{n}/1")
        assert await agent.session.terminate("t3/1")  # its place goes to the next
        await until(lambda: model.asked == 1 + MAX_OPEN_REQUESTS_COUNT + 1)
        model.go.set()
    assert (model.asked, model.most) == (1 + 37 + 1, MAX_OPEN_REQUESTS_COUNT)
    ended = endings(agent.session)
    assert {id for id, event in ended.items() if event.data["kind"] == "cancelled"} == {"t3", "t32", "t35", "t39"}


def test_the_new_limits_come_after_the_old_ones() -> None:
    budget = Budget(1, 2, 3, 4, 5, 6, 7, 8.5)
    assert (budget.script_seconds, budget.requests, budget.tokens, budget.cost) == (5, 6, 7, 8.5)
    assert (Budget().requests, Budget().tokens, Budget().cost) == (1_000, None, None)


@pytest.mark.parametrize("wrong", [{"requests": -1}, {"requests": 1.5}, {"tokens": "9"}, {"cost": -0.1}])
def test_a_limit_that_is_no_number_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(HandrailError, match=f"Budget.{next(iter(wrong))}"):
        Budget(**wrong)
