"""A reader that keeps every event."""

from handrail.contract.event import Event, EventType


class EventRecorder:
    """Give it to a Session as a reader. When the session has ended it has seen everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, *types: EventType, call_id: str | None = None) -> list[Event]:
        """The events of these types, or of this call, in order."""
        return [
            event
            for event in self.events
            if (not types or event.type in types) and (call_id is None or event.call_id == call_id)
        ]
