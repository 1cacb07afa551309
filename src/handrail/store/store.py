"""A Store: sessions in one SQLite database, with their artifacts beside it."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike, urandom
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Final

from handrail.artifacts.store import Artifacts, Incoming
from handrail.contract.blobs import Blobs
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.event import Event
from handrail.contract.expect import is_session_id, shown
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

    Nothing is created before the first session begins. Only this user can read what it keeps. With `blobs` the bytes of
    artifacts are there instead of beside it.
    """

    def __init__(self, path: str | Path, *, blobs: Blobs | None = None) -> None:
        if not isinstance(path, str | PathLike) or not str(path) or os.path.isdir(path):
            given = str(path) if isinstance(path, PathLike) else path
            raise HandrailError(f"Store({shown(given)}): give the path of a file, such as 'sessions.db'")
        self.path = Path(path).absolute()
        _check_place(self.path)
        self._database = Database(self.path)
        self._claims = self.path.with_name(f"{self.path.name}.claims")
        self.artifacts = Artifacts(str(self.path.with_name(f"{self.path.name}.artifacts")), blobs=blobs)

    def sessions(self) -> list[Summary]:
        """All sessions, the one that changed last first."""
        if not self.path.exists():
            return []
        self._database.open_current(create=False)
        with self._database.use() as connection:
            rows = connection.execute("SELECT no, id, folded, summary FROM sessions").fetchall()
        found = (self._summary(*row) for row in rows)
        return sorted((each for each in found if each is not None), key=lambda each: each.updated, reverse=True)

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
        id = given if is_session_id(given) and self._find(given) is None else _new_id()
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
        last = self._database.length(number) - 1
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
        """The right to write a new session, which has no events so far."""
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
        self._database.open_current(create=False)
        return self._database.find(id)

    def _number(self, id: str) -> int:
        number = self._find(id)
        if number is None:
            raise HandrailError(f"there is no session {id!r} in {self.path}")
        return number

    def _events(self, number: int, start: int, last: int = 0xFFFFFFFF) -> Iterator[Event]:
        while start <= last:
            with self._database.use() as connection:
                query = "SELECT key, event FROM events WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?"
                rows = connection.execute(query, (*key_range(number, start, last), PAGE)).fetchall()
            for seq, (key, text) in enumerate(rows, start):
                yield self._decoded(number, seq, key, text)
            if len(rows) < PAGE:
                self._check_there(number)
                return
            start += PAGE

    def _decoded(self, number: int, seq: int, key: int, text: str) -> Event:
        if key != key_range(number, seq)[0]:
            self._check_there(number)
            raise HandrailError(f"{self.path} is damaged: event {seq} of a session is missing. Restore it from a copy.")
        try:
            return decode(seq, text)
        except (ValueError, TypeError) as error:
            what = f"event {seq} of a session cannot be read ({error})"
            raise HandrailError(f"{self.path} is damaged: {what}. Restore it from a copy.") from error

    def _check_there(self, number: int) -> None:
        """Raise HandrailError if the session was removed meanwhile: its last events may be missing."""
        with self._database.use() as connection:
            if not connection.execute("SELECT 1 FROM sessions WHERE no = ?", (number,)).fetchone():
                raise HandrailError("the session was removed while it was read")

    def _summary(self, number: int, id: str, folded: int, text: str) -> Summary | None:
        """None for a session without events: one that is about to begin, or was removed just now."""
        running = is_claimed(self._claims, id)
        try:
            digest = self._digest(number, folded, text)
        except (HandrailError, LookupError, TypeError, ValueError, AttributeError):
            if self._database.find(id) is None:
                return None
            return replace(Digest().summary(id, running=running), state="damaged")
        return digest.summary(id, running=running) if digest.created else None

    def _digest(self, number: int, folded: int, text: str) -> Digest:
        """The session's digest; what is new in it is kept for the next time, if the database can be written."""
        digest, length = Digest.from_json(text), self._database.length(number)
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
        except (Unavailable, OSError) as error:
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
        elif self._last is None:
            raise HandrailError("the export has bytes that belong to no artifact")
        elif isinstance(part, bytes):
            self._last.add(part)

    def finish(self) -> None:
        if self._last is not None:
            self._last.finish()

    def abandon(self) -> None:
        if self._last is not None:
            self._last.abandon()


def _check_place(path: Path) -> None:
    """Raise HandrailError where there is no store, and none can be made."""
    if os.path.exists(path):
        return
    above = next(each for each in path.parents if os.path.lexists(each))
    if not os.path.isdir(above):
        why = f"{above} is not a directory"
    elif not os.access(above, os.W_OK | os.X_OK):
        why = f"this user may not write to {above}"
    else:
        return
    raise HandrailError(f"the store {path} cannot be made: {why}; give a path below a directory that you may write to")


def _new_id() -> str:
    return urandom(6).hex()


def _forked(first: Event, id: str, at: int) -> Event:
    """The first event of a fork says what it was forked from."""
    return replace(first, data={**first.data, "forked_from": {"session": id, "event": at}})
