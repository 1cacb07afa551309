"""The server that the official conformance suite tries: its fixture tools, behind Handrail's own server.

What can be said as a Tool goes through a session; the rest is in fixture_tools.py and fixture_handlers.py.

    python -m tests.mcp.fixture        # prints its port, and that of a server that lacks a tool
"""

import base64
import socket
from collections.abc import Sequence
from typing import Any, Final

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings

from handrail import Budget, Context, Image, Policy, Session, Tool, tool
from handrail.mcp.server import make_server
from tests.mcp.fixture_events import KeptEvents
from tests.mcp.fixture_handlers import add_handlers
from tests.mcp.fixture_tools import PNG, RAW_TOOLS, raw_definitions

ADDRESS_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
    "required": ["region"],
}
STEP: Final = 0.1
"""Seconds between two pieces of output; those that come sooner may be joined."""


@tool
def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Any:
    """Answer with a picture."""
    return Image(base64.b64decode(PNG), "image/png")


@tool
def test_error_handling() -> str:
    """Fail."""
    raise RuntimeError("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(context: Context) -> str:
    """Show three pieces of output."""
    for step in (0, 50, 100):
        context.show(f"Completed step {step} of 100\n")
        await anyio.sleep(STEP)
    return "done"


@tool(risk="high", effects=["reaches_out"])
def test_elicitation(message: str) -> str:
    """Do what a person must approve."""
    return message


async def _echo(context: Context, arguments: Any) -> Any:
    return dict(arguments)


SESSION_TOOLS: Final = (
    test_simple_text,
    test_image_content,
    test_error_handling,
    test_tool_with_progress,
    test_elicitation,
    Tool("json_schema_2020_12_tool", ADDRESS_SCHEMA, _echo, description="Takes what JSON Schema 2020-12 can say."),
    Tool("test_headers", HEADER_SCHEMA, _echo, description="An argument of it is also a header."),
)


LACKING: Final = "test_image_content"
"""The tool that the second server lacks: the suite must say so."""


def fixture_server(tools: Sequence[Tool] = SESSION_TOOLS) -> Server[Any]:
    """Handrail's server, with the raw fixtures beside the session's tools."""
    server = make_server(lambda: Session(tools, policy=Policy(), budget=Budget(calls=None, refusals=None)))
    listed, called = server.get_request_handler("tools/list"), server.get_request_handler("tools/call")
    assert listed is not None
    assert called is not None

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        answer = await listed.handler(context, params)
        assert isinstance(answer, types.ListToolsResult)
        return answer.model_copy(update={"tools": [*answer.tools, *raw_definitions()]})

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        raw = RAW_TOOLS.get(params.name)
        return await (called.handler(context, params) if raw is None else raw(context, params))

    server.add_request_handler("tools/list", listed.params_type, list_tools)
    server.add_request_handler("tools/call", called.params_type, call_tool)
    add_handlers(server)
    return server


async def serve(listening: socket.socket, server: Server[Any]) -> None:
    """Serve without a token, until a signal comes."""
    port = listening.getsockname()[1]
    hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
    app = server.streamable_http_app(
        event_store=KeptEvents(),
        retry_interval=100,
        transport_security=TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
        ),
    )
    await uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)).serve([listening])


async def main() -> None:
    """Serve on two free ports of this machine."""
    lacking = [each for each in SESSION_TOOLS if each.name != LACKING]
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        async with anyio.create_task_group() as group:
            group.start_soon(serve, one, fixture_server())
            group.start_soon(serve, other, fixture_server(lacking))
            print(one.getsockname()[1], other.getsockname()[1], flush=True)


if __name__ == "__main__":
    anyio.run(main)
