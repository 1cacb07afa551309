"""Read the events of one session, each compared with its digest, and the last with the session's end mark."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from handrail.contract.errors import HandrailError
from handrail.contract.event import Event
from handrail.store._chain import MAY_CHANGE, Chain
from handrail.store._database import Database, Row
from handrail.store._end_mark import End
from handrail.store._lines import decode
from handrail.store.check import DamagedSession

PAGE: Final = 500
"""Number of events that one statement reads, writes or deletes, so that nobody waits long for another."""
LAST: Final = 0xFFFFFFFF


class Rows:
    """The stored events of a session. `end` is its end mark, read before any of them: they may become more."""

    def __init__(self, database: Database, session: str, number: int, end: End | None) -> None:
        self._database, self._session, self._number, self._end = database, session, number, end
        self.without_digest = 0
        """Number of events read that have no digest."""
        self._dropped, self._first_text = 0, LAST

    def read(self, start: int = 0, last: int = LAST) -> Iterator[Event]:
        """The events from number `start` to `last`. Raises DamagedSession behind the last good one."""
        before = self._database.link(self._number, start - 1) if start else None
        chain = Chain(self._session, start, before)
        while chain.count <= last:
            rows, broken = self._database.rows(self._number, chain.count, last, PAGE)
            for row in rows:
                yield self._event(chain, row)
            if broken:
                raise self._damaged(f"event {chain.count} cannot be read ({broken})", chain.count)
            if len(rows) < PAGE:
                break
        self.without_digest = chain.without
        if last == LAST:
            self._check_there()
            self._check_count(chain.count)
            if not start:
                self.check_dropped()

    def lines(self, start: int, limit: int | None) -> Iterator[str]:
        """The events from number `start`, at most `limit`, each as `[seq,time,type,call,parent,data]`.

        The number is put before the stored text, and nothing is decoded: a reader of 100,000 events passes them on.
        Raises DamagedSession behind the last good one.
        """
        chain = Chain(self._session, start, self._database.link(self._number, start - 1) if start else None)
        end = None if limit is None else start + limit
        while end is None or chain.count < end:
            page = PAGE if end is None else min(PAGE, end - chain.count)
            rows, broken = self._database.rows(self._number, chain.count, LAST, page)
            for key, text, digest in rows:
                seq = chain.count
                if key & LAST != seq or (why := chain.follow(text, digest)):
                    self._check_there()
                    raise self._damaged(f"event {seq} {'is missing' if key & LAST != seq else why}", seq)
                yield f"[{seq},{str(text, 'utf-8')[1:]}"
            if broken:
                raise self._damaged(f"event {chain.count} cannot be read ({broken})", chain.count)
            if len(rows) < page:
                self._check_there()
                self._check_count(chain.count)
                return

    def length(self) -> int:
        """Number of events, up to the last one."""
        return self._database.length(self._number)

    def check_last(self, count: int) -> None:
        """Compare the last of `count` events with the end mark. Raises DamagedSession if some are missing."""
        self._check_count(count)
        end = self._end
        if end is not None and self._database.link(self._number, end.count - 1) != end.link:
            raise self._damaged(f"event {end.count - 1} is not the one that was written", end.count - 1)

    def check_dropped(self) -> None:
        """Raise DamagedSession if old texts are back in the events, all of which were read."""
        if self._end is not None and self._dropped < self._end.dropped:
            what = f"{self._end.dropped - self._dropped} live-output events have a text again that was removed"
            raise self._damaged(what, self._first_text)

    def _event(self, chain: Chain, row: Row) -> Event:
        key, text, digest = row
        seq = chain.count
        if key & LAST != seq:
            self._check_there()
            raise self._damaged(f"event {seq} is missing", seq)
        try:
            event = decode(seq, text)
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(f"event {seq} cannot be read ({error})", seq) from error
        if why := chain.follow(text, digest):
            raise self._damaged(f"event {seq} {why}", seq)
        if event.type == MAY_CHANGE and digest is not None:
            self._count_dropped(event)
        if self._end is not None and chain.count == self._end.count and chain.link != self._end.link:
            raise self._damaged(f"event {seq} is not the one that was written", seq)
        return event

    def _count_dropped(self, event: Event) -> None:
        if "dropped" in event.data:
            self._dropped += 1
        else:
            self._first_text = min(self._first_text, event.seq)

    def _check_count(self, count: int) -> None:
        if self._end is not None and count < self._end.count:
            what = f"its events end at {count - 1}, and {self._end.count - 1} was written" if count else "it is empty"
            raise self._damaged(what, count)

    def _check_there(self) -> None:
        """Raise HandrailError if the session was removed meanwhile: its last events may be missing."""
        if not self._database.has(self._number):
            raise HandrailError("the session was removed while it was read")

    def _damaged(self, what: str, good: int) -> DamagedSession:
        written = 0 if self._end is None else self._end.count
        with suppress(HandrailError):  # where the rows cannot even be counted
            written = max(written, self._database.length(self._number))
        return DamagedSession(self._database.path, self._session, what, good, max(1, written - good))
