"""What the transcript must say of every call: that it began, and exactly once how it ended."""

from collections import Counter

from handrail import Event, Session
from handrail.contract.event import EventType


def events_of(session: Session, type: EventType) -> list[Event]:
    return [event for event in session.trace if event.type == type]


def endings(session: Session) -> dict[str | None, Event]:
    """The one `call_ended` of every call. Fails when a call has none, two, or one before it began."""
    begun = Counter(event.call_id for event in events_of(session, "call_started"))
    ended = Counter(event.call_id for event in events_of(session, "call_ended"))
    assert begun, "no call was made, so nothing was shown"
    assert begun == ended
    assert set(begun.values()) == {1}
    started = {event.call_id: event.seq for event in events_of(session, "call_started")}
    found = {event.call_id: event for event in events_of(session, "call_ended")}
    assert all(started[id] < event.seq for id, event in found.items())
    assert [event.seq for event in session.trace] == list(range(len(session.trace)))
    return found


def only_ending(session: Session) -> Event:
    (event,) = endings(session).values()
    return event
