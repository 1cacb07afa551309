"""A StoredSession: the right of one process to write one session of a store."""

import os
from collections.abc import Sequence
from types import TracebackType

from handrail.contract.errors import HandrailError
from handrail.contract.event import Event
from handrail.store._chain import DIGEST_BYTES, MAY_CHANGE, digest_of, first_link, row_digest
from handrail.store._database import Database, Value
from handrail.store._end_mark import End, EndMark
from handrail.store._lines import encode
from handrail.store.claim import Claim


class StoredSession:
    """The right to write one session, inline and from any thread. The session appears with its first event."""

    def __init__(self, database: Database, claim: Claim, mark: EndMark, id: str, number: int | None) -> None:
        self.id = id
        self._database = database
        self._claim = claim
        self._mark = mark
        self._number = number
        self._count = 0
        """Number of the session's events after the last write; the next ones go on with its link."""
        self._link = b""
        self._dropped = 0
        self._opened = database.opened
        self._owner = os.getpid()

    def held(self, *, often: bool = True) -> int | None:
        """Number of the session's events in a database that was opened anew since the last write; else None.

        It may be another file than before: somebody removed it, or put a copy in its place. The next `append` is then
        given every event that has lost its text.
        """
        if self._owner != os.getpid() and self._owner == os.getppid():
            raise HandrailError(f"session {self.id!r} belongs to process {self._owner}, which this one was forked from")
        opened = self._database.open_current(often=often)
        if opened == self._opened:
            return None
        self._number = self._database.find(self.id)
        held = 0 if self._number is None else self._database.length(self._number)
        self._opened, self._count, self._dropped = opened, 0, 0
        return held

    def continue_from(self, end: End | None) -> None:
        """Go on with a session that was read and has this end mark."""
        self._dropped = 0 if end is None else end.dropped

    def append(self, events: Sequence[Event], changed: Sequence[Event] = ()) -> None:
        """Write new events, and write again those that lost their text: all or none. Raises Unavailable."""
        if self._number is None:
            self._number = self._database.add_session(self.id)
        first = self._number << 32
        link = self._link_before(events[0].seq) if events else self._link
        rows: list[Value] = []
        dropped = self._dropped + len(changed)
        for event in events:
            text, may_change = encode(event), event.type == MAY_CHANGE
            digest = link = row_digest(link, text, may_change)
            if may_change:
                link = digest[:DIGEST_BYTES]
                dropped += "dropped" in event.data
            rows += first | event.seq, text.decode(), digest
        self._database.insert(rows, [_update(event, first) for event in changed])
        if events:
            self._count, self._link = events[-1].seq + 1, link
        self._dropped = dropped
        if self._count and (events or changed):
            self._mark.write(self._database.identity, self._count, dropped, self._link)

    def _link_before(self, seq: int) -> bytes:
        """The link that the event of this number goes on with."""
        if self._count == seq and seq:
            return self._link
        stored = self._database.link(self._number, seq - 1) if seq and self._number is not None else None
        return stored or first_link(self.id, seq)

    @property
    def number(self) -> int | None:
        """The session's number in the database; None before its first event."""
        return self._number

    @property
    def claim(self) -> Claim:
        """The session's claim, beside which its door is."""
        return self._claim

    def close(self) -> None:
        """Let others write the session. May be called twice."""
        self._mark.close()
        self._claim.release()

    def __enter__(self) -> "StoredSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _update(event: Event, first: int) -> tuple[str, bytes, int]:
    text = encode(event)
    return text.decode(), digest_of(text), first | event.seq
