"""Off-shape arguments are repaired or bounced exactly as in process, also those that are no object."""

import json
from typing import Annotated, Any, Literal

import mcp_types as types
import pytest
from mcp.client import Client
from pydantic import Field

from handrail import Session, tool
from tests.mcp.served import NO_LIMIT, PROTOCOLS, client_of, envelope, server_of

pytestmark = pytest.mark.anyio


@tool
def order(
    city: str,
    count: Annotated[int, Field(ge=1)] = 1,
    tags: list[str] | None = None,
    how: Literal["fast", "slow"] = "slow",
) -> dict[str, Any]:
    """Order something."""
    return {"city": city, "count": count, "tags": tags, "how": how}


OFF_SHAPE: list[Any] = [
    {"city": "Rome", "count": "3"},
    {"city": "Rome", "tags": "['a', 'b']"},
    {"city": "Rome", "how": "FAST"},
    {"city": "Rome", "count": None},
    {"City": "Rome"},
    {"city": 5},
    {"count": 0, "city": "Rome"},
    {},
    {"city": "Rome", "unknown": 1},
    '{"city": "Rome"}',
    "{'city': 'Rome', 'count': 2}",
    '```json\n{"city": "Rome"}\n```',
    '{"city": "Ro',
    "Rome",
    "",
    ["Rome"],
    [{"city": "Rome"}],
    7,
    True,
]


class AnyParams(types.RequestParams):
    """The parameters of a call whose arguments may be anything; the SDK's own client sends objects only."""

    name: str
    arguments: Any


class AnyCall(types.Request[AnyParams, Literal["tools/call"]]):
    method: Literal["tools/call"] = "tools/call"


async def raw_call(client: Client, arguments: Any) -> dict[str, Any]:
    request: Any = AnyCall(params=AnyParams(name="order", arguments=arguments))
    return envelope(await client.session.send_request(request, types.CallToolResult))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_client_gets_what_a_program_gets(protocol: str) -> None:
    async with client_of(server_of(order), protocol) as client, Session([order], budget=NO_LIMIT) as session:
        for given in OFF_SHAPE:
            session.begin_run()
            in_process = await session.call("order", given if isinstance(given, dict | str) else json.dumps(given))
            assert await raw_call(client, given) == in_process.to_envelope("order"), given
    assert session.call_count == len(OFF_SHAPE)
    kinds = {event.data["kind"] for event in session.trace if event.type == "call_ended"}
    assert kinds == {None, "invalid_args"}, "some are repaired, and some are bounced"
