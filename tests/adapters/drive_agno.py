"""An agent of Agno whose model plays a script."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse

from handrail import Session
from handrail.adapters import agno
from tests.adapters.scenarios import Rounds, Run, Told


@dataclass
class Script(Model):
    """Its own models are those of providers; this is one more, which asks nobody."""

    id: str = "script"
    answers: Any = None
    told: list[list[Told]] = field(default_factory=list)

    async def ainvoke(self, messages: list[Message], *args: Any, **options: Any) -> ModelResponse:
        since = 1 + max((at for at, each in enumerate(messages) if each.role == "assistant"), default=-1)
        answered = [Told(str(each.content)) for each in messages[since:] if each.role == "tool"]
        pictures = [image.content for each in messages[since:] for image in each.images or ()]
        if pictures:  # they follow in a message of their own
            answered[-1] = Told(answered[-1].text, tuple(pictures))
        self.told.append(answered)
        answer: ModelResponse = next(self.answers)
        return answer

    def invoke(self, *args: Any, **options: Any) -> ModelResponse:
        raise AssertionError("a session is async")

    def invoke_stream(self, *args: Any, **options: Any) -> Iterator[ModelResponse]:
        raise AssertionError("a session is async")

    def ainvoke_stream(self, *args: Any, **options: Any) -> AsyncIterator[ModelResponse]:
        raise AssertionError("no script is streamed")

    def _parse_provider_response(self, response: Any, **options: Any) -> ModelResponse:
        raise AssertionError("there is no provider")

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise AssertionError("there is no provider")


class Agno:
    gives_text = False
    images = True
    streams = False

    def agent(self, session: Session, shown: list[str] | None = None) -> Run:
        tools, ids = agno.tools(session), count()

        async def run(rounds: Rounds) -> list[list[Told]]:
            said = [
                ModelResponse(
                    role="assistant",
                    tool_calls=[
                        {
                            "id": f"call-{next(ids)}",
                            "type": "function",
                            "function": {"name": ask.name, "arguments": ask.text},
                        }
                        for ask in asked
                    ],
                )
                for asked in rounds
            ]
            model = Script(answers=iter([*said, ModelResponse(role="assistant", content="done")]))
            agent = Agent(model=model, tools=tools, telemetry=False)
            done = await agent.arun("go")
            assert done.content == "done", done
            return model.told[1:]

        return run


FRAMEWORK = Agno()
