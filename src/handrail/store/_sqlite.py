"""Interpret SQLite's errors, read damaged texts, and end transactions."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

DAMAGED: Final = (
    sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_ERROR,
)  # fmt: skip
"""SQLite errors for a file that it cannot read, that lacks a table or column, or that never was a database."""
FAILED: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Exceptions of any use of a connection. Python cannot decode an error message that quotes a damaged schema."""


def is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damage(error: Exception) -> bool:
    return isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED


def as_text(data: bytes) -> str:
    """Decode a stored text. A damaged one must not hide the rows behind it: its reader compares its digest."""
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
