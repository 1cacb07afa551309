"""A reader of events that keeps them all."""

from handrail.contract.event import Event, EventType


class EventRecorder:
    """Pass it to a Session as a reader. Once the session has ended, it has every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, *types: EventType, call_id: str | None = None) -> list[Event]:
        """The events of these types and of this call, in order; by default, all."""
        return [
            event
            for event in self.events
            if (not types or event.type in types) and (call_id is None or event.call_id == call_id)
        ]
