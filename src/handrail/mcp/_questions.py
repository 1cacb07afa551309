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
"""Given a server's question and the schema of its answer: the answer, or None if there is none."""
MAX_QUESTION_CHARS: Final = 20_000
"""Characters of a question that are passed on."""


@dataclass(slots=True, eq=False)
class _Running:
    """A call that runs, and how often its server has asked meanwhile."""

    clock: Clock | None
    asked: int = 0


class Questions:
    """Asks while the clocks of the calls are paused: a server does not always say for which of them it asks."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._calls: list[_Running] = []
        self._between = _Running(None)
        """Questions since the last call began, while none runs."""

    @contextmanager
    def during(self, clock: Clock) -> Iterator[None]:
        """A call with this clock runs meanwhile."""
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
    """What the user says, with the schema's defaults where the answer leaves something out."""
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
