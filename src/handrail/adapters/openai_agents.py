"""A session's tools for an agent of the OpenAI Agents SDK."""

from collections.abc import Mapping
from typing import Any

from agents import FunctionTool, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from handrail.adapters import _calls
from handrail.session.session import Session


def tools(session: Session) -> list[FunctionTool]:
    """The tools of an open session, for `Agent(tools=…)`.

    The SDK does not say where a run begins, so a default budget is replaced by one without a number of calls.
    """
    _calls.without_runs(_calls.checked(session))
    return [_tool(session, schema) for schema in session.schemas("openai-responses")]


def _tool(session: Session, schema: Mapping[str, Any]) -> FunctionTool:
    name = schema["name"]

    async def invoke(context: ToolContext[Any], text: str) -> str | list[Any]:
        result = await _calls.run(session, name, text, context.tool_call_id)
        told = _calls.text_of(result, name)
        if not (pictures := _calls.pictures_of(result)):
            return told
        urls = [f"data:{each.media_type};base64,{each.base64()}" for each in pictures]
        return [ToolOutputText(text=told), *(ToolOutputImage(image_url=url) for url in urls)]

    return FunctionTool(
        name=name,
        description=schema.get("description", ""),
        params_json_schema=dict(schema["parameters"]),
        on_invoke_tool=invoke,
        strict_json_schema=False,  # strict schemas require every field; ours are sent as they are
    )
