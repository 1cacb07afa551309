"""The end mark of a session: a small file that says how many events it has, and which is the last.

SQLite reads a damaged log up to the damage and says nothing; the rows behind it are then missed by nobody else. The
file is written after each commit and not synced, so that it survives a killed process, as the log does.
"""

import os
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Final
from zlib import crc32

from handrail.store.claim import SOON, file_name

MAX_READS_COUNT: Final = 20
"""Reads of an end mark, a millisecond apart, before it counts as unreadable: its writer may be writing it."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a session: its number of events, and the last one's link."""

    session: str
    store: int
    """Identity of the database. A file that was removed and made anew has another."""
    count: int
    """Number of events that the session has."""
    dropped: int
    """Number of live-output events that have lost their text, at least."""
    link: bytes
    """The link of the last event."""

    @classmethod
    def from_bytes(cls, data: bytes) -> "End":
        """Read what `EndMark.write` wrote. Raises ValueError."""
        checked, _, rest = data.partition(b" ")
        if not rest.endswith(b"\n") or checked != b"%08x" % crc32(rest):
            raise ValueError("its checksum is wrong")
        count, dropped, link, store, session = rest[:-1].split(b" ", 4)
        known = bytes.fromhex(link.decode())
        return cls(session.decode("utf-8", "surrogatepass"), int(store), int(count), int(dropped), known)


class EndMark:
    """The file of one session's end mark. Its descriptor stays open from the first write to `close`."""

    def __init__(self, directory: Path, session: str) -> None:
        self.path = directory / file_name(session)
        self._session = session.encode("utf-8", "surrogatepass")
        self._file: int | None = None
        self._let_go: weakref.finalize[[int], EndMark] | None = None

    def write(self, store: int, count: int, dropped: int, link: bytes) -> None:
        """Write the end in place: one line, of the same length for each end of one session.

        A mark that cannot be written stays behind the rows, which harms nobody.
        """
        # Once or twice in every call of a tool: a checksum, which costs less than a digest, and no End.
        line = b"%010d %010d %b %010d %b\n" % (count, dropped, link.hex().encode(), store, self._session)
        try:
            if self._file is None:
                self._open()
            # One pwrite of a constant length: a reader sees the old line, the new one, or one with a wrong checksum.
            os.pwrite(self._file, b"%08x %b" % (crc32(line), line), 0)  # type: ignore[arg-type]
        except OSError:
            pass

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._let_go = weakref.finalize(self, os.close, self._file)

    def read(self) -> End | None:
        """The end; None where there is no mark. Raises ValueError if it cannot be read."""
        return read_mark(self.path)

    def remove(self) -> None:
        self.close()
        with suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._file = None
        if self._let_go is not None:
            self._let_go()


def read_mark(path: Path) -> End | None:
    """The end in a file; None if there is no such file. Raises ValueError if it cannot be read."""
    tries = 0
    while True:
        tries += 1
        try:
            return End.from_bytes(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ValueError(error.strerror or str(error)) from error
        except ValueError:
            if tries == MAX_READS_COUNT:
                raise
        sleep(SOON)
