"""Tools of LangChain and openai-agents, run by a session: `python -m tests.adapters.foreign` in their environment."""

import asyncio
import sys
from typing import Annotated, Any

from agents import RunContextWrapper, ToolOutputImage, ToolOutputText, function_tool
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolArg, StructuredTool, ToolException
from langchain_core.tools import Tool as OneTextTool
from langchain_core.tools import tool as langchain_tool

from handrail import HandrailError, Image, Session
from handrail.adapters import tools_from


@langchain_tool
def shout(word: str, times: int = 1) -> str:
    """Shout a word."""
    return word.upper() * times


@langchain_tool
async def fails(word: str) -> str:
    """Fail."""
    raise ToolException(f"{word} is not a word")


@langchain_tool
def injected(word: str, user: Annotated[str, InjectedToolArg]) -> str:
    """Needs a user."""
    return user


whisper = OneTextTool("whisper", lambda word: word.lower(), "Whisper a word.")


@langchain_tool
def draw() -> list[dict[str, str]]:
    """Draw it."""
    return [{"type": "text", "text": "see"}, {"type": "image", "base64": "UE5H", "mime_type": "image/png"}]


def configured(word: str, config: RunnableConfig) -> str:
    """Needs the configuration."""
    return str(config)


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one of them
        b: the other
    """
    return a + b


@function_tool
def show() -> list[Any]:
    """Show it."""
    return [ToolOutputText(text="see"), ToolOutputImage(image_url="data:image/png;base64,UE5H")]


@function_tool(needs_approval=True)
async def send(text: str) -> str:
    """Send it."""
    return text


@function_tool
def whose(context: RunContextWrapper[Any], word: str) -> str:
    """Needs the run."""
    return word


def why_refused(given: Any) -> str:
    """What the error says of the tool; nothing if it was taken."""
    try:
        tools_from([given])
    except HandrailError as error:
        return str(error)
    return ""


async def main() -> None:
    tools = tools_from([shout, fails, add, send, whisper, draw, show])
    assert [tool.name for tool in tools] == ["shout", "fails", "add", "send", "whisper", "draw", "show"]
    assert [tool.risk for tool in tools[:4]] == ["safe", "safe", "safe", "high"]
    assert tools[2].parameters["properties"]["a"]["description"] == "one of them"
    async with Session(tools) as session:
        assert (await session.call("shout", '{"word": "a", "times": "2"}')).value == "AA"
        told = await session.call("fails", '{"word": "x"}')
        assert (told.kind, told.message) == ("execution_error", "x is not a word"), told
        assert (await session.call("add", '{"a": "1", "b": 2}')).value == 3
        assert (await session.call("add", '{"a": "many", "b": 2}')).kind == "invalid_args"
        assert (await session.call("send", '{"text": "a"}')).kind == "rejected"
        assert (await session.call("whisper", '{"tool_input": "A"}')).value == "a"
        assert (await session.call("draw")).value == [{"type": "text", "text": "see"}, Image(b"PNG")]
        assert (await session.call("show")).value == ["see", Image(b"PNG")]
    assert "tool injected needs the run (user) of LangChain" in why_refused(injected)
    assert "tool configured needs the run" in why_refused(StructuredTool.from_function(configured))
    assert "tool whose needs the RunContextWrapper of openai-agents" in why_refused(whose)
    sys.stdout.write("all of it holds\n")


if __name__ == "__main__":
    asyncio.run(main())
