"""Requests to the model: show its answer while it is written, retry what may pass, and record the whole answer."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from random import random
from typing import Any, Final, get_args

import anyio
from anyio.lowlevel import checkpoint

from handrail.agent.compaction import Compactor
from handrail.agent.conversation import Conversation
from handrail.agent.window import estimate_json_tokens, estimate_tokens
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
from handrail.session.core import SessionCore
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
NUMBERS: Final = frozenset({int, float, type(None)})


class ModelRequests:
    """Sends the conversation of a session to a model. `usage` is what all requests took."""

    def __init__(self, agent: TracedAgent, core: SessionCore, conversation: Conversation, name: str) -> None:
        self.usage = Usage()
        self._agent, self._name = agent, name
        self._core, self._conversation = core, conversation
        self._compactor = Compactor(core, conversation, self._aside)
        self._estimated: tuple[Sequence[Mapping[str, Any]], str] = ((), "")
        """The tools and the system text whose tokens are in the window's estimate."""

    def tokens_left(self, calls: int) -> int:
        """Tokens left for the results of so many calls: each may answer as if it had about a sixth of them."""
        left = max(0, self._conversation.window.room - self._conversation.tokens)
        return left if calls <= CALLS_AT_FULL_CAPS else left * CALLS_AT_FULL_CAPS // calls

    async def turn(self) -> Turn:
        """The model's answer. A transient failure is tried again, after a while. Raises ModelFailed."""
        core, conversation = self._core, self._conversation
        if core.toolbox.waits:
            await core.toolbox.refresh()
        tools = self._tools()
        if conversation.is_far_behind:
            await conversation.catch_up_in_turns()
        messages, tokens = conversation.request()
        if tokens >= self._compactor.threshold and await self._compactor.make_room():
            messages, tokens = conversation.request()
        attempt, shrunk = 1, False
        while True:
            began = core.transcript.count
            try:
                ask = partial(self._exchange, messages, tools, self._agent.system, (attempt, tokens))
                turn = await (ask() if core.tracing is None else core.tracing.ask(self._agent, ask))
                return self._record(turn)
            except ModelFailed as error:
                if error.kind == "context" and not shrunk and await self._compactor.make_room(forced=True):
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
                    core.shared.counts.requests.check()  # rather than after the wait
                    await self._wait(error, attempt, began)
                    tools = self._tools()
                messages, tokens = conversation.request()
                attempt += 1

    def _tools(self) -> list[dict[str, Any]]:
        """The tools for one request. The window's estimate follows when they, or the system text, change."""
        tools = self._core.tools.offered(searches=getattr(self._agent.model, "searches", False) is True)
        before, system = self._estimated
        if tools is not before or self._agent.system is not system:
            self._estimated = tools, self._agent.system
            own = self._core.tools.schemas("mcp")  # those that a provider searches by itself take no room
            self._conversation.window.fixed = estimate_json_tokens(own) + estimate_tokens(self._agent.system)
        return [*tools]  # a model may be anybody's, and change what it is given

    async def _aside(self, system: str, text: str) -> tuple[str, Usage]:
        """Ask the model something that is not part of the conversation, without tools. Raises ModelFailed."""
        turn = await self._exchange([Message("user", text)], [], system)
        size, _ = _checked(turn)
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
        await self._core.toolbox.refresh()

    def _take_back(self, began: int, why: str, wait: float) -> None:
        """Record that a request failed and is made again: what was shown of its answer since `began` is void."""
        new = self._core.transcript.since(began)
        shown = [event.seq for event in new if event.type in PIECES and event.parent == self._conversation.parent]
        self._core.emit("retried", data={"why": why, "wait": wait, "taken_back": shown})

    async def _exchange(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], system: str,
        turn_of: tuple[int, int] | None = None,
    ) -> Turn:  # fmt: skip
        """Make one request, and receive its answer.

        `turn_of` is which try of a turn it is, and its tokens: then its pieces are shown. None: it is an aside.
        """
        requests = self._core.shared.counts.requests
        if not requests.begin():
            await requests.wait()
        try:
            if turn_of is not None:
                data = {"try": turn_of[0], "messages": len(messages), "estimate": turn_of[1]}
                self._core.transcript.write("model_asked", None, self._core.task, data)
            given = self._agent.model.ask(messages, tools, system=system)
            if not hasattr(given, "__aiter__"):
                raise self._broken(f"returned {shown(given)}")
            return await self._receive(given, turn_of is not None)
        finally:
            requests.end()  # here, whatever happens: a place is held for the request alone

    async def _receive(self, answer: AsyncIterator[ModelEvent], is_shown: bool) -> Turn:
        """The whole answer. Raises ModelFailed for one without its Turn, or with two."""
        turn, ended = None, False
        written: list[str] = []
        size = pieces = 0
        try:
            async for event in answer:
                if not isinstance(event, Turn):
                    pieces += 1
                    if not pieces % PIECES_PER_TURN:
                        await checkpoint()
                    size += self._take_piece(event, written, MAX_ANSWER_BYTES - size, is_shown)
                    if size > MAX_ANSWER_BYTES:
                        turn = turn or self._cut_off("".join(written))
                        break
                elif turn is not None:
                    raise self._broken("yielded a second Turn in one answer")
                else:
                    turn = event
            else:
                ended = True
        finally:
            if not ended:
                await _close(answer)
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
            self._core.emit("call_text", data={"index": event.index, "name": str(event.name), "text": text})
        elif is_shown:
            self._core.emit("text" if isinstance(event, TextDelta) else "thinking", data={"text": text})
        return PIECE_BYTES + (len(whole) if whole.isascii() else _bytes(whole))

    def _cut_off(self, text: str, *, usage: Usage = Usage()) -> Turn:
        """The written part of an answer that is too long, as if the model had reached its limit of tokens."""
        self._core.emit("warning", data={"message": f"{TOO_LONG}; the rest was left out."})
        while _bytes(text) > MAX_ANSWER_BYTES:
            text = text[: len(text) * MAX_ANSWER_BYTES // _bytes(text)]
        return Turn(text, stop="max_tokens", usage=usage)

    def _broken(self, what: str) -> ModelFailed:
        """The error of a model's client that does what no model may."""
        return ModelFailed(f"{type(self._agent.model).__name__}.ask {what}; {HOW_TO_ASK}")

    def _count(self, usage: Usage) -> None:
        """Count what an answer took against the run's budget of tokens and dollars."""
        if uncounted := self._core.shared.counts.requests.spend(usage):
            self._core.emit("warning", data={"message": uncounted})

    def _record(self, turn: Turn) -> Turn:
        """Write the answer into the transcript, and return it as it is there: with new ids, its cut calls marked."""
        size, usage = _checked(turn)
        if size > MAX_ANSWER_BYTES:  # a client gave all of it at once
            turn = self._cut_off(turn.text, usage=turn.usage)
        self.usage += turn.usage
        if self._core.shared.counts.requests.is_metered:
            self._count(turn.usage)
        calls, stop = self._core.ids.for_answer(turn.calls), turn.stop if turn.stop in STOPS else "other"
        if stop not in ("tool_use", "end"):  # the model was cut off in its last call, or took all of it back
            whole = 0 if stop == "refused" else len(calls) - 1
            calls = tuple(call if at < whole else replace(call, cut=True) for at, call in enumerate(calls))
        listed = []
        for call in calls:
            arguments = call.arguments if type(call.arguments) is str else recordable(call.arguments)
            listed.append({"id": call.id, "name": call.name, "arguments": arguments, "cut": call.cut})
        self._core.transcript.write(
            "model_answered",
            None,
            self._core.task,
            {
                "text": turn.text, "calls": listed, "stop": stop, "model": self._name, "usage": usage,
                "keep": turn.keep,
            },
        )  # fmt: skip
        if stop == "other":
            message = "The model stopped for a reason that is not known; its answer may be incomplete."
            self._core.emit("warning", data={"message": message})
        return turn if calls == turn.calls and stop == turn.stop else replace(turn, calls=calls, stop=stop)


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


def _checked(turn: Turn) -> tuple[int, dict[str, float | None]]:
    """Characters of the answer, and its usage for an event.

    Raises ModelFailed if the answer cannot be recorded: a model may be anybody's code.
    """
    wrong = "" if isinstance(turn.text, str) else f"its text is {type(turn.text).__name__}"
    usage = turn.usage.as_data() if isinstance(turn.usage, Usage) else None
    if usage is None or not (NUMBERS.issuperset(map(type, usage.values())) or _are_numbers(usage)):
        wrong = f"its usage is {shown(turn.usage)}, not a Usage with numbers"
    size = 0
    for call in turn.calls:
        if type(call) is Call and type(call.id) is type(call.name) is type(call.arguments) is str:
            size += len(call.arguments)  # nearly all are such
        elif not isinstance(call, Call) or not isinstance(call.id, str) or not isinstance(call.name, str):
            wrong = "a call in it has no id or no name"
        elif not isinstance(call.arguments, str | Mapping):
            wrong = f"the arguments of {call.name} are {type(call.arguments).__name__}"
        else:
            size += len(call.arguments)
    if wrong or usage is None:
        raise ModelFailed(f"the model's answer cannot be used: {wrong}")
    return size + len(turn.text), usage


def _are_numbers(usage: Mapping[str, object]) -> bool:
    """Whether all values are numbers, also of types that derive from them."""
    return all(isinstance(number, int | float | None) for number in usage.values())


def _bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


async def _close(answer: AsyncIterator[ModelEvent]) -> None:
    """End an answer that may be left early; a provider's connection would stay open."""
    if isinstance(answer, AsyncGenerator):
        await answer.aclose()
