"""An agent of pydantic-ai that calls `plus`, for the bench of adapters."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from bench.adapters import plus
from handrail import Session
from handrail.adapters import pydantic_ai


async def play(count: int, session: Session | None) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("plus", '{"a": 1}') for _ in range(count)])

    tools: dict[str, Any] = {"tools": [plus]} if session is None else {"toolsets": [pydantic_ai.toolset(session)]}
    await Agent(FunctionModel(answer), **tools).run("go")
