"""The conversation with the model: messages and token estimates that grow with the session's events.

A Conversation is the one owner of what the model is told. It reads every event once, and nothing but events: so a
resumed session tells the model the same, byte for byte. Events are without secrets; a model's Turn may have some.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from operator import getitem
from typing import Any, Final, Protocol

from anyio.lowlevel import checkpoint

from handrail.agent.steering import TaskState
from handrail.agent.window import (
    FRAME_TOKENS,
    IMAGE_TOKENS,
    Window,
    estimate_json_tokens,
    estimate_message_tokens,
)
from handrail.artifacts.store import Scope
from handrail.contract.call import Call
from handrail.contract.errors import ToolFailed
from handrail.contract.event import Event
from handrail.contract.model import Message
from handrail.contract.result import Failure, Image, Result, Success, result_from, with_image
from handrail.contract.wire import SCALARS, sendable, sendable_data

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARS: Final = 64
"""Characters of a tool's name: providers refuse a longer one, or other characters, in every later request."""
READ_AT_ONCE: Final = 256
"""Events, or calls of an answer, that are read before others on the event loop get their turn."""
MIN_LARGE_TOKENS: Final = 150.0
"""Estimated tokens from which on a result is worth collapsing."""
LISTINGS: Final = frozenset({"listing", "paths", "matches"})
FILES: Final = frozenset({"file", "artifact"})
_TOLD: Final = frozenset({"user", "steered", "call_repaired", "collapsed", "summarised"})
"""Types of events, beside answers and results, that change what the model is told."""


class EventLog(Protocol):
    """The events of a session: the part of its transcript that a conversation reads."""

    count: int
    """The number of the next event."""

    def since(self, start: int) -> list[Event]: ...


@dataclass(frozen=True, slots=True)
class LargeResult:
    """A result that can be collapsed."""

    call_id: str
    tool: str
    result: Result
    estimate: float

    @property
    def rank(self) -> int:
        """Listings go first, texts of files last."""
        kind = self.result.value.get("kind") if isinstance(self.result.value, Mapping) else None
        return 0 if kind in LISTINGS else 2 if kind in FILES else 1


Piece = tuple[Message, float]
"""A message before texts were joined to it, and its estimated tokens."""


class Conversation:
    """The events of a session, or of one task in it, as messages for one model.

    `parent` is the id of the task; None for the session's own conversation. Everything that is asked of a
    conversation is up to date with the events: `messages`, `estimate` and `state` read what is new first.
    """

    def __init__(
        self, log: EventLog, artifacts: Scope, *, window: Window, model: str = "", parent: str | None = None,
        start: int = 0, keeps_state: bool = True,
    ) -> None:  # fmt: skip
        self.window = window
        self.parent = parent
        self._pieces: list[Piece] = []
        """The messages before they were joined: one for each text, each answer and the results of each answer."""
        self._log = log
        self._artifacts = artifacts
        self._model = model
        self._position = start
        """The number of the next event to read."""
        self._messages: list[Message] = []
        self._estimate = 0.0
        self._before = 0
        """Pieces that are not in the list any more; a summary takes the place of the last of them."""
        self._results_at: dict[str, tuple[int, int]] = {}
        """Place of each call's result, by call: the number of the piece, counted from the first ever, and which of the
        piece's results it is."""
        self._large: dict[str, LargeResult] = {}
        """Results that can be collapsed, the oldest first."""
        self._prompts: list[tuple[int, str]] = []
        """The user's prompts, each with the number of its piece."""
        self._state = TaskState()
        self._keeps_state = keeps_state
        """Whether anybody asks for the state: a loop without `steer` does not."""
        self._calls: dict[str, Call] = {}
        """The last answer's calls by their ids, until every one has its result."""
        self._results: dict[str, tuple[Result, float]] = {}
        self._made: dict[str, Call] = {}
        """Calls of a very long answer that were made ahead of it."""
        self._begun: Iterator[None] | None = None
        """The reading that `catch_up_in_turns` has begun, while others on the event loop have their turn."""
        self._prefix = f"{parent}/" if parent else ""
        """The beginning of the ids of a task's calls in the transcript; a provider may not accept it."""

    def request(self) -> tuple[list[Message], int]:
        """The messages of the next request, and its tokens, as the window knows the model."""
        if self._position < self._log.count:
            self.catch_up()
        return self._messages, self.window.used(self._estimate)

    @property
    def messages(self) -> list[Message]:
        """The messages for the model, which never reads two of the user's in a row: a text joins the results before."""
        if self._position < self._log.count:
            self.catch_up()
        return self._messages

    @property
    def estimate(self) -> float:
        """Estimated tokens of all messages."""
        if self._position < self._log.count:
            self.catch_up()
        return self._estimate

    @property
    def tokens(self) -> int:
        """Tokens of the next request, as the window knows the model."""
        if self._position < self._log.count:
            self.catch_up()
        return self.window.used(self._estimate)

    @property
    def state(self) -> TaskState:
        """The kind of the last result."""
        if self._position < self._log.count:
            self.catch_up()
        return self._state

    def catch_up(self) -> None:
        """Read the events that are new. No other function does."""
        for _ in self._begun or self._reading():
            pass
        self._begun = None
        if self._position < self._log.count:  # written since `catch_up_in_turns` began
            self.catch_up()

    async def catch_up_in_turns(self) -> None:
        """Do the same for very many events or calls, and let others on the event loop run meanwhile."""
        self._begun = self._begun or self._reading()
        for _ in self._begun:
            await checkpoint()
        self.catch_up()

    @property
    def is_far_behind(self) -> bool:
        """Whether there are more new events than should be read at once."""
        return self._log.count - self._position > READ_AT_ONCE

    def _reading(self) -> Iterator[None]:
        """Read the new events, with a pause now and then, in which nobody else may read others."""
        end = self._log.count
        for event in self._log.since(self._position):
            if event.parent == self.parent:
                kind = event.type
                if kind == "model_answered":
                    if len(event.data["calls"]) > READ_AT_ONCE:
                        yield from self._take_calls_in_turns(event.data["calls"])
                    self._take_answer(event.data)
                elif kind == "call_ended":
                    if event.call_id in self._calls:
                        self._take_result(event.call_id, event.data)
                elif kind in _TOLD:
                    self._take(event)
            self._position = event.seq + 1
            if not self._position % READ_AT_ONCE:
                yield
        if self._position < end:
            self._position = end  # the last ones are forgotten already

    def absolute(self, count: int) -> int:
        """How many pieces there ever were before piece `count` of the list."""
        return self._before + count

    def large_results(self, *, newest: bool) -> list["LargeResult"]:
        """Results that can be collapsed, the oldest first; with `newest` also those that the model has not seen."""
        seen = len(self._pieces)
        while seen > 0 and self._pieces[seen - 1][0].role != "assistant":  # what an answer follows has been read
            seen -= 1
        first = self.absolute(seen)
        return [each for each in self._large.values() if newest or self._results_at[each.call_id][0] < first]

    def oldest(self, kept: float) -> int:
        """How many pieces of the list are older than the newest `kept` tokens; at least one round stays."""
        count, tokens = len(self._pieces), 0.0
        while count > 0:
            begins = count - 2 if self._pieces[count - 1][0].role == "tool" else count - 1  # a call and its result
            tokens += sum(estimate for _, estimate in self._pieces[begins:count])
            if tokens > kept and count < len(self._pieces):
                break
            count = begins
        return count if sum(estimate for _, estimate in self._pieces[:count]) > kept / 4 else 0

    def first(self, count: int) -> list[Message]:
        """The first pieces of the list."""
        return [message for message, _ in self._pieces[:count]]

    def prompts_before(self, count: int) -> list[str]:
        """The user's prompts in the first `count` pieces that there ever were."""
        return [text for at, text in self._prompts if at < count]

    def _take(self, event: Event) -> None:
        """Read an event that is neither an answer nor a result."""
        data = event.data
        if event.type in ("user", "steered"):
            images = [self._image(each) for each in data.get("images", ())]
            text = sendable(data["text"])
            if event.type == "user":
                self._prompts.append((self.absolute(len(self._pieces)), text))
            message = Message("user", text, images=tuple(image for image in images if image))
            self._append(message, estimate_message_tokens(message))
        elif event.type == "call_repaired" and event.call_id in self._calls:
            self._calls[event.call_id] = replace(self._calls[event.call_id], arguments=data["arguments"])
        elif event.type == "collapsed":
            for each in data["results"]:
                self._collapse(each["call"], each["text"])
        elif event.type == "summarised":
            self._summarise(data["messages"], data["text"])

    def _append(self, piece: Message, estimate: float) -> None:
        self._pieces.append((piece, estimate))
        self._estimate += estimate
        if piece.role == "user" and self._messages and self._messages[-1].role != "assistant":
            # a new list: somebody may still read the old one
            self._messages = [*self._messages[:-1], _joined(self._messages[-1], piece)]
        else:
            self._messages.append(piece)

    def _join_anew(self) -> None:
        """Make the messages again of the pieces, one of which has changed."""
        self._messages = []
        for piece, _ in self._pieces:
            if piece.role == "user" and self._messages and self._messages[-1].role != "assistant":
                self._messages[-1] = _joined(self._messages[-1], piece)
            else:
                self._messages.append(piece)

    def _take_calls_in_turns(self, listed: list[Mapping[str, Any]]) -> Iterator[None]:
        """Make the calls of a very long answer ahead of it, with pauses."""
        for number, each in enumerate(listed, 1):
            self._made[each["id"]] = self._call(each)
            if not number % READ_AT_ONCE:
                yield

    def _call(self, listed: Mapping[str, Any]) -> Call:
        """A call of an answer as the model is told it."""
        id, arguments = listed["id"], listed["arguments"]
        if type(arguments) is not str or not arguments.isascii():
            arguments = sendable_data(arguments)
        if self._prefix:
            id = id.removeprefix(self._prefix)
        return Call(id, _name(listed["name"]), arguments, cut=listed["cut"])

    def _take_answer(self, data: Mapping[str, Any]) -> None:
        keep, sent = data["keep"] if data["model"] == self._model else None, self._estimate
        calls, self._made, self._results = self._made, {}, {}
        if not calls:
            for each in data["calls"]:
                calls[each["id"]] = self._call(each)
        self._calls, told = calls, tuple(calls.values())
        text = sendable(data["text"]) if data["text"] else ""
        # providers refuse an empty message
        if told or text.strip() or (data["stop"] == "paused" and keep is not None):
            message = Message("assistant", text, told, keep=keep)
            self._append(message, estimate_message_tokens(message))
        self.window.learn(sent, self._estimate, data["usage"])

    def _take_result(self, id: str, ended: Mapping[str, Any]) -> None:
        """Take the result of one call; with the last one of an answer, the message of all of them."""
        envelope, estimate = ended["result"], FRAME_TOKENS + estimate_json_tokens(ended["result"])
        if "images" in ended:
            estimate += IMAGE_TOKENS * len(ended["images"])
        # most results are small and plain, and need no reading of an envelope
        quick = envelope["ok"] and type(envelope["result"]) in SCALARS and "warnings" not in envelope
        self._results[id] = Success(envelope["result"]) if quick else self._result(ended), estimate
        if len(self._results) < len(self._calls):
            return
        at, results, total = self._before + len(self._pieces), [], 0.0
        for number, (each, call) in enumerate(self._calls.items()):
            result, estimate = self._results[each]
            if self._keeps_state:
                self._state = self._state.after(call, result)
            self._results_at[each] = (at, number)
            if estimate >= MIN_LARGE_TOKENS:
                self._large[each] = LargeResult(each, call.name, result, estimate)
            results.append(result)
            total += estimate
        self._append(Message("tool", results=tuple(results)), total)
        self._calls = {}

    def _collapse(self, id: str, line: str) -> None:
        """Put a line in the place of a result."""
        large = self._large.pop(id, None)
        at, number = self._results_at.get(id, (-1, 0))
        if at < self._before:
            return
        message, before = self._pieces[at - self._before]
        was = message.results[number]
        made: Result = Success(line) if was.ok else Failure(was.kind, line, retryable=was.retryable)
        results = (*message.results[:number], made, *message.results[number + 1 :])
        sent = made.to_envelope(large.tool if large is not None else "")
        change = estimate_json_tokens(sent) + FRAME_TOKENS - (large.estimate if large is not None else 0.0)
        self._pieces[at - self._before] = replace(message, results=results), before + change
        self._estimate += change
        self._join_anew()

    def _summarise(self, count: int, text: str) -> None:
        """Put a user's message in the place of the first `count` pieces that there ever were."""
        summary = Message("user", text)
        rest = count - self._before
        self._pieces = [(summary, estimate_message_tokens(summary)), *self._pieces[rest:]]
        self._estimate = sum(estimate for _, estimate in self._pieces)
        self._before = count - 1
        self._results_at = {id: at for id, at in self._results_at.items() if at[0] >= count}
        self._large = {id: large for id, large in self._large.items() if id in self._results_at}
        self._join_anew()

    def _result(self, ended: Mapping[str, Any]) -> Result:
        envelope = ended["result"]
        result = result_from(envelope if envelope["ok"] else sendable_data(envelope))
        if not isinstance(result, Success):
            return result
        value = result.value  # `invoke` has made it sendable
        for each in ended.get("images", ()):
            if image := self._image(each["ref"]):
                told = reduce(getitem, each["path"], value)
                known = image if "$artifact" in told else replace(image, ref=None)  # as the model was told it then
                value = with_image(value, each["path"], known)
        return Success(value, tuple(map(sendable, result.warnings)))

    def _image(self, ref: str) -> Image | None:
        """The picture, or None where it is gone: the text of the result still speaks of it."""
        info = self._artifacts.info(ref)
        if info is None:
            return None
        try:
            return Image(self._artifacts.read_now(ref), info.media_type, ref)
        except ToolFailed:
            return None


def _joined(message: Message, more: Message) -> Message:
    """A message of the user's, or results, followed by what the user says next."""
    text = "\n\n".join(each for each in (message.text, more.text) if each)
    return replace(message, text=text, images=(*message.images, *more.images))


@lru_cache(maxsize=256)
def _name(name: str) -> str:
    """A tool's name that every provider accepts; the model may have made up any."""
    return _NOT_IN_A_NAME.sub("_", name)[:_MAX_NAME_CHARS] or "unnamed"
