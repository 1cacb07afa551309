"""What a program or a model does wrong with an agent is named, and leaves the conversation whole."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from handrail import Agent, Budget, Call, HandrailError, Image
from handrail.contract.model import ModelEvent, ModelFailed, TextDelta, Usage
from handrail.testing import ScriptedModel, Turn
from handrail.tools.task import task
from tests.agent.test_loop import add, paired
from tests.journeys.evidence import events_of

pytestmark = pytest.mark.anyio
PICTURE = Image(b"x", "image/png")


@pytest.mark.parametrize("other", [False, True])
async def test_a_session_has_one_run_at_a_time(other: bool) -> None:
    class Waits(ScriptedModel):
        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            asked.set()
            await go.wait()
            async for event in super().ask(messages, tools, system=system):
                yield event

    asked, go = anyio.Event(), anyio.Event()
    first = Agent(Waits([Turn("", (Call("c", "add", {"a": 1, "b": 2}),)), "done"]), tools=[add])
    second = Agent(ScriptedModel(["no"]), session=first.session) if other else first
    async with anyio.create_task_group() as group:
        group.start_soon(first.run, "one")
        await asked.wait()
        with pytest.raises(HandrailError, match="has a run already"):
            await second.run("two")
        with pytest.raises(HandrailError, match="has a run already"):
            second.stream("two")
        go.set()
    assert [message.text for message in first.messages if message.role == "user"] == ["one"]
    paired(first.messages)
    again = Agent(ScriptedModel(["then"]), session=first.session)
    assert (await again.run("three")).text == "then"


async def test_a_closed_session_has_no_more_runs() -> None:
    async with Agent(ScriptedModel(["one", "two"])) as agent:
        await agent.run("one")
    with pytest.raises(HandrailError, match="closed"):
        await agent.run("two")
    with pytest.raises(HandrailError, match="closed"):
        agent.stream("two")


@pytest.mark.parametrize("images", [None, PICTURE, [b"x"], "abc"])
async def test_images_that_are_none_are_refused(images: Any) -> None:
    with pytest.raises(HandrailError, match="images"):
        await Agent(ScriptedModel(["one"])).run("look", images=images)


@pytest.mark.parametrize("usage", [None, 5, Usage("a", "b")])  # type: ignore[arg-type]
async def test_an_answer_with_a_wrong_count_of_tokens_is_named(usage: Any) -> None:
    outcome = await Agent(ScriptedModel([Turn("x", usage=usage)])).run("go")
    assert outcome.reason == "model_error"
    assert "usage" in outcome.text


@pytest.mark.parametrize("retry_after", [-5, float("nan"), "2", True])
async def test_a_wait_that_is_no_number_of_seconds_is_not_kept(retry_after: Any) -> None:
    busy = ModelFailed("busy", transient=True, retry_after=retry_after)
    agent = Agent(ScriptedModel([busy, "ok"]))
    assert (await agent.run("go")).text == "ok"
    (retried,) = events_of(agent.session, "retried")
    assert 0 < retried.data["wait"] < 2


@pytest.mark.parametrize("talks", [False, True])
async def test_a_model_that_never_ends_its_answer_is_ended_by_the_seconds_of_the_run(talks: bool) -> None:
    class Endless:
        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            while True:
                if talks:
                    yield TextDelta("and ")
                await anyio.sleep(0.001 if talks else 60)

    agent = Agent(Endless(), budget=Budget(seconds=0.2))
    with anyio.fail_after(30):
        outcome = await agent.run("go")
    assert outcome.reason == "budget"
    assert "0.2 s" in outcome.text
    agent.model = ScriptedModel(["fine"])
    assert (await agent.run("and now?")).text == "fine"


async def test_a_run_whose_seconds_are_used_up_by_its_tasks_asks_no_more() -> None:
    class Parent:
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            self.asked.append(messages[0].text)
            if messages[0].text != "go":
                await anyio.sleep(60)
            yield Turn("", (Call("t", "task", {"batch": [{"prompt": "a"}, {"prompt": "b"}]}),))

    model = Parent()
    agent = Agent(model, tools=[task], budget=Budget(seconds=0.3))
    with anyio.fail_after(30):
        outcome = await agent.run("go")
    assert (outcome.reason, sorted(model.asked)) == ("budget", ["a", "b", "go"])
    ((_, result),) = paired(agent.messages)
    assert [each["kind"] for each in result.value] == ["budget_exhausted"] * 2
