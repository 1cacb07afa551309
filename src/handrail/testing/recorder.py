"""A reader of events that keeps them all."""

from handrail.contract.event import Event, EventType


class EventRecorder:
    """A reader for a Session that keeps all events; the list is complete once the session has ended.

    Example:
        ```python
        recorder = EventRecorder()
        async with Session(readers=[recorder]) as session:
            await session.call("missing")
        print([event.data["kind"] for event in recorder.of("call_ended")])
        #> ['tool_not_found']
        ```
    """

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
