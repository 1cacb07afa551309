"""Answers that never end, or that end twice, harm nobody."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Agent, Call, CallDelta, Message, ModelEvent, Store, TextDelta, ThinkingDelta, Turn
from handrail.contract.limits import MAX_ANSWER_BYTES
from handrail.testing import ScriptedModel
from tests.gates.asked import until
from tests.journeys.evidence import events_of

pytestmark = pytest.mark.anyio
PIECE = 1 << 18


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Endless:
    """A model that writes the same piece for ever, but answers everything else."""

    def __init__(self, piece: ModelEvent) -> None:
        self.piece = piece
        self.pieces = 0
        self.closed = False

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        if messages[-1].text != "go":
            yield Turn("fine")
            return
        try:
            while True:
                self.pieces += 1
                yield self.piece
        finally:
            self.closed = True


PIECES: dict[str, tuple[ModelEvent, int]] = {
    "text": (TextDelta("x" * PIECE), PIECE),
    "of two bytes each": (TextDelta("é" * PIECE), 2 * PIECE),
    "reasoning": (ThinkingDelta("x" * PIECE), PIECE),
    "arguments": (CallDelta(0, "add", "x" * PIECE), PIECE),
    "larger than an answer": (TextDelta("x" * (MAX_ANSWER_BYTES + PIECE)), MAX_ANSWER_BYTES + PIECE),
}


@pytest.mark.parametrize("what", PIECES)
async def test_an_answer_that_never_ends_is_cut(what: str, tmp_path: Path) -> None:
    piece, size = PIECES[what]
    model = Endless(piece)
    with Store(tmp_path / "s.db") as store:
        async with Agent(model, tools=[add], store=store) as agent:
            outcome = await agent.run("go")
            assert (outcome.reason, model.closed) == ("cut", True)
            assert model.pieces <= MAX_ANSWER_BYTES // size + 1
            shown = [event for event in agent.session.trace if event.type in ("text", "thinking", "call_text")]
            assert sum(len(event.data["text"].encode()) for event in shown) <= MAX_ANSWER_BYTES + size
            (answered,) = events_of(agent.session, "model_answered")
            assert len(answered.data["text"].encode()) <= MAX_ANSWER_BYTES
            assert answered.data["calls"] == []
            (warning,) = events_of(agent.session, "warning")
            assert "16 MiB" in warning.data["message"]
            assert (await agent.run("and now?")).text == "fine"


async def test_many_small_pieces_are_cut_before_they_fill_the_memory() -> None:
    model = Endless(TextDelta(""))
    agent = Agent(model)
    assert (await agent.run("go")).reason == "cut"
    assert agent.session.event_count < MAX_ANSWER_BYTES // 64 + 10


async def test_an_answer_that_never_waits_can_be_cancelled() -> None:
    model = Endless(TextDelta(""))
    agent = Agent(model)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "go")
        await until(lambda: model.pieces > 0)
        group.cancel_scope.cancel()
    assert model.closed
    assert agent.session.trace[-1].data["reason"] == "cancelled"


@pytest.mark.parametrize("where", ["text", "arguments"])
async def test_an_answer_that_comes_whole_is_cut_too(where: str) -> None:
    large = "x" * (MAX_ANSWER_BYTES + 1)
    turn = Turn(large) if where == "text" else Turn("I add.", (Call("c", "add", large),), "tool_use")

    class Whole:
        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            yield turn

    agent = Agent(Whole(), tools=[add])
    outcome = await agent.run("go")
    assert outcome.reason == "cut"
    assert outcome.text == turn.text[:MAX_ANSWER_BYTES]
    assert not events_of(agent.session, "call_started")


async def test_an_answer_below_the_limit_is_whole() -> None:
    text = "x" * (MAX_ANSWER_BYTES - 100)
    outcome = await Agent(ScriptedModel([text])).run("go")
    assert (outcome.reason, outcome.text) == ("done", text)


async def test_a_second_turn_in_an_answer_is_an_error_of_the_models_client() -> None:
    class Twice:
        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            yield Turn("one", (Call("c", "add", {"a": 1, "b": 2}),), "tool_use")
            yield Turn("two")

    agent = Agent(Twice(), tools=[add])
    outcome = await agent.run("go")
    assert outcome.reason == "model_error"
    assert "Twice.ask yielded a second Turn in one answer" in outcome.text
    assert not events_of(agent.session, "call_started")
