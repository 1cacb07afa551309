"""Keep a session's secrets out of its events and results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from handrail.contract.event import EventType
from handrail.contract.result import Result
from handrail.gates.shape import shape
from handrail.lazy import Lazy
from handrail.toolkit.gate import Gate, Next, Step

if TYPE_CHECKING:
    import handrail.scrub as _scrub
    from handrail.scrub import Scrubber, Stream
else:  # most sessions have no secrets
    _scrub = Lazy("handrail.scrub")

PIECES: Final = frozenset({"text", "thinking", "call_text"})
"""Events with a piece of what the model writes: a secret may be split over two of them."""
COMPLETE: Final = frozenset({"model_answered", "run_ended"})
VOID: Final = frozenset({"retried", "model_asked"})
Key = tuple[str, str | None, Any]


def scrubber_for(secrets: Sequence[str]) -> "Scrubber | None":
    """None where there are no secrets. Raises HandrailError for one that is too short."""
    return None if secrets in ((), []) else _scrub.Scrubber(secrets)


def with_secrets(gates: Sequence[Gate], scrubber: "Scrubber | None") -> Sequence[Gate]:
    """The gates, and where there are secrets one before them, and one before answers are cut."""
    if scrubber is None:
        return gates

    async def secrets(step: Step, proceed: Next) -> Result:
        return scrubber.result(await proceed(step))

    return [secrets, *(part for gate in gates for part in ((gate, secrets) if gate is shape else (gate,)))]


class CleanEvents:
    """Removes secrets from events. Pieces of the model's answer that may begin a secret wait for the next piece."""

    def __init__(self, scrubber: "Scrubber") -> None:
        self.scrubber = scrubber
        self._streams: dict[Key, tuple[Stream, Mapping[str, Any]]] = {}

    def data(self, type: EventType, parent: str | None, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The event's data without secrets."""
        if type == "call_output":  # LiveOutput has done it, because it is split into events there
            return data
        if type in PIECES:
            return self._piece(type, parent, data)
        clean: Mapping[str, Any] = self.scrubber.data(data)
        if type == "model_answered" and clean.get("keep") is not data.get("keep"):
            return {**clean, "keep": None}  # only its model understands it, and would refuse it changed
        return clean

    def rest(self, type: EventType, parent: str | None) -> Iterator[tuple[EventType, Mapping[str, Any]]]:
        """The pieces that still wait when an event of this type comes, and must be written before it."""
        if not self._streams or (type not in COMPLETE and type not in VOID):
            return
        for key in [key for key in self._streams if key[1] == parent]:
            stream, last = self._streams.pop(key)
            text = stream.end()
            if text and type in COMPLETE:
                kind: Any = key[0]
                yield kind, {**self.scrubber.data(last), "text": text}

    def _piece(self, type: EventType, parent: str | None, data: Mapping[str, Any]) -> Mapping[str, Any]:
        key = type, parent, data.get("index")
        stream = self._streams[key][0] if key in self._streams else self.scrubber.stream()
        self._streams[key] = stream, {**data, "text": ""}
        return {**self.scrubber.data({**data, "text": ""}), "text": stream.add(str(data["text"]))}
