"""What each provider is sent of a conversation that goes on for very long is never something that it would reject."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from handrail import Agent, Message
from handrail.agent.window import estimate_tokens
from handrail.contract.model import Model, ModelEvent
from tests.agent.test_compaction import UNLIMITED, Small, dump
from tests.journeys.evidence import events_of
from tests.models.asking import PROVIDERS, called_and_answered, model_at
from tests.models.shapes import END, SHAPES
from tests.models.wire import Wire, always, serving, stream

pytestmark = pytest.mark.anyio


class Sent(Small):
    """A scripted model. Every so many rounds, what it is told also goes to each provider, over its own SDK."""

    def __init__(self, rounds: int, every: int, models: dict[str, tuple[Model, Wire]]) -> None:
        super().__init__(rounds)
        self._every, self._models = every, models
        self.checked = 0

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        async for event in super().ask(messages, tools, system=system):
            yield event
        if len(self.sizes) % self._every == 0 and tools:
            for provider, (model, wire) in self._models.items():
                async for _ in model.ask(messages, tools, system=system):
                    pass
                self._check(provider, wire.seen.pop().body, messages)
            self.checked += 1

    def _check(self, provider: str, body: Any, messages: Sequence[Message]) -> None:
        calls, results = called_and_answered(provider, body)
        told = [call.id for message in messages for call in message.calls]
        assert calls == results == told
        assert len(set(told)) == len(told)
        assert (
            estimate_tokens(json.dumps(body, ensure_ascii=False)) < 2 * self.window
        )  # with the braces around every message


async def converse(rounds: int, every: int) -> tuple[Sent, Agent]:
    with ExitStack() as open_wires:
        models = {}
        for provider in PROVIDERS:
            whole = stream(*SHAPES[provider](text="So."), end=END.get(provider, "data: [DONE]\n\n"))
            wire = open_wires.enter_context(serving(always(whole)))
            models[provider] = (model_at(wire, provider), wire)
        model = Sent(rounds, every, models)
        agent = Agent(model, tools=[dump], rounds=rounds + 1, budget=UNLIMITED, system="Be brief.")
        outcome = await agent.run("Dump them all.")
    assert (outcome.reason, len(model.sizes)) == ("done", rounds + 1)
    assert events_of(agent.session, "collapsed")
    assert events_of(agent.session, "summarised")
    return model, agent


async def test_each_provider_would_accept_every_hundredth_of_the_first_rounds() -> None:
    model, _ = await converse(400, 100)
    assert model.checked == 4


@pytest.mark.long
async def test_each_provider_would_accept_every_hundredth_of_two_thousand_rounds() -> None:
    model, _ = await converse(2000, 100)
    assert model.checked == 20
