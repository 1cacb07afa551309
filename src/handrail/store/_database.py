"""The SQLite database of a store: its tables, their migrations, and what its errors mean."""

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from random import random, randrange
from time import monotonic, sleep
from typing import Final, TypeVar

from handrail.contract.errors import HandrailError, Locked, Unavailable
from handrail.contract.limits import STORE_LOCK_WAIT, STORE_RETRY_PAUSE_SECONDS, STORE_RETRY_SECONDS
from handrail.store._chain import DIGEST_BYTES
from handrail.store._sqlite import FAILED, as_text, is_busy, is_damage, transaction
from handrail.store.check import Damaged

T = TypeVar("T")
Value = int | str | bytes
Row = tuple[int, bytes, bytes | None]
"""Key, text and digest of an event."""
MAX_PROBLEMS_COUNT: Final = 10
"""Number of problems of the file that `problems` reports."""
LOOK_INTERVAL: Final = 0.05
"""Seconds between two checks, by a session that writes, whether the file was replaced."""
OPEN_TRIES: Final = 10
ROWS_PER_INSERT: Final = 64
VALUES_PER_ROW: Final = 3
_INSERT: Final = "INSERT INTO events (key, event, digest) VALUES "
INSERTS: Final = tuple(_INSERT + ",".join(["(?,?,?)"] * rows) for rows in range(ROWS_PER_INSERT + 1))
"""Insert statements, by the number of rows."""
UPDATE: Final = f"""UPDATE events
    SET event = ?, digest = CAST(substr(digest, 1, {DIGEST_BYTES}) || ? AS BLOB) WHERE key = ?"""
"""Statement that replaces a row's text and own digest; its link stays."""
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE sessions (
            no INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
            folded INTEGER NOT NULL DEFAULT 0, summary TEXT NOT NULL DEFAULT '{}'
        )""",
        "CREATE TABLE events (key INTEGER PRIMARY KEY, event TEXT NOT NULL)",
        "CREATE TABLE removed (no INTEGER PRIMARY KEY)",  # sessions whose events are being deleted
    ),
    (
        "ALTER TABLE events ADD COLUMN digest BLOB",  # as in _chain.py; rows that were there have none
        "ALTER TABLE sessions ADD COLUMN digest BLOB",  # of the summary
    ),
)
"""Statements that bring a database from the version before to their own; never changed, only added to."""
INHERITED: Final[list[sqlite3.Connection]] = []
"""Connections of the process that this one was forked from: they must not be closed here, so they are kept."""


class Database:
    """One connection, used by one thread at a time. It is opened at the first use, and again in a forked child."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner = 0
        self._let_go: weakref.finalize[[sqlite3.Connection, int], Database] | None = None
        """Closes the connection. Python may drop the connection first, and warn, if both are collected together."""
        self.opened = 0
        """Number of times that a connection was opened."""
        self._file: tuple[int, int] | None = None
        """Device and inode of the open file."""
        self.identity = 0
        """Random number that the open file keeps, by which end marks recognise it."""
        self._patient = True
        self._read_only = False
        self._looked = -inf

    @contextmanager
    def use(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """The connection. Raises HandrailError if the file cannot be used, Unavailable if it may be later."""
        with self._lock:
            connection = self._opened_one(create=create)
            try:
                yield connection
            except FAILED as error:
                raise self._failure(error) from error

    def open_current(self, *, create: bool = True, often: bool = False) -> int:
        """Open the file that is there now: SQLite goes on writing to a removed one. Returns `opened`.

        `often` looks only now and then, for who will look again at the end.
        """
        with self._lock:
            now = monotonic()
            if often and now < self._looked + LOOK_INTERVAL and self._connection and self._owner == os.getpid():
                return self.opened
            self._looked = now
            if self._connection is not None and self._file_now() != self._file:
                self.close()
            with self.use(create=create):
                return self.opened

    def find(self, id: str) -> int | None:
        """The number of a session; None if there is none with this id."""
        with self.use() as connection:
            row = connection.execute("SELECT no FROM sessions WHERE id = ?", (id,)).fetchone()
        return None if row is None else int(row[0])

    def has(self, number: int) -> bool:
        """Whether there is a session with this number; it may have been removed."""
        with self.use() as connection:
            return connection.execute("SELECT 1 FROM sessions WHERE no = ?", (number,)).fetchone() is not None

    def length(self, number: int) -> int:
        """Number of events that a session has."""
        with self.use() as connection:
            query = "SELECT max(key) FROM events WHERE key BETWEEN ? AND ?"
            last = connection.execute(query, key_range(number)).fetchone()[0]
        return 0 if last is None else (last & 0xFFFFFFFF) + 1

    def link(self, number: int, seq: int) -> bytes | None:
        """The link of an event; None if it has none, or does not exist."""
        with self.use() as connection:
            row = connection.execute("SELECT digest FROM events WHERE key = ?", (number << 32 | seq,)).fetchone()
        return row[0][:DIGEST_BYTES] if row is not None and isinstance(row[0], bytes) else None

    def rows(self, number: int, start: int, last: int, count: int) -> tuple[list[Row], str]:
        """Events of a session from number `start` to `last`, at most `count`, and why there are not more; or nothing.

        Raises Unavailable.
        """
        query = """SELECT key, CAST(event AS BLOB), digest FROM events
            WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?"""
        found: list[Row] = []
        with self.use() as connection:
            try:
                found.extend(connection.execute(query, (*key_range(number, start, last), count)))
            except FAILED as error:
                if not is_damage(error):
                    raise
                return found, str(error)
        return found, ""

    def version(self) -> tuple[int, int, int]:
        """A value that differs after any commit: of another connection, of this one, or to another file."""
        with self.use() as connection:
            others = connection.execute("PRAGMA data_version").fetchone()[0]  # it tells nothing of our own commits
            return self.opened, others, connection.total_changes

    def problems(self) -> list[str]:
        """Problems that SQLite finds in the file, read as a whole."""
        with self.use() as connection:
            found = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS_COUNT})")]
        return [] if found == ["ok"] else found

    def insert(self, rows: Sequence[Value], updates: Sequence[tuple[str, bytes, int]] = ()) -> None:
        """Write events, all or none of them: `rows` is a key, text and digest for each.

        `updates` is a new text, its own digest and a key for each. Raises Unavailable; after one wait in vain, later
        writes do not wait.
        """
        with self._lock:  # once or twice in every call of a tool, so without `use`, which would cost as much again
            try:
                self._write(self._opened_one(create=True), rows, updates)
            except FAILED as error:
                failure = self._failure(error)
                if isinstance(failure, Unavailable):
                    self._wait_for_locks(patient=False)
                raise failure from error
            if not self._patient:
                self._wait_for_locks(patient=True)

    def patiently(self, work: Callable[[], T]) -> T:
        """Do the work; while another process has the file locked, again and again for a while. Raises Unavailable.

        This blocks the thread: it is for what is done between sessions. A session waits asynchronously.
        """
        end = monotonic() + STORE_RETRY_SECONDS
        while True:
            try:
                return work()
            except Locked:
                if monotonic() > end:
                    raise
            sleep(random() * STORE_RETRY_PAUSE_SECONDS)  # random, so that two waiters do not collide again

    def add_session(self, id: str) -> int:
        """Add a session; return its number, which is never used again. Raises Unavailable."""
        with self.use(create=True) as connection:
            return connection.execute("INSERT INTO sessions (id) VALUES (?)", (id,)).lastrowid or 0

    def remove_session(self, number: int) -> None:
        """Hide a session; `delete_removed` deletes its events."""
        with self.use() as connection, transaction(connection):
            connection.execute("INSERT INTO removed VALUES (?)", (number,))
            connection.execute("DELETE FROM sessions WHERE no = ?", (number,))

    def delete_removed(self, page: int) -> None:
        """Delete the events of removed sessions, also of those whose removal was interrupted, `page` at a time."""
        with self.use(create=True) as connection:
            numbers = [row[0] for row in connection.execute("SELECT no FROM removed").fetchall()]
        some = "SELECT key FROM events WHERE key BETWEEN ? AND ? LIMIT ?"
        for number in numbers:
            deleted = page
            while deleted == page:
                with self.use() as connection:
                    query = f"DELETE FROM events WHERE key IN ({some})"
                    deleted = connection.execute(query, (*key_range(number), page)).rowcount
            with self.use() as connection:
                connection.execute("DELETE FROM removed WHERE no = ?", (number,))

    def close(self) -> None:
        """Close the connection. A later use opens it again."""
        with self._lock:
            if self._let_go is not None:
                self._let_go.detach()  # it calls nothing when Python ends
            if self._connection is not None:
                _let_go(self._connection, self._owner)
            self._connection = self._let_go = None

    def _opened_one(self, *, create: bool) -> sqlite3.Connection:
        if self._connection is not None and self._owner != os.getpid():
            self.close()
        if self._read_only:  # it may be written now, and what SQLite knows of it may be old
            self.close()
        if self._connection is None:
            self._connection = self._open(create=create)
            self._owner = os.getpid()
            self._let_go = weakref.finalize(self, _let_go, self._connection, self._owner)
            self._let_go.atexit = False  # a thread may still use it
            self._file = self._file_now()
            self.identity = self._connection.execute("PRAGMA application_id").fetchone()[0]
            self.opened += 1
        return self._connection

    def _write(
        self, connection: sqlite3.Connection, rows: Sequence[Value], updates: Sequence[tuple[str, bytes, int]]
    ) -> None:
        most = VALUES_PER_ROW * ROWS_PER_INSERT
        if len(rows) <= most and not updates:
            _insert(connection, rows)
            return
        with transaction(connection):
            for start in range(0, len(rows), most):
                _insert(connection, rows[start : start + most])
            connection.executemany(UPDATE, updates)

    def _wait_for_locks(self, *, patient: bool) -> None:
        if patient != self._patient and self._connection is not None:
            self._patient = patient
            self._connection.execute(f"PRAGMA busy_timeout = {int(STORE_LOCK_WAIT * 1000) if patient else 0}")

    def _file_now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _open(self, *, create: bool) -> sqlite3.Connection:
        if create:
            self._make()
        elif not self.path.exists():
            raise HandrailError(f"there is no store at {self.path}")
        mode = "rw" if create or _may_write(self.path) else self._reading_mode()
        self._read_only = mode != "rw"
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, timeout=STORE_LOCK_WAIT, isolation_level=None,
                check_same_thread=False, cached_statements=256,
            )  # fmt: skip
            connection.text_factory = as_text
            self._patient = True
            try:
                self._prepare(connection, read_only=self._read_only)
            except BaseException:
                connection.close()
                raise
        except FAILED as error:
            raise self._failure(error) from error
        return connection

    def _reading_mode(self) -> str:
        """Open mode for a read-only store. SQLite cannot use its `-wal` there, unless its `-shm` exists too."""
        wal, shm = (self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))
        if not wal.exists() or wal.stat().st_size == 0:
            return "ro&immutable=1"  # without it SQLite would create `-wal` and `-shm`, which it may not
        if not shm.exists():
            raise HandrailError(
                f"{self.path} may not be written, and its last events are still in {wal.name}: "
                "copy both to where you may write, and open the copy"
            )
        return "ro"

    def _make(self) -> None:
        """Create the file and its directory so that only this user can read them."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise HandrailError(f"the store {self.path} cannot be created: {error.strerror}") from error

    def _prepare(self, connection: sqlite3.Connection, *, read_only: bool) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise HandrailError(
                f"the store {self.path} was written by a newer version of Handrail (its format is {version}, "
                f"this version reads up to {len(MIGRATIONS)}): upgrade Handrail, or use another store"
            )
        if read_only:
            if version < len(MIGRATIONS):
                raise HandrailError(
                    f"the store {self.path} has an old format: it can be read only where it can be written"
                )
            return
        # With WAL, NORMAL loses no commit when a process dies, only when the machine does, and saves an fsync per call.
        connection.execute("PRAGMA synchronous = NORMAL")
        for left in reversed(range(OPEN_TRIES)):  # several processes may create one store at once
            try:
                # WAL: readers such as `handrail sessions` do not block the session that writes, nor it them.
                connection.execute("PRAGMA journal_mode = WAL")
                _migrate(connection)
                return
            except sqlite3.OperationalError as error:
                if not left or not is_busy(error):
                    raise
                sleep(STORE_LOCK_WAIT / OPEN_TRIES)

    def _failure(self, error: Exception) -> HandrailError | Unavailable:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if is_busy(error):
            return Locked(f"another process has locked {self.path}")
        if is_damage(error):
            return Damaged(f"{self.path} is damaged, or is not a store: {error}. Restore it from a copy.")
        if code == sqlite3.SQLITE_FULL:
            return Unavailable(f"the disk of {self.path} is full")
        if code == sqlite3.SQLITE_READONLY:
            return Unavailable(f"{self.path} may not be written")
        return Unavailable(f"{self.path}: {error}")


def _let_go(connection: sqlite3.Connection, owner: int) -> None:
    # SQLite forbids even to close a connection in a forked child: it could delete the log that the parent writes.
    if owner != os.getpid():
        INHERITED.append(connection)
        return
    with suppress(sqlite3.Error):
        connection.close()


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to this version's format; another process may do it at the same moment."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS):
        return
    with transaction(connection):
        # Asked again inside the transaction: another process may have migrated the file meanwhile.
        done = connection.execute("PRAGMA user_version").fetchone()[0]
        for statement in (each for migration in MIGRATIONS[done:] for each in migration):
            connection.execute(statement)
        if not connection.execute("PRAGMA application_id").fetchone()[0]:
            connection.execute(f"PRAGMA application_id = {1 + randrange((1 << 31) - 1)}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    # From the log into the file itself: damage to the log must not take the identity with it, for then the end marks
    # would be taken for those of another file.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _may_write(path: Path) -> bool:
    """Whether the file can be written, and files beside it made. Root may, unless the file system refuses."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def key_range(number: int, start: int = 0, last: int = 0xFFFFFFFF) -> tuple[int, int]:
    """The first and the last key of a session's events, or of those with the numbers `start` to `last`."""
    return number << 32 | start, number << 32 | last


def _insert(connection: sqlite3.Connection, rows: Sequence[Value]) -> None:
    if rows:
        connection.execute(INSERTS[len(rows) // VALUES_PER_ROW], rows)
