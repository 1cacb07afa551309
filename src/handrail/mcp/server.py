"""A server of the Model Context Protocol: its clients call Handrail's tools, through every gate of a session."""

from contextlib import AbstractAsyncContextManager
from os import urandom
from typing import Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from handrail.contract.errors import ToolFailed
from handrail.contract.limits import MCP_CLIENT_IDLE, MCP_RUN_PAUSE
from handrail.contract.version import __version__
from handrail.mcp._calls import call_tool, keep_arguments
from handrail.mcp._clients import Clients, OpenSession, open_clients, who
from handrail.mcp._content import definitions
from handrail.mcp._resources import list_resources, list_templates, read_resource
from handrail.misuse import expect_number, refuse

NAME: Final = "handrail"
INSTRUCTIONS: Final = (
    "Every result is an envelope: ok, and then result or kind, message and field. A message says what to do next. "
    "Files and commands are those of a sandbox on the workspace; what leaves it may need a person's approval."
)


def make_server(
    open_session: OpenSession, *, handles: bool = False, idle: float = MCP_CLIENT_IDLE, pause: float = MCP_RUN_PAUSE
) -> Server[Clients]:
    """A server of the SDK, for `serve_stdio`, `serve_http`, or any other transport of the SDK.

    Args:
        open_session: returns a new `async with` block that gives an open Session; each client gets its own.
            Give it `Budget(calls=None, refusals=None)`, because a server has no turns after which counts begin anew.
        handles: clients may open more sandboxes, with the tool `sandbox_open`.
        idle: seconds without a call after which a client's session is closed.
        pause: seconds without a call after which a new run begins: calls that failed again and again are tried anew.
    """
    if not callable(open_session):
        refuse("open_session", open_session, "a function that returns a new Session, such as lambda: Session(tools)")
    for name, seconds in (("idle", idle), ("pause", pause)):
        expect_number(name, seconds, "a number of seconds above 0", least=0, above=True, whole=False)

    def live(_: Server[Clients]) -> AbstractAsyncContextManager[Clients]:
        return open_clients(open_session, handles=handles, idle=idle, pause=pause)

    server: Server[Clients] = Server(
        NAME,
        version=__version__,
        title="Handrail",
        instructions=INSTRUCTIONS,
        lifespan=live,
        on_list_tools=_list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    own_state = RequestStateSecurity(keys=[urandom(32)], bind_principal=who)
    server.middleware.append(RequestStateBoundary(own_state, default_audience=NAME))
    server.middleware.append(keep_arguments)
    return server


async def serve_stdio(server: Server[Clients]) -> None:
    """Serve the program at the other end of stdin and stdout until it closes them."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _list_tools(
    context: ServerRequestContext[Clients, Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    clients = context.lifespan_context
    served = clients.of(context).served()
    try:
        with served.in_use():
            session = await served.session()
            await session.toolbox.refresh()
    except ToolFailed as error:
        raise MCPError(types.INTERNAL_ERROR, error.failure.message) from None
    return types.ListToolsResult(tools=definitions(session, handles=clients.handles))
