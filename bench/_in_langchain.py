"""An agent of LangChain that calls `plus`, for the bench of adapters."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from bench.adapters import plus
from handrail import Session
from handrail.adapters import langchain


class Script(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


async def play(count: int, session: Session | None) -> None:
    calls: list[Any] = [{"name": "plus", "args": {"a": 1}, "id": f"call-{number}"} for number in range(count)]
    model = Script(messages=iter([AIMessage("", tool_calls=calls), AIMessage("done")]))
    if session is None:
        agent = create_agent(model, tools=[StructuredTool.from_function(coroutine=plus)])
    else:
        agent = create_agent(model, tools=langchain.tools(session), middleware=[langchain.middleware(session)])
    await agent.ainvoke({"messages": [{"role": "user", "content": "go"}]})
