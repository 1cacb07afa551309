"""An agent of pydantic-ai whose model, a FunctionModel, plays a script."""

from collections.abc import AsyncIterator

from pydantic_ai import Agent, AgentStreamEvent, BinaryContent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from handrail import Session
from handrail.adapters import pydantic_ai
from tests.adapters.scenarios import Rounds, Run, Told


class PydanticAI:
    gives_text = True
    images = True
    streams = True

    def agent(self, session: Session, shown: list[str] | None = None) -> Run:
        tools = pydantic_ai.toolset(session)

        async def watch(ctx: RunContext[None], events: AsyncIterator[AgentStreamEvent]) -> None:
            async for event in events:
                if shown is not None and isinstance(event, pydantic_ai.HandrailOutput):
                    shown.append(event.text)

        async def run(rounds: Rounds) -> list[list[Told]]:
            told: list[list[Told]] = []
            agent = Agent(script(rounds, told), toolsets=[tools])
            done = await agent.run("go", event_stream_handler=watch if shown is not None else None)
            assert done.output == "done"
            return told

        return run


def script(rounds: Rounds, told: list[list[Told]]) -> FunctionModel:
    """A model that makes the calls of each round, and notes what it is told of them."""

    def asked(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = sum(isinstance(message, ModelResponse) for message in messages)
        if number:
            told.append([as_told(part) for part in messages[-1].parts if isinstance(part, ToolReturnPart)])
        if number == len(rounds):
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(ask.name, ask.text) for ask in rounds[number]])

    async def streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        for at, part in enumerate(asked(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {at: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                yield part.content

    return FunctionModel(asked, stream_function=streamed)


def as_told(part: ToolReturnPart) -> Told:
    content = part.content if isinstance(part.content, list) else [part.content]
    images = tuple(each.data for each in content if isinstance(each, BinaryContent))
    [text] = [each for each in content if isinstance(each, str)]
    return Told(text, images)
