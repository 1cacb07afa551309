"""A run says why it ended, whatever the model does, and the session can go on."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field, RootModel, field_validator

from handrail import Agent, Budget, Call, CallDelta, HandrailError, Image, NameConflict, Session, Store, builtin_tools
from handrail.contract.model import Message, ModelEvent, ModelFailed, TextDelta, Usage
from handrail.testing import ScriptedModel, Turn
from tests.agent.test_loop import calls, paired
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Answers:
    """A model whose every answer is made by a function of the number of the request, from 1."""

    def __init__(self, answer: Callable[[int], list[Any]]) -> None:
        self.asked = 0
        self._answer = answer

    async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        self.asked += 1
        for event in self._answer(self.asked):
            if isinstance(event, Exception):
                raise event
            yield event


class City(BaseModel):
    """A city and its people."""

    name: str
    people: int = Field(ge=0)

    @field_validator("name")
    @classmethod
    def is_known(cls, name: str) -> str:
        if name == "Atlantis":
            raise ValueError("there is no such city")
        return name


def answering(**fields: Any) -> Turn:
    return Turn("", calls(("answer", fields)), "tool_use")


async def test_a_typed_answer_ends_the_run_with_an_object_of_the_model() -> None:
    model = ScriptedModel([Turn("", calls(("add", {"a": 1, "b": 1}))), answering(name="Oslo", people="700000")])
    agent = Agent(model, tools=[add], output=City)
    outcome = await agent.run("Which city?")
    assert (outcome.reason, outcome.output) == ("done", City(name="Oslo", people=700000))
    assert json.loads(outcome.text) == {"name": "Oslo", "people": 700000}
    assert agent.session.trace[-1].data["output"] == {"name": "Oslo", "people": 700000}
    assert [schema["name"] for schema in model.requests[0].tools] == ["add", "answer"]
    assert "A city and its people" in model.requests[0].tools[1]["description"]
    assert [result.ok for _, result in paired(agent.messages)] == [True, True]


async def test_a_typed_answer_that_the_model_class_refuses_comes_back_with_the_reason() -> None:
    model = ScriptedModel([answering(name="Atlantis", people=1), answering(name="Rome", people=3)])
    agent = Agent(model, output=City)
    assert (await agent.run("go")).output == City(name="Rome", people=3)
    (_, refused), _ = paired(agent.messages)
    assert refused.kind == "invalid_args"
    assert "name: Value error, there is no such city" in refused.message


@pytest.mark.parametrize("text", ["It is Oslo.", ""])
async def test_plain_text_is_sent_back_once_and_then_there_is_no_output(text: str) -> None:
    model = ScriptedModel([text or Turn(), "Oslo, I said.", answering(name="Oslo", people=1)])
    agent = Agent(model, output=City)
    outcome = await agent.run("Which city?")
    assert (outcome.reason, outcome.text, outcome.output) == ("no_output", "Oslo, I said.", None)
    (told,) = events_of(agent.session, "steered")
    assert told.data["why"] == "no_output"
    asked = told.data["text"] if text else f"Which city?\n\n{told.data['text']}"
    assert agent.messages[-2] == Message("user", asked)
    assert (await agent.run("Please.")).output == City(name="Oslo", people=1)  # each run has its own chance


async def test_complete_without_a_typed_answer_is_sent_back_too() -> None:
    done = Turn("", calls(("complete", {"summary": "I found that it is Oslo."})))
    tools = [each for each in builtin_tools("all") if each.name == "complete"]
    agent = Agent(ScriptedModel([done, answering(name="Oslo", people=1)]), tools=tools, output=City)
    assert (await agent.run("go")).output == City(name="Oslo", people=1)
    again = Agent(ScriptedModel([done, done]), tools=tools, output=City)
    assert ((await again.run("go")).reason) == "no_output"


async def test_the_first_of_two_typed_answers_counts() -> None:
    both = Turn("", calls(("answer", {"name": "Oslo", "people": 1}), ("answer", {"name": "Rome", "people": 2})))
    agent = Agent(ScriptedModel([both]), output=City)
    assert (await agent.run("go")).output == City(name="Oslo", people=1)
    assert [result.ok for _, result in paired(agent.messages)] == [True, False]


async def test_an_output_that_is_no_object_is_given_as_value() -> None:
    class Cities(RootModel[list[City]]):
        pass

    turn = answering(value=[{"name": "Oslo", "people": 1}])
    outcome = await Agent(ScriptedModel([turn]), output=Cities).run("go")
    assert outcome.output == Cities([City(name="Oslo", people=1)])


async def test_what_cannot_be_an_output_is_refused_when_the_agent_is_made() -> None:
    def answer() -> str:
        return "mine"

    with pytest.raises(HandrailError, match=r"pydantic\.BaseModel"):
        Agent(ScriptedModel([]), output=dict)
    with pytest.raises(NameConflict, match="answer"):
        Agent(ScriptedModel([]), tools=[answer], output=City)
    session = Session([add])
    toolbox = session.toolbox
    for _ in range(2):
        assert Agent(ScriptedModel([]), session=session, output=City).session.toolbox.names() == ["add", "answer"]
    assert toolbox.names() == ["add"]  # others may use it


@pytest.mark.parametrize(
    ("turn", "reason", "text"),
    [
        (Turn("I was about to", stop="max_tokens"), "cut", "I was about to"),
        (Turn("", stop="max_tokens"), "cut", "limit of tokens"),
        (Turn("I must not.", stop="refused"), "refused", "I must not."),
        (Turn("", stop="refused"), "refused", "refused"),
        (Turn("Fine.", stop="other"), "done", "Fine."),
        (Turn("Fine.", stop="never heard of"), "done", "Fine."),  # type: ignore[arg-type]
    ],
)
async def test_the_reason_tells_how_an_answer_ended(turn: Turn, reason: str, text: str) -> None:
    agent = Agent(ScriptedModel([turn, "going on"]), tools=[add])
    outcome = await agent.run("go")
    assert outcome.reason == reason
    assert text in outcome.text
    warned = [event.data["message"] for event in events_of(agent.session, "warning")]
    assert ["reason that is not known" in message for message in warned] == [True] * (
        turn.stop not in ("max_tokens", "refused")
    )
    assert (await agent.run("again")).text == "going on"


async def test_no_call_of_an_answer_that_was_refused_is_run() -> None:
    made = calls(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2}))
    agent = Agent(ScriptedModel([Turn("", made, "refused"), "ok"]), tools=[add])
    assert (await agent.run("go")).reason == "refused"
    assert [result.kind for _, result in paired(agent.messages)] == ["invalid_args"] * 2
    assert not events_of(agent.session, "call_running")
    assert (await agent.run("on")).reason == "done"


async def test_a_paused_answer_is_asked_on() -> None:
    model = ScriptedModel([Turn("searching", stop="paused"), Turn("", stop="paused", keep={"block": 1}), "found it"])
    agent = Agent(model)
    assert (await agent.run("search")).text == "found it"
    assert [message.role for message in agent.messages] == ["user", "assistant", "assistant", "assistant"]
    assert agent.messages[2].keep == {"block": 1}


async def test_an_empty_answer_is_asked_again_once() -> None:
    turn = Turn("", calls(("add", {"a": 1, "b": 1})))
    model = ScriptedModel([Turn(), turn, Turn(" \n"), "two", Turn(), Turn(), "better"])
    agent = Agent(model, tools=[add])
    assert (await agent.run("go")).text == "two"
    assert [event.data["why"] for event in events_of(agent.session, "steered")] == ["empty", "empty"]
    assert all(message.text.strip() or message.calls or message.results for message in agent.messages)
    outcome = await agent.run("again")
    assert outcome.reason == "model_error"
    assert "neither text nor calls" in outcome.text
    assert (await agent.run("once more")).text == "better"


@pytest.mark.parametrize("prompt", ["", " \n\t"])
async def test_a_blank_prompt_is_a_mistake_and_nothing_is_recorded(prompt: str) -> None:
    agent = Agent(ScriptedModel(["never"]))
    with pytest.raises(HandrailError, match="blank"):
        await agent.run(prompt)
    with pytest.raises(HandrailError, match="blank"):
        agent.stream(prompt)
    with pytest.raises(HandrailError, match="write a text"):
        await agent.run(None)  # type: ignore[arg-type]
    assert agent.session.event_count == 0


async def test_the_images_of_a_prompt_reach_the_model_and_are_kept(tmp_path: Path) -> None:
    images = [Image(b"\x89PNG one"), Image(b"GIF two", "image/gif")]
    model = ScriptedModel(["A cat.", "Two cats."])
    with Store(tmp_path / "s.db") as store:
        async with Agent(model, store=store) as agent:
            await agent.run("What is this?", images=images)
            assert [event.type async for event in agent.stream("", images=images[:1])][-1] == "run_ended"
        refs = [event.data["images"] for event in events_of(agent.session, "user")]
        assert [len(each) for each in refs] == [2, 1]
        assert model.requests[0].messages == [Message("user", "What is this?", images=tuple(images))]
        resumed = Agent.resume(ScriptedModel([]), store, agent.session.id)
        assert resumed.messages == agent.messages
    with pytest.raises(HandrailError, match="Image"):
        await Agent(model).run("look", images=[b"raw"])  # type: ignore[list-item]


async def test_async_with_closes_the_session_that_the_agent_made_and_no_other() -> None:
    async with Agent(ScriptedModel(["hi"])) as agent:
        assert (await agent.run("go")).text == "hi"
    with pytest.raises(HandrailError, match="closed"):
        await agent.session.call("add", {"a": 1, "b": 1})
    async with Session([add]) as session:
        async with Agent(ScriptedModel(["hi"]), session=session) as agent:
            await agent.run("go")
        assert (await session.call("add", {"a": 1, "b": 1})).value == 2


async def test_an_agent_has_a_name_in_its_events() -> None:
    agent = Agent(ScriptedModel(["hi"]), name="scout")
    await agent.run("go")
    (started,) = events_of(agent.session, "run_started")
    assert started.data["agent"] == agent.name == "scout"


async def test_five_hundreds_are_tried_again_and_the_wait_that_is_asked_for_is_kept() -> None:
    failed = ModelFailed("503", transient=True)
    asked = ModelFailed("429", transient=True, retry_after=0.3, kind="busy")
    model = Answers(lambda n: [[failed], [asked], [TextDelta("here"), Turn("here", usage=Usage(1, 1))]][n - 1])
    agent = Agent(model)
    began = anyio.current_time()
    assert (await agent.run("go")).text == "here"
    waits = [event.data["wait"] for event in events_of(agent.session, "retried")]
    assert waits[1] == 0.3
    assert 0.25 <= waits[0] <= 0.75
    assert anyio.current_time() - began >= sum(waits)
    assert agent.usage == Usage(1, 1)


async def test_a_wait_of_an_hour_ends_the_run_and_says_so() -> None:
    model = Answers(lambda n: [ModelFailed("429", transient=True, retry_after=3600)] if n == 1 else [Turn("now")])
    agent = Agent(model)
    outcome = await agent.run("go")
    assert (outcome.reason, model.asked) == ("model_error", 1)
    assert "3,600 s" in outcome.text
    assert (await agent.run("again")).text == "now"


async def test_five_tries_are_all_and_the_next_run_goes_on() -> None:
    def answer(n: int) -> list[Any]:
        return [ModelFailed("overloaded", transient=True, retry_after=0.001)] if n <= 5 else [Turn("back")]

    model = Answers(answer)
    agent = Agent(model)
    assert ((await agent.run("go")).reason, model.asked) == ("model_error", 5)
    assert [event.data["try"] for event in events_of(agent.session, "model_asked")] == [1, 2, 3, 4, 5]
    assert len(events_of(agent.session, "retried")) == 4
    assert (await agent.run("again")).text == "back"


async def test_calls_of_a_stream_that_ends_without_its_turn_are_never_run() -> None:
    ran: list[int] = []

    def touch(n: int) -> None:
        ran.append(n)

    pieces = [TextDelta("let me"), CallDelta(0, "touch", '{"n": 1}')]
    model = Answers(lambda n: pieces if n == 1 else [Turn("whole")])
    agent = Agent(model, tools=[touch])
    assert (await agent.run("go")).text == "whole"
    (retried,) = events_of(agent.session, "retried")
    shown = [agent.session.trace[seq].type for seq in retried.data["taken_back"]]
    assert shown == ["text", "call_text"]
    assert ran == []
    assert not events_of(agent.session, "call_started")


async def test_a_cancelled_wait_for_the_next_try_ends_the_run() -> None:
    agent = Agent(Answers(lambda n: [ModelFailed("429", transient=True, retry_after=59)]))
    with anyio.move_on_after(0.1) as scope:
        await agent.run("go")
    assert scope.cancelled_caught
    assert agent.session.trace[-1].data["reason"] == "cancelled"


async def bad_input(agent: Agent, store: Store) -> None:
    """After any of it: each call has one result, the stored session is whole, and it can be resumed."""
    if events_of(agent.session, "call_started"):
        endings(agent.session)
        paired(agent.messages)
    async with agent.session:
        pass
    assert list(store.events(agent.session.id)) == list(agent.session.trace)
    json.dumps([event.data for event in agent.session.trace])
    resumed = Agent.resume(ScriptedModel(["resumed"]), store, agent.session.id)
    assert resumed.messages == agent.messages
    async with resumed:
        assert (await resumed.run("go on")).text == "resumed"
    for message in resumed.messages:
        text = f"{message.text}{[(call.name, call.arguments) for call in message.calls]}"
        text += "".join(json.dumps(each.to_envelope("t"), ensure_ascii=False) for each in message.results)
        text.encode()  # a lone surrogate cannot be sent


MANY = tuple(Call("same", "add", {"a": n, "b": 1}) for n in range(200))
BAD: dict[str, Any] = {
    "two hundred calls with one id": lambda n: [Turn("", MANY)] if n == 1 else [Turn("done")],
    "lone surrogates": lambda n: (
        [
            TextDelta("a\ud800"),
            Turn("a\ud800", (Call("\udfff", "a\udc80d", '{"a": "\ud800"}'), Call("x", "add", {"a": "\ud800"}))),
        ]
        if n == 1
        else [Turn("\udcff bytes")]
    ),
    "names that no provider accepts": lambda n: (
        [Turn("", (Call("", "", "{}"), Call("y" * 900, "weird name " * 40, "")))] if n == 1 else [Turn("done")]
    ),
    "a call cut at max_tokens": lambda n: (
        [Turn("", (Call("1", "add", '{"a": 1, "b'),), "max_tokens")] if n == 1 else [Turn("done")]
    ),
    "a reason to stop that nobody knows": lambda n: (
        [Turn("", (Call("1", "add", {"a": 1, "b": 1}), Call("2", "add", {"a": 1, "b": 2})), "sleepy")]  # type: ignore[arg-type]
        if n == 1
        else [Turn("done", stop="other")]
    ),
    "a stream without its end, with calls in it": lambda n: (
        [TextDelta("I add."), CallDelta(0, "add", '{"a": 1, "b": 2}')] if n == 1 else [Turn("done")]
    ),
    "20 MB of text": lambda n: [TextDelta("x" * 20_000_000), Turn("x" * 20_000_000)],
    "bytes for text": lambda n: [Turn(b"\xff")],  # type: ignore[arg-type]
    "no call at all": lambda n: [Turn("", ("add",))],  # type: ignore[arg-type]
    "a list for arguments": lambda n: [Turn("", (Call("1", "add", [1]),))],  # type: ignore[arg-type]
    "nothing": lambda n: [Turn()],
    "two turns": lambda n: [Turn("one"), Turn("two")],
    "an error of its own": lambda n: [TextDelta("x"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")],
}


@pytest.mark.parametrize("what", BAD)
async def test_whatever_a_model_sends_the_session_is_whole_and_can_be_resumed(what: str, tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        agent = Agent(Answers(BAD[what]), tools=[add], store=store)
        outcome = await agent.run("go")
        assert outcome.reason in ("done", "model_error", "cut")
        assert outcome.text
        await bad_input(agent, store)


async def test_the_same_call_for_ever_ends_by_a_limit() -> None:
    def fails() -> None:
        raise RuntimeError("again")

    def same(n: int) -> list[Any]:
        return [Turn("", (Call("1", "fails", "{}"),))]

    agent = Agent(Answers(same), tools=[fails], budget=Budget(refusals=5))
    outcome = await agent.run("go")
    assert outcome.reason == "budget"
    kinds = [event.data["kind"] for event in endings(agent.session).values()]
    assert kinds == ["execution_error"] * 3 + ["rejected"] * 5 + ["budget_exhausted"]
    endless = Agent(Answers(lambda n: [Turn("", (Call("1", "add", {"a": n, "b": 1}),))]), tools=[add])
    assert (await endless.run("go")).reason == "round_limit"
    assert len(endings(endless.session)) == 64


async def test_the_same_success_for_ever_ends_by_the_limit_of_refusals() -> None:
    endless = Agent(Answers(lambda n: [Turn("", (Call("1", "add", {"a": 1, "b": 1}),))]), tools=[add])
    assert (await endless.run("go")).reason == "budget"
    kinds = [event.data["kind"] for event in endings(endless.session).values()]
    assert kinds == [None] * 10 + ["rejected"] * 50 + ["budget_exhausted"]


async def test_a_session_whose_tool_is_gone_can_be_resumed(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        async with Agent(
            ScriptedModel([Turn("", calls(("add", {"a": 1, "b": 1}))), "2"]), tools=[add], store=store
        ) as agent:
            await agent.run("add")
        again = Turn("", calls(("add", {"a": 2, "b": 2})))
        async with Agent.resume(ScriptedModel([again, "sorry"]), store, agent.session.id) as resumed:
            assert (await resumed.run("again")).text == "sorry"
        assert [result.kind for _, result in paired(resumed.messages)] == [None, "tool_not_found"]
