"""The fakes that are shipped do what they say, so that everything runs with no network."""

from collections.abc import Sequence

import anyio
import pytest

from handrail import Agent, Call, Context, Session
from handrail.contract.model import ModelFailed, TextDelta
from handrail.testing import EventRecorder, Message, ScriptedModel, Turn

pytestmark = pytest.mark.anyio


async def said(model: ScriptedModel, messages: Sequence[Message] = ()) -> list[object]:
    return [event async for event in model.ask(messages, [], system="s")]


async def test_each_line_answers_one_request() -> None:
    turn = Turn("", (Call("1", "t", "{}"),))
    model = ScriptedModel(["hello", turn, lambda messages: f"{len(messages)} messages", lambda messages: turn])
    assert await said(model) == [TextDelta("hello"), Turn("hello")]
    assert await said(model) == [turn]
    assert await said(model, [Message("user", "a")]) == [TextDelta("1 messages"), Turn("1 messages")]
    assert await said(model) == [turn]
    with pytest.raises(ModelFailed, match="ended after 4 answers"):
        await said(model)


async def test_an_exception_is_raised_and_the_script_goes_on() -> None:
    model = ScriptedModel([LookupError("once"), "then"])
    with pytest.raises(LookupError, match="once"):
        await said(model)
    assert len(await said(model)) == 2


async def test_requests_refer_to_the_conversation_as_it_was_and_copy_nothing() -> None:
    model = ScriptedModel([Turn("", (Call("1", "missing", "{}"),)), "end"])
    agent = Agent(model)
    await agent.run("go")
    first, second = model.requests
    assert first.conversation is second.conversation is agent.messages
    assert [message.role for message in first.messages] == ["user"]
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]


async def test_the_recorder_has_seen_everything_when_the_session_has_ended() -> None:
    async def shows(context: Context, n: int) -> int:
        context.show("working")
        await anyio.sleep(0)  # noqa: ASYNC115
        return n

    recorder = EventRecorder()
    async with Session([shows], readers=[recorder]) as session:
        await session.call("shows", {"n": 1}, id="a")
        await session.call("shows", {"n": 2}, id="b")
    assert recorder.events == list(session.trace)
    assert [event.call_id for event in recorder.of("call_ended")] == ["a", "b"]
    types = [event.type for event in recorder.of(call_id="b")]
    assert types == ["call_started", "call_running", "call_output", "call_ended"]
    assert recorder.of("call_output", call_id="c") == []
    assert recorder.of() == recorder.events
