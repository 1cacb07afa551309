"""Files named by their content: written atomically, and checked piece by piece whenever they are read.

The digest is the sha256 of the sha256 of each MiB, so a range is checked without reading the rest.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final

PIECE: Final = 1 << 20
"""Bytes that share one checksum."""
_CHECKSUM_BYTES: Final = 32
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Tampered(Exception):
    """The content on disk differs from what was written."""


@dataclass(frozen=True, slots=True)
class Blob:
    """The size and checksums of a file, enough to check any part of it."""

    size: int
    checksums: bytes
    """The sha256 of each piece, one after the other."""

    @property
    def digest(self) -> str:
        return sha256(self.checksums).hexdigest()

    @property
    def consistent(self) -> bool:
        """Whether the number of checksums fits the size."""
        return len(self.checksums) == -(-self.size // PIECE) * _CHECKSUM_BYTES


class Writer:
    """A file on its way into a store, invisible until `finish`. One thread may add while another abandons it."""

    def __init__(self, directory: Path) -> None:
        incoming, self._objects = directory / "incoming", directory / "objects"
        for each in (directory, incoming, self._objects):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = incoming / token_hex(8)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._using = threading.Lock()
        self._size = 0
        self._checksums = bytearray()
        self._piece = sha256()

    def add(self, data: bytes | memoryview) -> None:
        """Append. After an OSError, such as a full disk, only `abandon` may follow."""
        rest = memoryview(data)
        while rest:
            part = rest[: PIECE - self._size % PIECE]
            self._piece.update(part)
            self._size += len(part)
            with self._using:  # a closed descriptor may already belong to another file
                _write(self._file, part)
            if self._size % PIECE == 0:
                self._end_piece()
            rest = rest[len(part) :]

    def finish(self) -> tuple[Blob, list[Path]]:
        """The blob, and the files that hold it now, the permanent one first. Call `abandon` afterwards too."""
        if self._size % PIECE:
            self._end_piece()
        blob = Blob(self._size, bytes(self._checksums))
        path = self._objects / blob.digest
        try:
            os.link(self._path, path)
        except FileExistsError:
            if not is_whole(path, blob):
                path.unlink(missing_ok=True)
                os.link(self._path, path)
        return blob, [path, self._path]

    def abandon(self) -> None:
        """Remove the temporary file; a finished blob stays. May be called twice."""
        with self._using:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
        with suppress(FileNotFoundError):
            self._path.unlink()

    def _end_piece(self) -> None:
        self._checksums += self._piece.digest()
        self._piece = sha256()


def read_range(path: Path, blob: Blob, start: int, length: int | None) -> bytes:
    """A range of bytes, shorter at the end. Raises Tampered if a piece differs, FileNotFoundError if it is gone."""
    end = blob.size if length is None else min(blob.size, start + length)
    first = start // PIECE * PIECE
    if start >= end:
        _open(path, blob).close()
        return b""
    last = min(blob.size, -(-end // PIECE) * PIECE)
    with _open(path, blob) as file:
        file.seek(first)
        data = file.read(last - first)
    if len(data) != last - first:
        raise Tampered(f"{path.name} is shorter than what was written")
    for at, part in _pieces(data):
        number = first // PIECE + at
        if sha256(part).digest() != blob.checksums[number * _CHECKSUM_BYTES : (number + 1) * _CHECKSUM_BYTES]:
            raise Tampered(f"{path.name} is not what was written, near byte {number * PIECE:,}")
    return data[start - first : end - first]


def is_whole(path: Path, blob: Blob) -> bool:
    """Whether the file holds exactly this blob."""
    try:
        for start in range(0, blob.size, PIECE):
            read_range(path, blob, start, PIECE)
        _open(path, blob).close()
    except (Tampered, OSError):
        return False
    return True


def _open(path: Path, blob: Blob) -> BinaryIO:
    """Open a regular file of the right size."""
    try:
        file = os.fdopen(os.open(path, _OPEN_FLAGS), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Tampered(f"{path.name} cannot be read: {error.strerror}") from None
    if os.fstat(file.fileno()).st_size != blob.size:
        file.close()
        raise Tampered(f"{path.name} has a different size than what was written")
    return file


def _pieces(data: bytes) -> Iterator[tuple[int, memoryview]]:
    view = memoryview(data)
    for at, begin in enumerate(range(0, len(data), PIECE)):
        yield at, view[begin : begin + PIECE]


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
