"""A server with the tools of a test, and clients of both protocols in the same process."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.server import Server

from handrail import Budget, Policy, Sandbox, Session, builtin_tools, open_sandbox
from handrail.mcp.server import make_server
from handrail.toolkit.as_tool import ToolLike

OLD: Final = "legacy"
NEW: Final = "2026-07-28"
PROTOCOLS: Final = (OLD, NEW)
NO_LIMIT: Final = Budget(calls=None, refusals=None)


def server_of(
    *tools: ToolLike,
    seen: list[Session] | None = None,
    policy: Policy | None = None,
    sandbox: Sandbox | None = None,
    **options: Any,
) -> Server:
    """A server whose sessions have these tools; `seen` gets every session that is opened."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Session]:
        async with Session(tools, sandbox=sandbox, policy=policy or Policy(), budget=NO_LIMIT) as session:
            if seen is not None:
                seen.append(session)
            yield session

    return make_server(opened, **options)


def jailed(workspace: Path, seen: list[Session] | None = None, driver: str = "auto", **options: Any) -> Server:
    """A server of the built-in tools in a sandbox on this directory."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Session]:
        async with (
            open_sandbox(driver, workspace=workspace) as sandbox,
            Session(builtin_tools(), sandbox=sandbox, budget=NO_LIMIT) as session,
        ):
            if seen is not None:
                seen.append(session)
            yield session

    return make_server(opened, **options)


def client_of(server: Any, protocol: str, **options: Any) -> Client:
    return Client(server, mode=protocol, **options)


def approving(
    decision: str = "approve", asked: list[str] | None = None, *, action: str = "accept"
) -> Callable[..., Any]:
    """What a client does with a question: a person who always decides the same."""

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        if asked is not None:
            asked.append(params.message)
        return types.ElicitResult(action=action, content={"decision": decision} if action == "accept" else None)

    return answer


def envelope(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def texts(result: types.CallToolResult) -> Sequence[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


async def until(condition: Callable[[], object]) -> None:
    """Wait for it, however busy the machine is."""
    with anyio.fail_after(90):
        while True:
            if condition():
                return
            await anyio.sleep(0.02)
