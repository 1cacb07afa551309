"""A StoredSession: the right of one process to write one session of a store."""

import os
from collections.abc import Sequence
from types import TracebackType

from handrail.contract.errors import HandrailError
from handrail.contract.event import Event
from handrail.store._claim import Claim
from handrail.store._database import Database
from handrail.store._lines import encode


class StoredSession:
    """Writes events inline, from any thread. A session appears in the store with its first event."""

    def __init__(self, database: Database, claim: Claim, id: str, number: int | None) -> None:
        self.id = id
        self._database = database
        self._claim = claim
        self._number = number
        self._opened = database.opened
        self._owner = os.getpid()

    def held(self, *, often: bool = True) -> int | None:
        """How many of the session's events the database has, where it was opened anew since the last write; else None.

        It may be another file than before: somebody removed it, or put a copy in its place.
        """
        if self._owner != os.getpid() and self._owner == os.getppid():
            raise HandrailError(f"session {self.id!r} belongs to process {self._owner}, which this one was forked from")
        opened = self._database.open_current(often=often)
        if opened == self._opened:
            return None
        self._number = self._database.find(self.id)
        held = 0 if self._number is None else self._database.length(self._number)
        self._opened = opened
        return held

    def append(self, events: Sequence[Event], changed: Sequence[Event] = ()) -> None:
        """Write new events, and write again those that lost their text: all or none. Raises Unavailable."""
        if self._number is None:
            self._number = self._database.add_session(self.id)
        first = self._number << 32
        rows: list[int | str] = []
        for event in events:
            rows += first | event.seq, encode(event)
        self._database.insert(rows, [(encode(event), first | event.seq) for event in changed])

    @property
    def number(self) -> int | None:
        """The session's number in the database; None before its first event."""
        return self._number

    def close(self) -> None:
        """Let others write the session. May be called twice."""
        self._claim.release()

    def __enter__(self) -> "StoredSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
