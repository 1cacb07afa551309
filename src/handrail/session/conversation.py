"""The messages for the model, built from the session's events: the same ones, byte for byte, each time."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from handrail.artifacts.store import Scope
from handrail.contract.call import Call
from handrail.contract.errors import ToolFailed
from handrail.contract.event import Event
from handrail.contract.model import Message
from handrail.contract.result import Image, Result, Success, result_from, sendable
from handrail.session.steering import TaskState

if TYPE_CHECKING:
    from handrail.session.session import Session

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64
"""Of a tool: providers refuse a longer one, or one with other characters, in every later request."""


class Conversation:
    """What one model has been told: the events of a session, or of one task in it, as messages.

    `parent` is the id of the task; None for the session's own conversation.
    """

    def __init__(self, artifacts: Scope, *, model: str = "", parent: str | None = None) -> None:
        self.messages: list[Message] = []
        self.state = TaskState()
        """What the last result was."""
        self.parent = parent
        self._artifacts = artifacts
        self._model = model
        self.position = 0
        """The number of the next event to read."""
        self._calls: dict[str, Call] = {}
        """The last answer's calls by their ids, until every one has its result."""
        self._results: dict[str, Result] = {}

    def follow(self, session: "Session") -> list[Message]:
        """Take up what is new in the session. Returns the messages."""
        self.read(session.trace_from(self.position))
        return self.messages

    def read(self, events: Sequence[Event]) -> None:
        """Take up the next events of the transcript: those from `position` on."""
        for event in events:
            self.position += 1
            if event.parent == self.parent:
                self._take(event)

    def _take(self, event: Event) -> None:
        data = event.data
        if event.type in ("user", "steered"):
            images = [self._image(each) for each in data.get("images", ())]
            text = sendable(data["text"])
            self.messages.append(Message("user", text, images=tuple(image for image in images if image)))
        elif event.type == "model_answered":
            self._take_answer(data)
        elif event.type == "call_ended" and event.call_id in self._calls:
            self._take_result(event.call_id, self._result(data))

    def _take_answer(self, data: Mapping[str, Any]) -> None:
        keep = data["keep"] if data["model"] == self._model else None
        calls = tuple(
            Call(each["id"], _name(each["name"]), _sendable(each["arguments"]), cut=each["cut"])
            for each in data["calls"]
        )
        self._calls, self._results = {call.id: call for call in calls}, {}
        text = sendable(data["text"])
        if (
            calls or text.strip() or (data["stop"] == "paused" and keep is not None)
        ):  # providers refuse an empty message
            self.messages.append(Message("assistant", text, calls, keep=keep))

    def _take_result(self, id: str, result: Result) -> None:
        self._results[id] = result
        if len(self._results) < len(self._calls):
            return
        results = tuple(self._results[each] for each in self._calls)
        for call, each in zip(self._calls.values(), results, strict=True):
            self.state = self.state.after(call, each)
        self.messages.append(Message("tool", results=results))
        self._calls = {}

    def _result(self, ended: Mapping[str, Any]) -> Result:
        envelope = ended["result"]
        result = result_from(envelope if envelope["ok"] else _sendable(envelope))
        if not isinstance(result, Success):
            return result
        value = result.value  # `invoke` has made it sendable
        for each in ended.get("images", ()):
            if image := self._image(each["ref"]):
                value = _put(value, each["path"], image)
        return Success(value, tuple(map(sendable, result.warnings)))

    def _image(self, ref: str) -> Image | None:
        """The picture, or None where it is gone: the text of the result still speaks of it."""
        info = self._artifacts.info(ref)
        if info is None:
            return None
        try:
            return Image(self._artifacts.read_now(ref), info.media_type)
        except ToolFailed:
            return None


def _name(name: str) -> str:
    """A tool's name that every provider accepts; the model may have made up any."""
    return _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def _sendable(arguments: Any) -> Any:
    """Arguments, or a failure, without lone surrogates."""
    if isinstance(arguments, str):
        return sendable(arguments)
    if isinstance(arguments, Mapping):
        return {sendable(key): _sendable(value) for key, value in arguments.items()}
    return [_sendable(each) for each in arguments] if isinstance(arguments, list | tuple) else arguments


def _put(value: Any, path: Sequence[str | int], image: Image) -> Any:
    """`value` with the picture in its place; what is on the way is copied."""
    if not path:
        return image
    key, *rest = path
    copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copy[key] = _put(copy[key], rest, image)
    return copy
