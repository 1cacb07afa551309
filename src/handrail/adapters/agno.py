"""A session's tools for an agent of Agno."""

from collections.abc import Mapping
from typing import Any

from agno.media import Image
from agno.tools.function import Function, ToolResult

from handrail.adapters import _calls
from handrail.session.session import Session


def tools(session: Session) -> list[Function]:
    """The tools of an open session, for `Agent(tools=…)`, which is run with `arun`.

    Agno reads the arguments first: text that is not JSON does not reach the session, and of the texts "true", "false",
    "none" and "null" it makes values. It does not tell its tools where a run begins, so a default budget is replaced
    by one without a number of calls.
    """
    _calls.without_runs(_calls.checked(session))
    return [_tool(session, schema) for schema in session.schemas("mcp")]


def _tool(session: Session, schema: Mapping[str, Any]) -> Function:
    name = schema["name"]

    async def call(**arguments: Any) -> ToolResult:
        result = await _calls.run(session, name, arguments, None)
        pictures = [Image(content=each.data, mime_type=each.media_type) for each in _calls.pictures_of(result)]
        return ToolResult(content=_calls.text_of(result, name), images=pictures or None)

    return Function(
        name=name,
        description=schema.get("description", ""),
        parameters=dict(schema["inputSchema"]),
        entrypoint=call,
        skip_entrypoint_processing=True,  # the schema is ours, and so is the validation
    )
