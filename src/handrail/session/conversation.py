"""The messages for the model, built from the session's events: the same ones, byte for byte, each time."""

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.artifacts.store import Scope
from handrail.contract.call import Call
from handrail.contract.errors import ToolFailed
from handrail.contract.event import Event
from handrail.contract.model import Message
from handrail.contract.result import Image, Result, Success, result_from


class Conversation:
    """What one model has been told: the events of a session, or of one task in it, as messages.

    `parent` is the id of the task; None for the session's own conversation.
    """

    def __init__(self, artifacts: Scope, *, model: str = "", parent: str | None = None) -> None:
        self.messages: list[Message] = []
        self._artifacts = artifacts
        self._model = model
        self._parent = parent
        self.position = 0
        """The number of the next event to read."""
        self._calls: list[str] = []
        """The ids of the last answer's calls, until every one has its result."""
        self._results: dict[str, Result] = {}

    def read(self, events: Sequence[Event]) -> None:
        """Take up the next events of the transcript: those from `position` on."""
        for event in events:
            self.position += 1
            if event.parent == self._parent:
                self._take(event)

    def _take(self, event: Event) -> None:
        data = event.data
        if event.type == "user":
            images = [self._image(each) for each in data.get("images", ())]
            self.messages.append(Message("user", data["text"], images=tuple(image for image in images if image)))
        elif event.type == "model_answered":
            keep = data["keep"] if data["model"] == self._model else None
            calls = tuple(Call(each["id"], each["name"], each["arguments"], cut=each["cut"]) for each in data["calls"])
            self.messages.append(Message("assistant", data["text"], calls, keep=keep))
            self._calls, self._results = [call.id for call in calls], {}
        elif event.type == "call_ended" and event.call_id in self._calls:
            self._results[event.call_id] = self._result(data)
            if len(self._results) == len(self._calls):
                self.messages.append(Message("tool", results=tuple(self._results[id] for id in self._calls)))
                self._calls = []

    def _result(self, ended: Mapping[str, Any]) -> Result:
        result = result_from(ended["result"])
        images = ended.get("images")
        if not images or not isinstance(result, Success):
            return result
        value = result.value
        for each in images:
            if image := self._image(each["ref"]):
                value = _put(value, each["path"], image)
        return Success(value, result.warnings)

    def _image(self, ref: str) -> Image | None:
        """The picture, or None where it is gone: the text of the result still speaks of it."""
        info = self._artifacts.info(ref)
        if info is None:
            return None
        try:
            return Image(self._artifacts.read_now(ref), info.media_type)
        except ToolFailed:
            return None


def _put(value: Any, path: Sequence[str | int], image: Image) -> Any:
    """`value` with the picture in its place; what is on the way is copied."""
    if not path:
        return image
    key, *rest = path
    copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copy[key] = _put(copy[key], rest, image)
    return copy
