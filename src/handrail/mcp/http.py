"""Serve over HTTP: on this machine unless told otherwise, to requests that have a token and the right host name."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from handrail.contract.limits import MCP_CLIENT_IDLE, MCP_CLOSE_WAIT
from handrail.serving import BearerTokens, ServingLimits, bound, hosts_of, serve_app

MAX_REQUEST_BYTES: Final = 4 << 20
"""Size of the largest HTTP request, in bytes."""
MAX_SESSIONS_PER_TOKEN_COUNT: Final = 64
"""Number of MCP sessions that one token may have open at once over HTTP."""


async def serve_http(
    server: Server[Any], host: str, port: int, tokens: Sequence[str], *, ready: Callable[[str], None]
) -> None:
    """Serve until a signal comes or the caller is cancelled; `ready` is told the address. Port 0 is any free one."""
    known = BearerTokens(tokens)
    with bound(host, port) as listening:
        port = listening.getsockname()[1]
        app = http_app(server, hosts_of(host, port), known)
        ready(f"http://{host if ':' not in host else f'[{host}]'}:{port}/mcp")
        await serve_app(app, listening, known.client_of, ServingLimits(close_seconds=MCP_CLOSE_WAIT))


def http_app(server: Server[Any], hosts: Sequence[str], tokens: BearerTokens) -> ASGIApp:
    """The server at /mcp, for requests that have one of the tokens and one of these host names.

    Each token has a manager of its own, so that no token's sessions use up those of another.
    """
    security = TransportSecuritySettings(
        allowed_hosts=list(hosts), allowed_origins=[f"http://{host}" for host in hosts]
    )
    managers = {
        client: StreamableHTTPSessionManager(
            server,
            security_settings=security,
            session_idle_timeout=MCP_CLIENT_IDLE,
            max_request_body_size=MAX_REQUEST_BYTES,
            max_sessions=MAX_SESSIONS_PER_TOKEN_COUNT,
        )
        for client in tokens.clients
    }

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        await managers[scope["user"].username].handle_request(scope, receive, send)

    @asynccontextmanager
    async def live(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in managers.values():
                await stack.enter_async_context(manager.run())
            yield

    app = Starlette(routes=[Route("/mcp", RequireAuthMiddleware(dispatch, []))], lifespan=live)
    return AuthenticationMiddleware(app, backend=BearerAuthBackend(_Verifier(tokens)))


class _Verifier:
    """The tokens as the SDK asks for them."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        client = self._tokens.find(token)
        return None if client is None else AccessToken(token="", client_id=client, scopes=[])
