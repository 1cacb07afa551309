"""Answer what a server asks its user, by the function that the program gives for it; a call allows only so many."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import mcp_types as types

from handrail.contract.clock import Clock
from handrail.contract.limits import MCP_MAX_QUESTIONS_COUNT
from handrail.mcp._listing import without_hidden

Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Function that answers a server's question, given the schema of the answer; None declines."""
MAX_QUESTION_CHARS: Final = 20_000
"""Length of a question that is passed on, in characters."""


@dataclass(slots=True, eq=False)
class _Running:
    """A call that runs, and how often its server has asked meanwhile."""

    clock: Clock | None
    asked: int = 0


class Questions:
    """Answers to a server, given with all clocks paused: a server does not always say for which call it asks."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._calls: list[_Running] = []
        self._between = _Running(None)
        """Counter of the questions that a server asks while no call runs."""

    @contextmanager
    def during(self, clock: Clock) -> Iterator[None]:
        """Count a call with this clock as running during the block."""
        call, self._between = _Running(clock), _Running(None)
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    async def __call__(self, question: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The user's answer; None also if the server has asked too often."""
        running = self._calls or [self._between]
        call = next((each for each in running if each.asked < MCP_MAX_QUESTIONS_COUNT), None)
        if call is None:
            return None
        call.asked += 1
        with ExitStack() as paused:
            for each in self._calls:
                if each.clock is not None:
                    paused.enter_context(each.clock.pause())
            return await self._ask(question, schema)


async def answer(ask: Ask, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The user's answer, with the schema's defaults for the fields it leaves out."""
    if not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")  # a page that is to be opened in a browser
    given = await ask(without_hidden(params.message[:MAX_QUESTION_CHARS])[0], params.requested_schema)
    if given is None:
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content={**_defaults(params.requested_schema), **given})


async def answers(ask: Ask, asked: types.InputRequiredResult) -> types.InputResponses | None:
    """An answer to each question of a call; None if one of them is not for a user, or if there are too many."""
    requests = asked.input_requests or {}
    if len(requests) > MCP_MAX_QUESTIONS_COUNT:
        return None
    found: types.InputResponses = {}
    for key, request in requests.items():
        if not isinstance(request, types.ElicitRequest):
            return None
        found[key] = await answer(ask, request.params)
    return found


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    fields = properties.items() if isinstance(properties, Mapping) else ()
    return {name: field["default"] for name, field in fields if isinstance(field, Mapping) and "default" in field}
