"""The Model Context Protocol both ways: Handrail's tools for any client, and any server's tools in Handrail."""

try:
    import mcp  # noqa: F401 - to say what to install
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("handrail.mcp needs mcp: pip install 'handrail[mcp]'", name=error.name) from None

from handrail.mcp.client import ToolServer, connect
from handrail.mcp.http import serve_http
from handrail.mcp.server import make_server, serve_stdio

__all__ = ["ToolServer", "connect", "make_server", "serve_http", "serve_stdio"]
