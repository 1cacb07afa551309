"""Answer what a server asks its user, by the function that the program gives for it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import mcp_types as types

from handrail.mcp._listing import without_hidden

Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Given a server's question and the schema of its answer: the answer, or None if there is none."""


async def answer(ask: Ask, params: types.ElicitRequestParams) -> types.ElicitResult:
    """What the user says, with the schema's defaults where the answer leaves something out."""
    if not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")  # a page that is to be opened in a browser
    given = await ask(without_hidden(params.message)[0], params.requested_schema)
    if given is None:
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content={**_defaults(params.requested_schema), **given})


async def answers(ask: Ask, asked: types.InputRequiredResult) -> types.InputResponses | None:
    """An answer to each question of a call; None if one of them is not for a user."""
    found: types.InputResponses = {}
    for key, request in (asked.input_requests or {}).items():
        if not isinstance(request, types.ElicitRequest):
            return None
        found[key] = await answer(ask, request.params)
    return found


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    fields = properties.items() if isinstance(properties, Mapping) else ()
    return {name: field["default"] for name, field in fields if isinstance(field, Mapping) and "default" in field}
