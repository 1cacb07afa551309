"""The messages for the model, built from the session's events: the same ones, byte for byte, each time."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, Final

from anyio.lowlevel import checkpoint

from handrail.artifacts.store import Scope
from handrail.contract.call import Call
from handrail.contract.errors import ToolFailed
from handrail.contract.event import Event
from handrail.contract.model import Message
from handrail.contract.result import Failure, Image, Result, Success, result_from, with_image
from handrail.contract.wire import sendable, sendable_data
from handrail.session.steering import TaskState
from handrail.session.window import IMAGE_WEIGHT, MESSAGE_WEIGHT, Window, weigh_json, weigh_message

if TYPE_CHECKING:
    from handrail.session.session import Session

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARS: Final = 64
"""Of a tool: providers refuse a longer one, or one with other characters, in every later request."""
READ_AT_ONCE: Final = 256
"""Events, or calls of an answer, that are taken up before others on the event loop get their turn."""
LARGE: Final = 150.0
"""The weight from which on a result is worth collapsing."""
LISTINGS: Final = frozenset({"listing", "paths", "matches"})
FILES: Final = frozenset({"file", "artifact"})


@dataclass(frozen=True, slots=True)
class LargeResult:
    """A result that can be collapsed."""

    call_id: str
    tool: str
    result: Result
    weight: float

    @property
    def rank(self) -> int:
        """Listings go first, texts of files last."""
        kind = self.result.value.get("kind") if isinstance(self.result.value, Mapping) else None
        return 0 if kind in LISTINGS else 2 if kind in FILES else 1


class Conversation:
    """What one model has been told: the events of a session, or of one task in it, as messages.

    `parent` is the id of the task; None for the session's own conversation.
    """

    def __init__(
        self, artifacts: Scope, *, model: str = "", window: Window, parent: str | None = None, start: int = 0
    ) -> None:
        self.messages: list[Message] = []
        """For the model, which never reads two messages of the user's in a row: a text joins the results before it."""
        self.pieces: list[Message] = []
        """The same before they were joined: one for each text, each answer and the results of each answer."""
        self.window = window
        self.weight = 0.0
        """What all messages weigh."""
        self._weights: list[float] = []
        """Weight of each piece."""
        self._before = 0
        """Pieces that are not in the list any more; a summary takes the place of the last of them."""
        self._results_at: dict[str, tuple[int, int]] = {}
        """Of every call in the list: the number of the piece with its result, counted from the first ever, and
        which of its results it is."""
        self._large: dict[str, LargeResult] = {}
        """Results that can be collapsed, the oldest first."""
        self._prompts: list[tuple[int, str]] = []
        """What the user asked, with the number of the piece."""
        self.state = TaskState()
        """What the last result was."""
        self.parent = parent
        self._artifacts = artifacts
        self._model = model
        self.position = start
        """The number of the next event to read."""
        self._calls: dict[str, Call] = {}
        """The last answer's calls by their ids, until every one has its result."""
        self._results: dict[str, tuple[Result, float]] = {}
        self._begun: Iterator[None] | None = None
        """What `catch_up` has begun to read, and waits for its next turn."""
        self._prefix = f"{parent}/" if parent else ""
        """What the ids of a task's calls begin with in the transcript; a provider may not accept it."""

    def follow(self, session: "Session") -> list[Message]:
        """Take up what is new in the session. Returns the messages."""
        if self._begun is not None:
            self._finish(self._begun)
        if self.position < session.event_count:
            self.read(session.trace_from(self.position))
        return self.messages

    async def catch_up(self, session: "Session") -> list[Message]:
        """Do what `follow` does for an answer of many calls, and let others on the event loop run meanwhile."""
        if self._begun is None:
            self._begun = self._reading(session.trace_from(self.position))
        for _ in (begun := self._begun):
            await checkpoint()
        self._finish(begun)
        return self.follow(session)

    def read(self, events: Sequence[Event]) -> None:
        """Take up the next events of the transcript: those from `position` on."""
        for _ in self._reading(events):
            pass

    def _finish(self, begun: Iterator[None]) -> None:
        """Read to its end what `catch_up` has begun to read."""
        for _ in begun:
            pass
        self._begun = None

    def _reading(self, events: Sequence[Event]) -> Iterator[None]:
        """Take up events, with a pause now and then, in which nobody else may take up others."""
        for event in events:
            if event.parent == self.parent:
                if event.type == "model_answered":
                    yield from self._take_answer(event.data)
                else:
                    self._take(event)
            self.position += 1
            if not self.position % READ_AT_ONCE:
                yield

    def absolute(self, count: int) -> int:
        """How many pieces there ever were before piece `count` of the list."""
        return self._before + count

    def large_results(self, *, newest: bool) -> list["LargeResult"]:
        """What can be collapsed, the oldest first; with `newest` also what the model has not seen yet."""
        seen = len(self.pieces)
        while seen > 0 and self.pieces[seen - 1].role != "assistant":  # what an answer follows has been read
            seen -= 1
        first = self.absolute(seen)
        return [each for each in self._large.values() if newest or self._results_at[each.call_id][0] < first]

    def oldest(self, kept: float) -> int:
        """How many pieces of the list are older than the newest that weigh `kept`; at least one round stays."""
        count, weight = len(self.pieces), 0.0
        while count > 0:
            begins = count - 2 if self.pieces[count - 1].role == "tool" else count - 1  # a call and its result
            weight += sum(self._weights[begins:count])
            if weight > kept and count < len(self.pieces):
                break
            count = begins
        return count if sum(self._weights[:count]) > kept / 4 else 0

    def prompts_before(self, count: int) -> list[str]:
        """What the user asked in the first `count` pieces that there ever were."""
        return [text for at, text in self._prompts if at < count]

    def _take(self, event: Event) -> None:
        data = event.data
        if event.type in ("user", "steered"):
            images = [self._image(each) for each in data.get("images", ())]
            text = sendable(data["text"])
            if event.type == "user":
                self._prompts.append((self.absolute(len(self.pieces)), text))
            message = Message("user", text, images=tuple(image for image in images if image))
            self._append(message, weigh_message(message))
        elif event.type == "call_ended" and event.call_id in self._calls:
            self._take_result(event.call_id, data)
        elif event.type == "call_repaired" and event.call_id in self._calls:
            self._calls[event.call_id] = replace(self._calls[event.call_id], arguments=data["arguments"])
        elif event.type == "collapsed":
            for each in data["results"]:
                self._collapse(each["call"], each["text"])
        elif event.type == "summarised":
            self._summarise(data["messages"], data["text"])

    def _append(self, piece: Message, weight: float) -> None:
        self.pieces.append(piece)
        self._weights.append(weight)
        self.weight += weight
        if piece.role == "user" and self.messages and self.messages[-1].role != "assistant":
            # a new list: somebody may still read the old one
            self.messages = [*self.messages[:-1], _joined(self.messages[-1], piece)]
        else:
            self.messages.append(piece)

    def _join_anew(self) -> None:
        """Make the messages again of the pieces, one of which has changed."""
        self.messages = []
        for piece in self.pieces:
            if piece.role == "user" and self.messages and self.messages[-1].role != "assistant":
                self.messages[-1] = _joined(self.messages[-1], piece)
            else:
                self.messages.append(piece)

    def _take_answer(self, data: Mapping[str, Any]) -> Iterator[None]:
        keep = data["keep"] if data["model"] == self._model else None
        self._calls, self._results = {}, {}
        for each in data["calls"]:
            id, arguments = each["id"], sendable_data(each["arguments"])
            self._calls[id] = Call(id.removeprefix(self._prefix), _name(each["name"]), arguments, cut=each["cut"])
            if not len(self._calls) % READ_AT_ONCE:
                yield
        calls = tuple(self._calls.values())
        text, sent = sendable(data["text"]), self.weight
        if (
            calls or text.strip() or (data["stop"] == "paused" and keep is not None)
        ):  # providers refuse an empty message
            message = Message("assistant", text, calls, keep=keep)
            self._append(message, weigh_message(message))
        self.window.learn(sent, self.weight, data["usage"])

    def _take_result(self, id: str, ended: Mapping[str, Any]) -> None:
        weight = MESSAGE_WEIGHT + weigh_json(ended["result"]) + IMAGE_WEIGHT * len(ended.get("images", ()))
        self._results[id] = self._result(ended), weight
        if len(self._results) < len(self._calls):
            return
        found = [self._results[each] for each in self._calls]
        at = self.absolute(len(self.pieces))
        for number, (each, call) in enumerate(self._calls.items()):
            result, weight = found[number]
            self.state = self.state.after(call, result)
            self._results_at[each] = (at, number)
            if weight >= LARGE:
                self._large[each] = LargeResult(each, call.name, result, weight)
        self._append(Message("tool", results=tuple(result for result, _ in found)), sum(weight for _, weight in found))
        self._calls = {}

    def _collapse(self, id: str, line: str) -> None:
        """Put a line in the place of a result."""
        large = self._large.pop(id, None)
        at, number = self._results_at.get(id, (-1, 0))
        if at < self._before:
            return
        message = self.pieces[at - self._before]
        was = message.results[number]
        made: Result = Success(line) if was.ok else Failure(was.kind, line, retryable=was.retryable)
        results = (*message.results[:number], made, *message.results[number + 1 :])
        self.pieces[at - self._before] = replace(message, results=results)
        sent = made.to_envelope(large.tool if large is not None else "")
        change = weigh_json(sent) + MESSAGE_WEIGHT - (large.weight if large is not None else 0.0)
        self._weights[at - self._before] += change
        self.weight += change
        self._join_anew()

    def _summarise(self, count: int, text: str) -> None:
        """Put a user's message in the place of the first `count` pieces that there ever were."""
        summary = Message("user", text)
        rest = count - self._before
        self.pieces = [summary, *self.pieces[rest:]]
        self._weights = [weigh_message(summary), *self._weights[rest:]]
        self.weight = sum(self._weights)
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


def _name(name: str) -> str:
    """A tool's name that every provider accepts; the model may have made up any."""
    return _NOT_IN_A_NAME.sub("_", name)[:_MAX_NAME_CHARS] or "unnamed"
