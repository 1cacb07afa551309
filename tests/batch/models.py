"""Models for the tests of batches: each task's script is in its prompt, so any number may run at once."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from handrail import Call, Message, ModelEvent, ModelFailed, Turn, Usage

PRICE = 0.01
"""Dollars of each answer."""


def prompt(*commands: str, answer: str = "Done.") -> str:
    """A prompt that makes a PromptedModel run these commands, one per round, and then answer."""
    return json.dumps({"commands": commands, "answer": answer})


class PromptedModel:
    """Does what the prompt says. `failures` are raised first, one per request; afterwards it works."""

    name = "prompted"

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.asked = 0

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        script = json.loads(messages[0].text)
        number = sum(message.role == "assistant" for message in messages)
        if number < len(script["commands"]):
            command = script["commands"][number]
            yield Turn(calls=(Call(f"c{number}", "bash", {"command": command}),), usage=Usage(10, 5, cost=PRICE))
        else:
            yield Turn(script["answer"], usage=Usage(10, 5, cost=PRICE))


class Failing:
    """Fails always, or each `every`-th request, in the same way; the other answers are "Done."."""

    name = "failing"

    def __init__(self, failure: ModelFailed, every: int = 1) -> None:
        self.failure, self.every, self.asked = failure, every, 0

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        self.asked += 1
        if self.asked % self.every == 0:
            raise self.failure
        yield Turn("Done.")
