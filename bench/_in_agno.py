"""An agent of Agno that calls `plus`, for the bench of adapters."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse

from bench.adapters import plus
from handrail import Session
from handrail.adapters import agno


@dataclass
class Script(Model):
    id: str = "script"
    count: int = 0

    async def ainvoke(self, messages: list[Any], *args: Any, **options: Any) -> ModelResponse:
        if messages[-1].role == "tool":
            return ModelResponse(role="assistant", content="done")
        call = {"name": "plus", "arguments": '{"a": 1}'}
        calls = [{"id": f"call-{number}", "type": "function", "function": call} for number in range(self.count)]
        return ModelResponse(role="assistant", tool_calls=calls)

    def invoke(self, *args: Any, **options: Any) -> ModelResponse: ...
    def invoke_stream(self, *args: Any, **options: Any) -> Iterator[ModelResponse]: ...
    def ainvoke_stream(self, *args: Any, **options: Any) -> AsyncIterator[ModelResponse]: ...
    def _parse_provider_response(self, response: Any, **options: Any) -> ModelResponse: ...
    def _parse_provider_response_delta(self, response: Any) -> ModelResponse: ...


async def play(count: int, session: Session | None) -> None:
    tools: list[Any] = [plus] if session is None else [*agno.tools(session)]
    await Agent(model=Script(count=count), tools=tools, telemetry=False).arun("go")
