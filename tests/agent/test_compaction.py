"""A conversation of any length fits into the model's context, and what was taken out of it can still be read."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from handrail import (
    Agent,
    Budget,
    Call,
    Image,
    Message,
    ModelFailed,
    Sandbox,
    Store,
    Success,
    Turn,
    Usage,
    builtin_tools,
)
from handrail.agent.window import Window, estimate_json_tokens, estimate_tokens
from handrail.contract.model import ModelEvent
from handrail.testing import MemoryDriver, ScriptedModel
from tests.agent.test_loop import paired
from tests.journeys.evidence import events_of

pytestmark = pytest.mark.anyio
UNLIMITED = Budget(calls=None, requests=None)


async def dump(n: int, size: int = 4_000) -> str:
    """Print something large."""
    return f"dump {n}: " + f"{n} is a number. " * (size // 16)


def rendered(messages: Sequence[Message]) -> str:
    """What a provider would be sent of the messages, apart from pictures."""
    return json.dumps(
        [
            [
                message.role, message.text,
                [[call.id, call.name, call.arguments] for call in message.calls],
                [result.to_envelope("dump") for result in message.results],
            ]
            for message in messages
        ],
        ensure_ascii=False,
    )  # fmt: skip


class Small:
    """A model with a small window that refuses what does not fit, and makes one call after the other."""

    max_tokens = 1_000

    def __init__(self, rounds: int, window: int = 20_000, answer: Callable[[int], Turn] | None = None) -> None:
        self.window = self.true_window = window
        self.sizes: list[int] = []
        self.summaries: list[str] = []
        self._rounds = rounds
        self._answer = answer or (lambda n: Turn("", (Call("c", "dump", {"n": n}),), "tool_use"))

    def summary(self) -> Turn:
        return Turn(f"summary {len(self.summaries)}")

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        size = round(
            estimate_tokens(rendered(messages)) + estimate_tokens(json.dumps(list(tools))) + estimate_tokens(system)
        )
        assert size <= self.true_window - self.max_tokens
        if "summarise" in system:
            assert list(tools) == []
            self.summaries.append(messages[0].text)
            yield self.summary()
            return
        self.sizes.append(size)
        if any(message.calls for message in messages):
            paired(messages)
        yield self._answer(len(self.sizes)) if len(self.sizes) <= self._rounds else Turn("done")


async def test_two_thousand_rounds_with_large_results_stay_under_the_window() -> None:
    model = Small(2000)
    agent = Agent(model, tools=[dump, *_artifact_reader()], rounds=2001, budget=UNLIMITED)
    outcome = await agent.run("Dump them all.")
    assert (outcome.reason, len(model.sizes)) == ("done", 2001)
    assert max(model.sizes) > model.window // 2  # the control: there was something to keep small
    assert max(model.sizes) < 0.9 * (model.window - model.max_tokens), "what is collapsed weighs what is sent of it"
    gone = [each for event in events_of(agent.session, "collapsed") for each in event.data["results"]]
    assert len(gone) > 1000
    whole = {event.call_id: event.data["result"] for event in events_of(agent.session, "call_ended")}
    for each in gone[:: len(gone) // 100]:
        assert json.loads(await agent.session.artifacts.read(each["ref"])) == whole[each["call"]]
    page = await agent.session.call("read_artifact", {"ref": gone[-1]["ref"]})
    assert "is a number." in page.value["text"]
    summaries = events_of(agent.session, "summarised")
    assert [event.data["by"] for event in summaries] == ["model"] * len(summaries)
    assert len(summaries) == len(model.summaries) > 3
    assert "Dump them all." in agent.messages[0].text  # what the user wants is never lost
    assert len(agent.messages) < 1000


def _artifact_reader() -> list[Any]:
    return [each for each in builtin_tools("read_only") if each.name == "read_artifact"]


async def test_the_same_rounds_overflow_where_the_window_is_not_known() -> None:
    """The control of all others: the model notices what does not fit."""
    model = Small(30)
    model.window = 10**9
    assert (await Agent(model, tools=[dump]).run("Dump.")).reason == "model_error"


async def test_a_resumed_conversation_is_the_same_after_collapsing_and_summarising(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        first = Agent(Small(260), tools=[dump], rounds=300, budget=UNLIMITED, store=store, name="one")
        async with first:
            assert (await first.run("Dump.")).reason == "done"
        assert events_of(first.session, "collapsed")
        assert events_of(first.session, "summarised")
        async with Agent.resume(Small(40), store, first.session.id, tools=[dump], budget=UNLIMITED) as again:
            assert again.messages == first.messages
            assert rendered(again.messages) == rendered(first.messages)
            assert (await again.run("More.")).reason == "done"


async def test_a_model_that_cannot_summarise_leaves_one_line_for_each_call() -> None:
    class Silent(Small):
        def summary(self) -> Turn:
            raise RuntimeError("I cannot")

    agent = Agent(Silent(400), tools=[dump], rounds=500, budget=UNLIMITED)
    assert (await agent.run("Dump.")).reason == "done"
    first = events_of(agent.session, "summarised")[0]
    assert (first.data["by"], first.data["why"]) == ("lines", "I cannot")
    assert 'dump {"n": 5} -> ok' in first.data["text"]


async def test_a_summary_takes_no_line_of_a_script() -> None:
    class Script(ScriptedModel):
        window = 8_000

    turns = [Turn("", (Call(f"c{n}", "dump", {"n": n, "size": 300}),)) for n in range(300)]
    model = Script([*turns, "done"])
    agent = Agent(model, tools=[dump], budget=UNLIMITED, rounds=301)
    assert (await agent.run("Dump.")).text == "done"
    assert (len(model.requests), agent.session.call_count) == (301, 300)
    assert Script.summary in agent.messages[0].text


async def test_two_hundred_large_results_at_once_fit_too() -> None:
    def answer(n: int) -> Turn:
        return Turn("", tuple(Call(str(k), "dump", {"n": k}) for k in range(200)))

    agent = Agent(Small(3, answer=answer), tools=[dump], budget=UNLIMITED)
    assert (await agent.run("Dump.")).reason == "done"
    assert len(events_of(agent.session, "call_ended")) == 600


async def test_listings_are_collapsed_first_and_say_what_they_were() -> None:
    names = {f"/workspace/src/a_rather_long_name_{n:03}.py": b"text of a file\n" * 400 for n in range(60)}
    turns = [
        ("read", {"path": "src/a_rather_long_name_000.py"}),
        ("read", {"path": "src"}),
        *[("dump", {"n": n}) for n in range(10)],
    ]

    def answer(n: int) -> Turn:
        return Turn("", (Call("c", *turns[n - 1]),))

    sandbox = Sandbox(MemoryDriver(names))
    model = Small(len(turns), answer=answer)
    agent = Agent(model, tools=[dump, *builtin_tools("read_only")], sandbox=sandbox)
    assert (await agent.run("Look.")).reason == "done"
    gone = [each for event in events_of(agent.session, "collapsed") for each in event.data["results"]]
    assert gone[0]["text"].startswith("[60 entries in src; collapsed to save room: read it with read_artifact(ref=")
    assert not any("lines 1 to" in each["text"] for each in gone)  # outputs were enough, so the file stayed
    assert any("an answer of dump" in each["text"] for each in gone)


async def test_answers_shrink_as_the_context_fills() -> None:
    model = Small(2, window=60_000, answer=lambda n: Turn("", (Call("c", "dump", {"n": n, "size": 60_000}),)))
    agent = Agent(model, tools=[dump], budget=UNLIMITED)
    await agent.run("Dump.")
    first, second = (len(result.value) for _, result in paired(agent.messages))
    assert second < first < 60_000
    assert agent.session.tokens_left is not None
    assert 0 < agent.session.tokens_left < 59_000


async def test_a_failure_for_want_of_context_collapses_and_asks_once_more() -> None:
    class Stern(Small):
        """Its true window is much smaller than it says."""

        asked = 0

        async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            if estimate_tokens(rendered(messages)) > 9_000:
                self.asked += 1
                raise ModelFailed("prompt is too long", kind="context")
            async for event in super().ask(messages, tools, system=system):
                yield event

    model = Stern(6, window=128_000, answer=lambda n: Turn("", (Call("c", "dump", {"n": n, "size": 10_000}),)))
    agent = Agent(model, tools=[dump], budget=UNLIMITED)
    assert (await agent.run("Dump.")).reason == "done"
    assert model.asked > 0
    assert len(events_of(agent.session, "retried")) == model.asked == len(events_of(agent.session, "collapsed"))
    hopeless = Agent(Stern(1), tools=[dump])
    outcome = await hopeless.run("x" * 60_000)
    assert (outcome.reason, outcome.text) == ("model_error", "ModelFailed: prompt is too long")


async def test_a_huge_answer_is_summarised_before_the_next_prompt() -> None:
    model = Small(1, answer=lambda n: Turn("y" * 2_000_000))
    agent = Agent(model)
    assert (await agent.run("Say much.")).reason == "done"
    assert (await agent.run("Go on.")).reason == "done"
    assert agent.messages[0].text.endswith("\n\nGo on.")  # it joins the summary
    assert "Say much." in agent.messages[0].text


async def test_pictures_take_room_and_are_collapsed_with_their_result() -> None:
    async def picture(n: int) -> Any:
        """Draw."""
        return {"image": Image(b"\x89PNG..."), "note": "a cat"}

    model = Small(20, answer=lambda n: Turn("", (Call("c", "picture", {"n": n}),)))
    agent = Agent(model, tools=[picture])
    assert (await agent.run("Draw.")).reason == "done"
    shown = [result for message in agent.messages for result in message.results if not isinstance(result.value, str)]
    assert 2 < len(shown) < 12
    assert isinstance(shown[-1], Success)


def test_the_estimate_follows_the_script_and_learns_from_counts() -> None:
    assert estimate_tokens("x" * 3300) == pytest.approx(1000)
    assert estimate_tokens("漢字" * 500) == pytest.approx(900)
    assert estimate_tokens("é" * 330) == pytest.approx(200)
    window = Window(object())
    assert (window.size, window.room) == (128_000, 128_000 - 8_192)
    window.learn(10_000, 10_100, {"input_tokens": 15_000, "output_tokens": 100})
    assert window.ratio == pytest.approx(1.5)  # up at once
    assert window.used(10_100) == 15_100
    assert window.used(11_100) == 16_600
    assert window.used(5_050) == 7_550  # half of it was taken out
    window.learn(10_000, 10_100, {"input_tokens": 10_000, "output_tokens": 0})
    assert window.ratio == pytest.approx(1.45)  # down slowly
    window.learn(10_000, 10_100, {"input_tokens": 10, "output_tokens": 5})  # no true count
    assert window.used(10_000) == 14_500
    small = type("Local", (), {"window": 8_192, "max_tokens": 8_192})
    assert Window(small()).room == 8_192 - 2_048


@pytest.mark.parametrize("text", ["plain", "wide 漢字 ü", "a lone \ud800 one", "", '\x00"\\'])
def test_a_value_weighs_what_its_json_weighs(text: str) -> None:
    value = {"ok": True, "result": {text: [text, 1, 2.5, None]}}
    assert estimate_json_tokens(value) == estimate_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


async def test_a_count_of_the_provider_moves_the_moment_of_collapsing() -> None:
    def answer(n: int) -> Turn:
        return Turn("", (Call("c", "dump", {"n": n, "size": 4_000}),), "tool_use", Usage(2_000 * n, 10))

    counted = Agent(Small(8, window=20_000, answer=answer), tools=[dump])
    await counted.run("Dump.")
    silent = Agent(Small(8, window=20_000, answer=lambda n: Turn("", answer(n).calls)), tools=[dump])
    await silent.run("Dump.")
    assert events_of(counted.session, "collapsed")
    assert not events_of(silent.session, "collapsed")
