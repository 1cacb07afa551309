"""A Store: sessions in one SQLite database, with their artifacts beside it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from os import PathLike, urandom
from pathlib import Path
from time import time
from types import TracebackType
from typing import Final

from handrail.artifacts.store import Artifacts
from handrail.contract.blobs import Blobs
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.event import Event
from handrail.misuse import is_session_id, shown
from handrail.store._arriving import ArrivingArtifacts
from handrail.store._chain import digest_of
from handrail.store._database import Database
from handrail.store._end_mark import End, EndMark, read_mark
from handrail.store._lines import Part, export_lines, read_lines
from handrail.store._rows import PAGE, Rows
from handrail.store.attached import Attached
from handrail.store.check import DamagedSession, MarkState, SessionCheck
from handrail.store.claim import Claim, file_name, is_claimed
from handrail.store.ends import open_ends
from handrail.store.stored import StoredSession
from handrail.store.summary import Digest, Summary

UNREADABLE: Final = (HandrailError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""Exceptions of reading a row that is not an event, or not a summary."""


class Store:
    """Sessions in one database. Many may write at once, in one process or in several; each belongs to one at a time.

    Nothing is created before the first session begins. Only this user can read what it keeps. With `blobs` the bytes of
    artifacts are there instead of beside it.

    Example:
        ```python
        store = Store("sessions.db")
        async with Agent(ScriptedModel(["It is 42."]), store=store) as agent:
            await agent.run("What is 41 + 1?")
        print([summary.title for summary in store.sessions()])
        store.close()
        #> ['What is 41 + 1?']
        ```
    """

    def __init__(self, path: str | Path, *, blobs: Blobs | None = None) -> None:
        if not isinstance(path, str | PathLike) or not str(path) or os.path.isdir(path):
            given = str(path) if isinstance(path, PathLike) else path
            raise HandrailError(f"Store({shown(given)}): give the path of a file, such as 'sessions.db'")
        self.path = Path(path).absolute()
        _check_place(self.path)
        self._database = Database(self.path)
        self._claims = self.path.with_name(f"{self.path.name}.claims")
        self._ends = self.path.with_name(f"{self.path.name}.ends")
        self.artifacts = Artifacts(str(self.path.with_name(f"{self.path.name}.artifacts")), blobs=blobs)
        self._changes, self._seen = 0, (0, 0, 0, 0)

    def sessions(self) -> list[Summary]:
        """All sessions, the one that changed last first. One that has lost events is `damaged`."""
        if not self.path.exists():
            return []
        self._open()
        marked = self._marks()  # before the sessions: one that begins meanwhile was not lost
        with self._database.use() as connection:
            rows = connection.execute("SELECT no, id, folded, summary, digest FROM sessions").fetchall()
        found = [self._summary(*row) for row in rows]
        for _, id, *_ in rows:
            marked.pop(file_name(id), None)
        found += [self._lost(path) for path in marked.values()]
        return sorted((each for each in found if each is not None), key=lambda each: each.updated, reverse=True)

    def events(self, id: str, start: int = 0) -> Iterator[Event]:
        """The events of a session from number `start`. Raises HandrailError behind the last good one."""
        return self._rows(id).read(start)

    def lines(self, id: str, start: int = 0, limit: int | None = None) -> Iterator[str]:
        """The events from number `start`, at most `limit`, each as the JSON text `[seq,time,type,call,parent,data]`."""
        return self._rows(id).lines(start, limit)

    def summary(self, id: str) -> Summary:
        """One session, as `sessions` lists it. Raises HandrailError if there is none of this id."""
        if self._find(id) is None:
            self._rows(id)  # says that there is none, or that its events are lost
        with self._database.use() as connection:
            query = "SELECT no, id, folded, summary, digest FROM sessions WHERE id = ?"
            row = connection.execute(query, (id,)).fetchone()
        found = None if row is None else self._summary(*row)
        if found is None:
            raise HandrailError(f"there is no session {id!r} in {self.path}")
        return found

    def changed(self) -> int:
        """A number that rises when any session changes, begins or ends, in this process or another one."""
        if self.path.exists():
            self._open()
            with suppress(FileNotFoundError):
                seen = (*self._database.version(), os.stat(self._claims).st_mtime_ns)
                self._changes += seen != self._seen
                self._seen = seen
        return self._changes

    def attach(self, id: str) -> Attached:
        """Follow, answer, prompt or end a session that another process of this user runs; use it with `async with`.

        Of a session that nobody runs there are the events, and its state is "ended".
        """
        return Attached(self, self._claims, id)

    def check(self, id: str) -> SessionCheck:
        """Read a whole session, and compare it with its digests, its end mark and its artifacts."""
        rows, good, missing, damage = None, 0, 0, ""
        if self.path.exists():
            self._open()
        state = self._end(id)[1]
        try:
            rows = self._rows(id)
            good = sum(1 for _ in rows.read())
        except DamagedSession as error:
            good, missing, damage = error.good, error.missing, str(error)
        without = 0 if rows is None else rows.without_digest
        return SessionCheck(id, good, missing, damage, without, state, tuple(self._artifact_problems(id)))

    def problems(self) -> list[str]:
        """Problems that SQLite finds in the file as a whole; or that the file is gone while its end marks remain."""
        if self.path.exists():
            return self._database.problems()
        return [gone] if (gone := self._gone()) else []

    def export(self, id: str) -> Iterator[str]:
        """The session as JSON lines, artifacts as base64; `load` reads them."""
        return export_lines(id, self.events(id), self.artifacts.contents(id))

    def load(self, lines: Iterable[str]) -> str:
        """Add a session from the lines of an export. Returns its id: a new one if its own is taken.

        Raises HandrailError, and adds nothing, if a line is wrong.
        """
        parts = read_lines(lines)
        given = str(next(parts))
        free = is_session_id(given) and self._find(given) is None and self._end(given)[0] is None
        id = given if free else _new_id()
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
        rows = self._rows(id)
        last = rows.length() - 1
        if at is not None and not 0 <= at <= last:
            raise HandrailError(f"session {id} has the events 0 to {last}; it cannot be forked at {at}")
        end = last if at is None else at
        ends = enumerate(open_ends(rows.read(0, end), "forked"), end + 1)
        if at is None:
            rows.check_last(last + 1)
            rows.check_dropped()
        events = (_forked(event, id, end) if event.seq == 0 else event for event in rows.read(0, end))
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
            number, end = self._find(id), self._end(id)[0]
            known = number is not None or end is not None  # one that has an end mark and no events was lost
            if exists and not known:
                raise self._unknown(id)
            if known and not exists:
                raise HandrailError(f"session {id!r} is already in {self.path}; go on with it by Session.resume")
            stored = StoredSession(self._database, claim, EndMark(self._ends, id), id, number)
            stored.continue_from(end)
            return stored
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
        self._open()
        return self._database.find(id)

    def _open(self) -> None:
        """Open the file that is there now."""
        self._database.patiently(lambda: self._database.open_current(create=False))

    def _end(self, id: str) -> tuple[End | None, MarkState]:
        """The end mark of a session in the file that is open, and whether it can be read."""
        try:
            end = EndMark(self._ends, id).read() if self.path.exists() else None
        except ValueError:
            return None, "unreadable"
        if end is None or (end.session, end.store) != (id, self._database.identity):
            return None, "none"
        return end, "fits"

    def _rows(self, id: str) -> Rows:
        """The session's rows; its end mark is read before them. Raises HandrailError if there is no such session."""
        number = self._find(id)
        end = self._end(id)[0]
        if number is not None:
            return Rows(self._database, id, number, end)
        if end is not None:
            raise DamagedSession(self.path, id, "it has none of the session's events", 0, end.count)
        raise self._unknown(id)

    def _unknown(self, id: str) -> HandrailError:
        gone = "" if self.path.exists() else self._gone()
        return HandrailError(f"there is no session {id!r} in {self.path}" + (f": {gone}" if gone else ""))

    def _gone(self) -> str:
        """A message about a file that is not there; empty if no session was ever written to it."""
        count = len(self._marks())
        if not count:
            return ""
        sessions = "1 session" if count == 1 else f"{count} sessions"
        return (
            f"{self.path} is gone, and the end marks of {sessions} are beside it. Restore the file from a copy; "
            f"if you removed it on purpose, remove {self._ends} too"
        )

    def _summary(self, number: int, id: str, folded: int, text: str, digest: bytes | None) -> Summary | None:
        """A summary; None for a session without events, which is about to begin or was removed just now."""
        running = is_claimed(self._claims, id)
        known = _known_digest(id, folded, text, digest)
        try:
            made = self._digest(number, id, *known)
        except UNREADABLE:
            if not self._database.has(number):
                return None
            good = self._good_part(number, id, *known).summary(id, running=running)
            return replace(good, state="damaged", updated=good.updated or self.path.stat().st_mtime)
        return made.summary(id, running=running) if made.created else None

    def _good_part(self, number: int, id: str, folded: int, digest: Digest) -> Digest:
        """The digest of what comes before the damage."""
        with suppress(*UNREADABLE):
            for event in Rows(self._database, id, number, self._end(id)[0]).read(folded):
                digest = digest.after([event])
        return digest

    def _digest(self, number: int, id: str, folded: int, digest: Digest) -> Digest:
        """The session's digest; what is new in it is kept for the next time, if the database can be written."""
        rows = Rows(self._database, id, number, self._end(id)[0])
        length = rows.length()
        rows.check_last(length)
        if length < folded:
            raise HandrailError(f"session {id} has lost events that its summary is of")
        if length > folded:
            digest = digest.after(rows.read(folded, length - 1))
            text = digest.to_json()
            with suppress(Unavailable), self._database.use() as connection:
                query = "UPDATE sessions SET folded = ?, summary = ?, digest = ? WHERE no = ?"
                connection.execute(query, (length, text, _summary_digest(id, length, text), number))
        return digest

    def _marks(self) -> dict[str, Path]:
        """The files of end marks, by name; none where they cannot be listed."""
        try:
            return {path.name: path for path in self._ends.iterdir()}
        except OSError:
            return {}

    def _lost(self, path: Path) -> Summary | None:
        """A session that has an end mark and nothing else."""
        try:
            end, updated = read_mark(path), path.stat().st_mtime
        except (ValueError, OSError):
            return None
        if end is None or end.store != self._database.identity or self._database.find(end.session) is not None:
            return None
        return replace(Digest().summary(end.session, running=False), state="damaged", updated=updated)

    def _artifact_problems(self, id: str) -> Iterator[str]:
        for _, _, pieces in self.artifacts.contents(id):
            try:
                for _ in pieces:
                    pass
            except HandrailError as error:
                yield str(error)

    def _add(self, made: StoredSession, parts: Iterable[Part]) -> None:
        """Add events and artifacts to a new session, some at a time."""
        events: list[Event] = []
        arriving = ArrivingArtifacts(self.artifacts, made.id)
        try:
            for part in parts:
                if not isinstance(part, Event):
                    arriving.read(part)
                    continue
                events.append(part)
                if len(events) == PAGE:
                    self._write(made, events)
                    events = []
            if events:
                self._write(made, events)
            arriving.finish()
        except (Unavailable, OSError) as error:
            raise HandrailError(f"the session was not written: {error}") from error
        finally:
            arriving.abandon()

    def _write(self, made: StoredSession, events: list[Event]) -> None:
        self._database.patiently(lambda: made.append(events))

    def _remove(self, id: str, number: int | None) -> None:
        EndMark(self._ends, id).remove()  # first: a mark without a session is one that was lost
        self.artifacts.forget(id)
        if number is not None:
            self._database.patiently(lambda: self._database.remove_session(number))
        self._database.patiently(lambda: self._database.delete_removed(PAGE))


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


def _known_digest(id: str, folded: int, text: str, digest: bytes | None) -> tuple[int, Digest]:
    """Number of events in a stored summary, and the summary; none if it was changed, and it is made again."""
    try:
        if digest is None or digest == _summary_digest(id, folded, text):
            return folded, Digest.from_json(text)
    except UNREADABLE:
        pass
    return 0, Digest()


def _summary_digest(id: str, folded: int, text: str) -> bytes:
    return digest_of(f"{folded} {id} {text}".encode("utf-8", "surrogatepass"))


def _new_id() -> str:
    return urandom(6).hex()


def _forked(first: Event, id: str, at: int) -> Event:
    """The first event of a fork, which names the session that was forked."""
    return replace(first, data={**first.data, "forked_from": {"session": id, "event": at}})
