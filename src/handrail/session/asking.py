"""Ask the model: show its answer while it is written, try again what may pass, and record the whole of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from random import random
from typing import Any, Final, get_args

import anyio
from anyio.lowlevel import checkpoint

from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.limits import FIRST_RETRY_WAIT, MAX_ANSWER_BYTES, MAX_RETRY_AFTER_SECONDS
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
from handrail.misuse import refuse, shown
from handrail.schema.parse import recordable
from handrail.session._host import SEARCH
from handrail.session._room import Room
from handrail.session.messages import READ_AT_ONCE, Conversation
from handrail.session.session import Session
from handrail.session.window import weigh, weigh_json
from handrail.toolkit.tracing import TracedAgent

MAX_TRIES: Final = 5
"""Requests for one answer, where they fail for a reason that may pass."""
CALLS_AT_FULL_CAPS: Final = 6
"""Calls of one answer whose results fit where each may use its caps in full."""
PIECES: Final = frozenset({"text", "thinking", "call_text"})
HOW_TO_ASK: Final = "write `async def ask(self, messages, tools, *, system)` with `yield Turn(…)` in it"
PIECE_BYTES: Final = 64
"""Bytes that a piece of an answer counts for beside its text: many small ones fill memory too."""
PIECES_PER_TURN: Final = 64
"""Pieces after which others on the event loop get their turn: a client may have many at once, and never wait."""
TOO_LONG: Final = f"The model's answer is longer than {MAX_ANSWER_BYTES >> 20} MiB"
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
        if self._session.toolbox.waits:
            await self._session.toolbox.refresh()
        self._weigh_tools()
        if self._session.event_count - self._conversation.position > READ_AT_ONCE:
            await self._conversation.catch_up(self._session)
        await self._room.make()
        attempt, shrunk = 1, False
        while True:
            began = self._session.event_count
            try:
                turn = await self._traced(attempt)
                if _size(turn) > MAX_ANSWER_BYTES:  # a client gave all of it at once
                    turn = self._cut_off(turn.text, usage=turn.usage)
                turn = self._record(turn)
                if len(turn.calls) > READ_AT_ONCE:
                    await self._conversation.catch_up(self._session)
                return turn
            except ModelFailed as error:
                if error.kind == "context" and not shrunk and await self._room.make(forced=True):
                    shrunk = True
                    self._take_back(began, str(error), 0.0)
                elif not error.transient or attempt >= MAX_TRIES:
                    raise
                elif (error.retry_after or 0) > MAX_RETRY_AFTER_SECONDS:
                    message = f"{error} (the provider asks to wait {error.retry_after:,.0f} s)"
                    raise ModelFailed(
                        message, transient=True, retry_after=error.retry_after, kind=error.kind
                    ) from error
                else:
                    self._session.shared.counts.requests.check()  # rather than after the wait
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
        turn = await self._exchange([Message("user", text)], [], system)
        size = _size(turn)
        self.usage += turn.usage
        self._count(turn.usage)
        if not turn.text.strip() or size > MAX_ANSWER_BYTES:
            raise ModelFailed("the model gave no summary")
        return turn.text, turn.usage

    async def _wait(self, error: ModelFailed, attempt: int, began: int) -> None:
        wait = error.retry_after or min(FIRST_RETRY_WAIT * 2 ** (attempt - 1), MAX_RETRY_AFTER_SECONDS)
        wait *= 1 if error.retry_after else 0.5 + random()  # so that many clients do not come back at once
        self._take_back(began, str(error), wait)
        await anyio.sleep(wait)
        await self._session.toolbox.refresh()

    def _take_back(self, began: int, why: str, wait: float) -> None:
        """Record that a request failed and is made again: what was shown of its answer since `began` is void."""
        new = self._session.trace_from(began)
        shown = [event.seq for event in new if event.type in PIECES and event.parent == self._conversation.parent]
        self._session.emit("retried", data={"why": why, "wait": wait, "taken_back": shown})

    async def _traced(self, attempt: int) -> Turn:
        """One request to the model, in a span of its own if the session is traced."""
        tracing, messages = self._session.tracing, self._conversation.follow(self._session)
        ask = partial(self._exchange, messages, self._offered(), self._agent.system, attempt)
        return await (ask() if tracing is None else tracing.ask(self._agent, ask))

    async def _exchange(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], system: str, attempt: int | None = None
    ) -> Turn:
        """One request and its whole answer, which is shown while it is written if this is try `attempt` of a turn."""
        requests, turn, given = self._session.shared.counts.requests, None, None
        written: list[str] = []
        size = pieces = 0
        if not requests.begin():
            await requests.wait()
        try:
            if attempt is not None:
                data = {"try": attempt, "messages": len(messages), "estimate": self._estimate()}
                self._session.emit("model_asked", data=data)
            given = self._agent.model.ask(messages, tools, system=system)
            if not hasattr(given, "__aiter__"):
                raise self._broken(f"returned {shown(given)}")
            async for event in given:
                if not isinstance(event, Turn):
                    pieces += 1
                    if not pieces % PIECES_PER_TURN:
                        await checkpoint()
                    size += self._take_piece(event, written, MAX_ANSWER_BYTES - size, attempt is not None)
                    if size > MAX_ANSWER_BYTES:
                        turn = turn or self._cut_off("".join(written))
                        break
                elif turn is not None:
                    raise self._broken("yielded a second Turn in one answer")
                else:
                    turn = event
        finally:
            try:
                await _close(given)
            finally:
                requests.end()  # here, whatever happens: a place is held for the request alone
        if turn is None:
            raise ModelFailed("the model's answer ended before it was complete", transient=True, kind="cut")
        return turn

    def _take_piece(self, event: object, written: list[str], most: int, is_shown: bool) -> int:
        """Show a piece of an answer, at most so much of it, and note it if it is text. Returns its size in bytes."""
        if not isinstance(event, TextDelta | ThinkingDelta | CallDelta):
            raise self._broken(f"yielded {shown(event)}")
        whole = str(event.text)
        text = whole[:most]
        if isinstance(event, TextDelta):
            written.append(text)
        if is_shown and isinstance(event, CallDelta):
            self._session.emit("call_text", data={"index": event.index, "name": str(event.name), "text": text})
        elif is_shown:
            self._session.emit("text" if isinstance(event, TextDelta) else "thinking", data={"text": text})
        return PIECE_BYTES + (len(whole) if whole.isascii() else _bytes(whole))

    def _cut_off(self, text: str, *, usage: Usage = Usage()) -> Turn:
        """What was written of an answer that is too long, as if the model had reached its limit of tokens."""
        self._session.emit("warning", data={"message": f"{TOO_LONG}; the rest was left out."})
        while _bytes(text) > MAX_ANSWER_BYTES:
            text = text[: len(text) * MAX_ANSWER_BYTES // _bytes(text)]
        return Turn(text, stop="max_tokens", usage=usage)

    def _broken(self, what: str) -> ModelFailed:
        """The error of a model's client that does what no model may."""
        return ModelFailed(f"{type(self._agent.model).__name__}.ask {what}; {HOW_TO_ASK}")

    def _count(self, usage: Usage) -> None:
        """Count what an answer took against the run's budget of tokens and dollars."""
        if uncounted := self._session.shared.counts.requests.spend(usage):
            self._session.emit("warning", data={"message": uncounted})

    def _estimate(self) -> int:
        return self._conversation.window.used(self._conversation.weight)

    def _record(self, turn: Turn) -> Turn:
        """The answer as it is written into the transcript: with its own ids, and its cut calls marked."""
        self.usage += turn.usage
        if self._session.shared.counts.requests.is_metered:
            self._count(turn.usage)
        turn = turn if turn.stop in STOPS else replace(turn, stop="other")
        calls = self._session.ids.for_answer(turn.calls)
        if turn.stop not in ("end", "tool_use"):  # the model was cut off inside its last call, or took all of it back
            whole = 0 if turn.stop == "refused" else len(calls) - 1
            calls = tuple(call if at < whole else replace(call, cut=True) for at, call in enumerate(calls))
        listed = [
            {"id": call.id, "name": call.name, "arguments": recordable(call.arguments), "cut": call.cut}
            for call in calls
        ]
        self._session.emit(
            "model_answered",
            data={
                "text": turn.text, "calls": listed, "stop": turn.stop, "model": self._name,
                "usage": turn.usage.as_data(), "keep": turn.keep,
                **({} if turn.tokens is None else {"tokens": turn.tokens.as_data()}),
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


def _size(turn: Turn) -> int:
    """Characters of the answer. Raises ModelFailed if it cannot be recorded: a model may be anybody's code."""
    wrong = "" if isinstance(turn.text, str) else f"its text is {type(turn.text).__name__}"
    if not isinstance(turn.usage, Usage) or not all(isinstance(n, NUMBERS) for n in turn.usage.as_data().values()):
        wrong = f"its usage is {shown(turn.usage)}, not a Usage with numbers"
    size = 0
    for call in turn.calls:
        if not isinstance(call, Call) or not isinstance(call.id, str) or not isinstance(call.name, str):
            wrong = "a call in it has no id or no name"
        elif not isinstance(call.arguments, str | Mapping):
            wrong = f"the arguments of {call.name} are {type(call.arguments).__name__}"
        else:
            size += len(call.arguments)
    if wrong:
        raise ModelFailed(f"the model's answer cannot be used: {wrong}")
    return size + len(turn.text)


def _bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


async def _close(answer: AsyncIterator[ModelEvent] | None) -> None:
    """End an answer that may be left early; a provider's connection would stay open."""
    if isinstance(answer, AsyncGenerator):
        await answer.aclose()
