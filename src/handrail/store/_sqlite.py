"""What SQLite's errors mean, and how its texts and transactions end."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

DAMAGED: Final = (
    sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_ERROR,
)  # fmt: skip
"""Errors of SQLite for a file that it cannot read, that lacks a table or column, or that never was a database."""
FAILED: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Raised by every use of a connection. Python cannot decode an error message that quotes a damaged schema."""


def is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damage(error: Exception) -> bool:
    return isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED


def as_text(data: bytes) -> str:
    """A damaged text must not hide the rows behind it: whoever reads it compares its digest."""
    return data.decode("utf-8", "replace")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
