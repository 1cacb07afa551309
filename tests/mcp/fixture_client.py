"""The client that the official conformance suite tries: Handrail's own, which lists and calls what there is.

python -m tests.mcp.fixture_client URL
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import anyio

from handrail import Policy, Session, Tool
from handrail.mcp.client import connect


def arguments_for(tool: Tool, others: list[Tool]) -> dict[str, Any]:
    """Values for what the tool requires; one that wants a schema gets that of another tool, as it came."""
    values: dict[str, Any] = {}
    for name, schema in tool.parameters.get("properties", {}).items():
        if name == "schema":
            values[name] = dict(next(each for each in others if each is not tool).parameters)
        elif name in tool.parameters.get("required", ()):
            values[name] = {"number": 5, "integer": 5, "boolean": True}.get(schema.get("type"), "text")
    return values


async def use_defaults(question: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A person who changes nothing of a form, and says yes where it has to be said."""
    fields = schema.get("properties", {}).items()
    return {name: True for name, field in fields if field.get("type") == "boolean" and "default" not in field}


async def main(url: str) -> None:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls", ())
    wanted = {f"suite__{call['name']}": call["arguments"] for call in given}
    async with connect("suite", url=url, ask=use_defaults) as server:
        tools = list(server.tools)
        async with Session(tools, policy=Policy(mode="open")) as session:
            for tool in tools:
                print(await session.call(tool.name, wanted.get(tool.name, arguments_for(tool, tools))))


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])
