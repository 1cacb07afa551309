"""An MCP server made with the protocol's own library: what well-behaved servers send.

python rich_server.py stdio | http PORT
"""

import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PNG = b"\x89PNG\r\n\x1a\n0000"
server = MCPServer("rich")


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def weather(city: str) -> Weather:
    """How warm it is."""
    return Weather(city=city, degrees=21.5)


@server.tool(annotations=ToolAnnotations(destructive_hint=False, open_world_hint=False))
def note(text: str) -> str:
    """Write it down."""
    return text


@server.tool()
def everything() -> Annotated[CallToolResult, Any]:
    """Every kind of content."""
    blob = b64encode(b"\x00\x01").decode()
    return CallToolResult(
        content=[
            TextContent(type="text", text="hello"),
            ImageContent(type="image", data=b64encode(PNG).decode(), mime_type="image/png"),
            AudioContent(type="audio", data=blob, mime_type="audio/wav"),
            EmbeddedResource(
                type="resource", resource=TextResourceContents(uri="note://1", mime_type="text/plain", text="a note")
            ),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(uri="file:///b.bin", mime_type="application/octet-stream", blob=blob),
            ),
            ResourceLink(type="resource_link", uri="file:///c.txt", name="c.txt", mime_type="text/plain"),
        ]
    )


@server.tool()
def fails(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@server.tool()
async def works(context: Context, steps: int) -> str:
    """Tell how far it is."""
    for step in range(steps):
        await context.report_progress(step + 1, steps, f"step {step + 1}")
    return "done"


@server.tool()
async def waits(marker: str) -> str:
    """Wait for an hour; write into the file whether it was cancelled."""
    try:
        Path(marker).write_text("waiting")
        await anyio.sleep(3_600)
    except BaseException:
        Path(marker).write_text("cancelled")
        raise
    return "late"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
