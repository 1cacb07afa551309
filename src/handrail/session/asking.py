"""Ask the model: show its answer while it is written, try again what may pass, and record the whole of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from random import random
from typing import Any, Final, get_args

import anyio

from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.expect import refuse, shown
from handrail.contract.limits import FIRST_RETRY_WAIT, LONGEST_RETRY_AFTER
from handrail.contract.model import (
    CallDelta,
    Message,
    Model,
    ModelEvent,
    ModelFailed,
    Stop,
    TextDelta,
    ThinkingDelta,
    Turn,
    Usage,
)
from handrail.contract.result import to_wire
from handrail.session._host import SEARCH
from handrail.session._room import Room
from handrail.session.messages import Conversation
from handrail.session.session import Session
from handrail.session.window import weigh, weigh_json
from handrail.toolkit.tracing import TracedAgent

MAX_TRIES: Final = 5
"""Requests for one answer, where they fail for a reason that may pass."""
CALLS_AT_FULL_CAPS: Final = 6
"""Calls of one answer whose results fit where each may use its caps in full."""
PIECES: Final = frozenset({"text", "thinking", "call_text"})
HOW_TO_ASK: Final = "write `async def ask(self, messages, tools, *, system)` with `yield Turn(…)` in it"
STOPS: Final = frozenset(get_args(Stop))
NUMBERS: Final = (int, float, type(None))


class Asking:
    """Puts the conversation of a session to a model. `usage` is what all requests took."""

    def __init__(self, agent: TracedAgent, session: Session, conversation: Conversation, name: str) -> None:
        self.usage = Usage()
        self._agent, self._name = agent, name
        self._session, self._conversation = session, conversation
        self._room = Room(session, conversation, self._aside)
        self._weighed: list[dict[str, Any]] | None = None
        """The schemas whose weight is known."""

    def tokens_left(self, calls: int) -> int:
        """Tokens left for the results of so many calls: each may answer as if it had about a sixth of them."""
        self._conversation.follow(self._session)
        left = self._conversation.window.left(self._conversation.weight)
        return left * CALLS_AT_FULL_CAPS // max(calls, CALLS_AT_FULL_CAPS)

    async def turn(self) -> Turn:
        """The model's answer. A transient failure is tried again, after a while. Raises ModelFailed."""
        self._weigh_tools()
        await self._room.make()
        attempt, shrunk = 1, False
        while True:
            began = self._session.event_count
            try:
                return self._record(_checked(await self._traced(attempt)))
            except ModelFailed as error:
                if error.kind == "context" and not shrunk and await self._room.make(forced=True):
                    shrunk = True
                    self._take_back(began, str(error), 0.0)
                elif not error.transient or attempt >= MAX_TRIES:
                    raise
                elif (error.retry_after or 0) > LONGEST_RETRY_AFTER:
                    message = f"{error} (the provider asks to wait {error.retry_after:,.0f} s)"
                    raise ModelFailed(
                        message, transient=True, retry_after=error.retry_after, kind=error.kind
                    ) from error
                else:
                    await self._wait(error, attempt, began)
                attempt += 1

    def _weigh_tools(self) -> None:
        schemas = self._session.schemas("mcp")
        if schemas != self._weighed:
            self._weighed = schemas
            self._conversation.window.fixed = weigh_json(schemas) + weigh(self._agent.system)

    def _offered(self) -> list[dict[str, Any]]:
        """The tools for one request, with a search for the deferred ones; a provider's own search is given them all."""
        host = self._session.host
        schemas = [*self._session.schemas("mcp"), *host.hosted_schemas()]
        if getattr(self._agent.model, "searches", False) is True:
            return [*(each for each in schemas if each["name"] != SEARCH), *host.deferred_schemas()]
        if host.lacks_search():
            return sorted([*schemas, host.search_schema()], key=lambda each: each["name"])
        return schemas

    async def _aside(self, system: str, text: str) -> tuple[str, Usage]:
        """Ask the model something that is not part of the conversation, without tools. Raises ModelFailed."""
        turn: Turn | None = None
        answer = self._agent.model.ask([Message("user", text)], [], system=system)
        try:
            async for event in answer:
                turn = event if isinstance(event, Turn) else turn
        finally:
            await _close(answer)
        if turn is None or not isinstance(turn.text, str) or not turn.text.strip():
            raise ModelFailed("the model gave no summary")
        self.usage += turn.usage
        return turn.text, turn.usage

    async def _wait(self, error: ModelFailed, attempt: int, began: int) -> None:
        wait = error.retry_after or min(FIRST_RETRY_WAIT * 2 ** (attempt - 1), LONGEST_RETRY_AFTER)
        wait *= 1 if error.retry_after else 0.5 + random()  # so that many clients do not come back at once
        self._take_back(began, str(error), wait)
        await anyio.sleep(wait)

    def _take_back(self, began: int, why: str, wait: float) -> None:
        """Record that a request failed and is made again: what was shown of its answer since `began` is void."""
        new = self._session.trace_from(began)
        shown = [event.seq for event in new if event.type in PIECES and event.parent == self._conversation.parent]
        self._session.emit("retried", data={"why": why, "wait": wait, "taken_back": shown})

    async def _traced(self, attempt: int) -> Turn:
        """One request to the model, in a span of its own if the session is traced."""
        tracing, ask = self._session.tracing, partial(self._request, attempt)
        return await (ask() if tracing is None else tracing.ask(self._agent, ask))

    async def _request(self, attempt: int) -> Turn:
        emit, model = self._session.emit, self._agent.model
        messages = self._conversation.follow(self._session)
        emit("model_asked", data={"try": attempt, "messages": len(messages), "estimate": self._estimate()})
        turn: Turn | None = None
        given = model.ask(messages, self._offered(), system=self._agent.system)
        if not hasattr(given, "__aiter__"):
            raise ModelFailed(f"{type(model).__name__}.ask returned {shown(given)}; {HOW_TO_ASK}")
        try:
            async for event in given:
                if isinstance(event, Turn):
                    turn = event
                elif isinstance(event, CallDelta):
                    emit("call_text", data={"index": event.index, "name": str(event.name), "text": str(event.text)})
                elif isinstance(event, TextDelta | ThinkingDelta):
                    emit("text" if isinstance(event, TextDelta) else "thinking", data={"text": str(event.text)})
                else:
                    raise ModelFailed(f"{type(model).__name__}.ask yielded {shown(event)}; {HOW_TO_ASK}")
        finally:
            await _close(given)
        if turn is None:
            raise ModelFailed("the model's answer ended before it was complete", transient=True, kind="cut")
        return turn

    def _estimate(self) -> int:
        return self._conversation.window.used(self._conversation.weight)

    def _record(self, turn: Turn) -> Turn:
        """The answer as it is written into the transcript: with its own ids, and its cut calls marked."""
        self.usage += turn.usage
        turn = turn if turn.stop in STOPS else replace(turn, stop="other")
        calls = self._session.ids.for_answer(turn.calls)
        if turn.stop not in ("end", "tool_use"):  # the model was cut off inside its last call, or took all of it back
            whole = 0 if turn.stop == "refused" else len(calls) - 1
            calls = tuple(call if at < whole else replace(call, cut=True) for at, call in enumerate(calls))
        listed = [
            {"id": call.id, "name": call.name, "arguments": to_wire(call.arguments), "cut": call.cut} for call in calls
        ]
        self._session.emit(
            "model_answered",
            data={
                "text": turn.text, "calls": listed, "stop": turn.stop, "model": self._name,
                "usage": turn.usage.as_data(), "keep": turn.keep,
            },
        )  # fmt: skip
        if turn.stop == "other":
            message = "The model stopped for a reason that is not known; its answer may be incomplete."
            self._session.emit("warning", data={"message": message})
        return turn if calls == turn.calls else replace(turn, calls=calls)


def checked_model(model: Model) -> Model:
    """The given model. Raises HandrailError for anything else."""
    if isinstance(model, type):
        refuse("Agent.model", model, f"an object of it: {model.__name__}(…)")
    if not callable(getattr(model, "ask", None)):
        write = "an object whose ask yields a Turn"
        if isinstance(model, str):
            name = model if ":" in model else f"PROVIDER:{model}"
            write = f"Agent(open_model({name!r})), with handrail.models.open_model, or give {write}"
        raise HandrailError(f"{shown(model)} is not a Model: missing ask; write {write}")
    if iscoroutinefunction(model.ask):
        raise HandrailError(f"{type(model).__name__}.ask returns its answer; {HOW_TO_ASK}")
    return model


def _checked(turn: Turn) -> Turn:
    """The answer. Raises ModelFailed for one that cannot be recorded: a model may be anybody's code."""
    wrong = "" if isinstance(turn.text, str) else f"its text is {type(turn.text).__name__}"
    if not isinstance(turn.usage, Usage) or not all(isinstance(n, NUMBERS) for n in turn.usage.as_data().values()):
        wrong = f"its usage is {shown(turn.usage)}, not a Usage with numbers"
    for call in turn.calls:
        if not isinstance(call, Call) or not isinstance(call.id, str) or not isinstance(call.name, str):
            wrong = "a call in it has no id or no name"
        elif not isinstance(call.arguments, str | Mapping):
            wrong = f"the arguments of {call.name} are {type(call.arguments).__name__}"
    if wrong:
        raise ModelFailed(f"the model's answer cannot be used: {wrong}")
    return turn


async def _close(answer: AsyncIterator[ModelEvent]) -> None:
    """End an answer that may be left early; a provider's connection would stay open."""
    if isinstance(answer, AsyncGenerator):
        await answer.aclose()
