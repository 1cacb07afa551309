"""A Store: sessions in one SQLite database, with their artifacts beside it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from os import urandom
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Final

from handrail.artifacts.store import Artifacts, Incoming
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.event import Event
from handrail.store._claim import Claim, is_claimed
from handrail.store._database import Database, key_range
from handrail.store._lines import Part, decode, export_lines, read_lines
from handrail.store.ends import open_ends
from handrail.store.stored import StoredSession
from handrail.store.summary import Digest, Summary

PAGE: Final = 500
"""Events that one statement reads, writes or deletes, so that nobody waits long for another."""


class Store:
    """Many sessions may write to it at once, in one process or in several; each session belongs to one at a time.

    Nothing is created before the first session begins. Only this user can read what it keeps.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        if not str(path) or self.path.is_dir():
            raise HandrailError(f"Store({str(path)!r}): give the path of a file, such as 'sessions.db'")
        self._database = Database(self.path)
        self._claims = self.path.with_name(f"{self.path.name}.claims")
        self.artifacts = Artifacts(str(self.path.with_name(f"{self.path.name}.artifacts")))

    def sessions(self) -> list[Summary]:
        """All sessions, the one that changed last first."""
        if not self.path.exists():
            return []
        with self._database.use() as connection:
            rows = connection.execute("SELECT no, id, folded, summary FROM sessions").fetchall()
        summaries = [
            self._digest(no, folded, text).summary(id, running=is_claimed(self._claims, id))
            for no, id, folded, text in rows
        ]
        return sorted(summaries, key=lambda each: each.updated, reverse=True)

    def events(self, id: str, start: int = 0) -> Iterator[Event]:
        """The events of a session from number `start`."""
        return self._events(self._number(id), start)

    def export(self, id: str) -> Iterator[str]:
        """The session as JSON lines, artifacts as base64; `load` reads them."""
        return export_lines(id, self.events(id), self.artifacts.contents(id))

    def load(self, lines: Iterable[str]) -> str:
        """Add a session from the lines of an export. Returns its id: a new one if its own is taken.

        Raises HandrailError, and adds nothing, if a line is wrong.
        """
        parts = read_lines(lines)
        given = str(next(parts))
        id = _new_id() if not given or self._find(given) is not None else given
        with self.claim(id) as made:
            try:
                self._add(made, parts)
            except BaseException:
                self._remove(id, made.number)
                raise
        return id

    def fork(self, id: str, at: int | None = None) -> str:
        """Copy a session up to event `at`, or all of it, into a new one. Returns its id.

        Calls that are open there end as cancelled. The session may be in use.
        """
        number = self._number(id)
        last = self._length(number) - 1
        if at is not None and not 0 <= at <= last:
            raise HandrailError(f"session {id} has the events 0 to {last}; it cannot be forked at {at}")
        end = last if at is None else at
        events = (_forked(event, id, end) if event.seq == 0 else event for event in self._events(number, 0, end))
        ends = enumerate(open_ends(self._events(number, 0, end), "forked"), end + 1)
        now, made = time(), _new_id()
        with self.claim(made) as copy:
            try:
                self._add(copy, events)
                self._add(copy, (Event(seq, now, type, call, parent, data) for seq, (type, call, parent, data) in ends))
                self.artifacts.scope(id).fork(made)
            except BaseException:
                self._remove(made, copy.number)
                raise
        return made

    def remove(self, id: str) -> None:
        """Delete a session with its events, and the artifacts that no other session has. Raises if it is in use."""
        with self.claim(id, exists=True) as stored:
            try:
                self._remove(id, stored.number)
            except Unavailable as error:
                raise HandrailError(f"session {id} was not removed: {error}") from error

    def open(self, id: str) -> tuple[StoredSession, tuple[Event, ...]]:
        """The right to write a new session, and its events so far, which are none."""
        return self.claim(id), ()

    def claim(self, id: str, *, exists: bool = False) -> StoredSession:
        """The right to write a session, new or existing. Raises HandrailError if somebody has it."""
        claim = Claim(self._claims, id)
        try:
            number = self._find(id)
            if exists and number is None:
                raise HandrailError(f"there is no session {id!r} in {self.path}")
            if number is not None and not exists:
                raise HandrailError(f"session {id!r} is already in {self.path}; go on with it by Session.resume")
            return StoredSession(self._database, claim, id, number)
        except BaseException:
            claim.release()
            raise

    def close(self) -> None:
        """Close the database. A later use opens it again."""
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _find(self, id: str) -> int | None:
        if not self.path.exists():
            return None
        with self._database.use() as connection:
            row = connection.execute("SELECT no FROM sessions WHERE id = ?", (id,)).fetchone()
        return None if row is None else int(row[0])

    def _number(self, id: str) -> int:
        number = self._find(id)
        if number is None:
            raise HandrailError(f"there is no session {id!r} in {self.path}")
        return number

    def _length(self, number: int) -> int:
        with self._database.use() as connection:
            query = "SELECT max(key) FROM events WHERE key BETWEEN ? AND ?"
            last = connection.execute(query, key_range(number)).fetchone()[0]
        return 0 if last is None else (last & 0xFFFFFFFF) + 1

    def _events(self, number: int, start: int, last: int = 0xFFFFFFFF) -> Iterator[Event]:
        while start <= last:
            with self._database.use() as connection:
                query = "SELECT key, event FROM events WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?"
                rows = connection.execute(query, (*key_range(number, start, last), PAGE)).fetchall()
            yield from (decode(key & 0xFFFFFFFF, text) for key, text in rows)
            if len(rows) < PAGE:
                return
            start += PAGE

    def _digest(self, number: int, folded: int, text: str) -> Digest:
        """The session's digest; what is new in it is kept for the next time, if the database can be written."""
        digest, length = Digest.from_json(text), self._length(number)
        if length > folded:
            digest = digest.after(self._events(number, folded, length - 1))
            with suppress(Unavailable), self._database.use() as connection:
                query = "UPDATE sessions SET folded = ?, summary = ? WHERE no = ?"
                connection.execute(query, (length, digest.to_json(), number))
        return digest

    def _add(self, made: StoredSession, parts: Iterable[Part]) -> None:
        """Add events and artifacts to a new session, some at a time."""
        events: list[Event] = []
        arriving = _Arriving(self.artifacts, made.id)
        try:
            for part in parts:
                if not isinstance(part, Event):
                    arriving.read(part)
                    continue
                events.append(part)
                if len(events) == PAGE:
                    made.append(events)
                    events = []
            if events:
                made.append(events)
            arriving.finish()
        except Unavailable as error:
            raise HandrailError(f"the session was not written: {error}") from error
        finally:
            arriving.abandon()

    def _remove(self, id: str, number: int | None) -> None:
        self.artifacts.forget(id)
        if number is not None:
            self._database.remove_session(number)
        self._database.delete_removed(PAGE)


class _Arriving:
    """The artifacts of an export: each comes as a description, then its bytes in pieces."""

    def __init__(self, artifacts: Artifacts, session: str) -> None:
        self._artifacts, self._session = artifacts, session
        self._last: Incoming | None = None

    def read(self, part: str | bytes | Mapping[str, Any]) -> None:
        if isinstance(part, Mapping):
            self.finish()
            self._last = self._artifacts.incoming(self._session, **part)
        elif isinstance(part, bytes) and self._last is not None:
            self._last.add(part)

    def finish(self) -> None:
        if self._last is not None:
            self._last.finish()

    def abandon(self) -> None:
        if self._last is not None:
            self._last.abandon()


def _new_id() -> str:
    return urandom(6).hex()


def _forked(first: Event, id: str, at: int) -> Event:
    """The first event of a fork says what it was forked from."""
    return replace(first, data={**first.data, "forked_from": {"session": id, "event": at}})
