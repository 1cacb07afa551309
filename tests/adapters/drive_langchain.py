"""An agent of LangChain whose model, a GenericFakeChatModel, plays a script."""

import json
from base64 import b64decode
from itertools import count
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from handrail import Session
from handrail.adapters import langchain
from tests.adapters.scenarios import Ask, Rounds, Run, Told


class Script(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


class LangChain:
    gives_text = True
    images = True
    streams = True

    def agent(self, session: Session, shown: list[str] | None = None) -> Run:
        tools, middleware = langchain.tools(session), langchain.middleware(session)

        async def run(rounds: Rounds) -> list[list[Told]]:
            ids = count()  # each run begins anew, as some models do
            said = [as_said([(ask, f"call-{next(ids)}") for ask in asked]) for asked in rounds]
            model = Script(messages=iter([*said, AIMessage("done")]))
            agent = create_agent(model, tools=tools, middleware=[middleware])
            asked = {"messages": [{"role": "user", "content": "go"}]}
            many = {"recursion_limit": 200}
            if shown is None:
                messages: list[Any] = (await agent.ainvoke(asked, many))["messages"]
            else:
                async for mode, piece in agent.astream(asked, many, stream_mode=["values", "custom"]):
                    if mode == "values":
                        messages = piece["messages"]
                    else:
                        shown.append(piece["text"])
            assert messages[-1].content == "done"
            told = {each.tool_call_id: as_told(each) for each in messages if isinstance(each, ToolMessage)}
            return [[told[call["id"]] for call in (*each.tool_calls, *each.invalid_tool_calls)] for each in said]

        return run


def as_said(asked: list[tuple[Ask, str]]) -> AIMessage:
    """What a provider's class of LangChain makes of the model's answer."""
    calls: list[Any] = []
    invalid: list[Any] = []
    for ask, id in asked:
        try:
            calls.append({"name": ask.name, "args": json.loads(ask.text), "id": id})
        except ValueError as error:
            invalid.append({"name": ask.name, "args": ask.text, "id": id, "error": str(error)})
    return AIMessage("", tool_calls=calls, invalid_tool_calls=invalid)


def as_told(message: ToolMessage) -> Told:
    if isinstance(message.content, str):
        told = Told(message.content)
    else:
        parts: list[Any] = message.content
        [text] = [part["text"] for part in parts if part["type"] == "text"]
        told = Told(text, tuple(b64decode(part["base64"]) for part in parts if part["type"] == "image"))
    assert message.status == ("success" if told.envelope["ok"] else "error")
    return told


FRAMEWORK = LangChain()
