"""Contents named by their digest: written atomically, and checked piece by piece whenever they are read.

The digest is the sha256 of the sha256 of each MiB, so a range is checked without reading the rest.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final, Protocol

from handrail.contract.limits import MAX_ARTIFACT_BYTES

PIECE: Final = 1 << 20
"""Size of the pieces that have one checksum each, in bytes."""
_CHECKSUM_BYTES: Final = 32
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Fetch = Callable[[int, int], bytes]
"""`fetch(start, length)` returns bytes that are not checked yet."""


class Tampered(Exception):
    """The stored content differs from what was written."""


class ArtifactTooLarge(OSError):
    """The content has more than MAX_ARTIFACT_BYTES; nothing of it was stored."""

    def __init__(self) -> None:
        super().__init__(f"An artifact holds at most {MAX_ARTIFACT_BYTES:,} bytes, and nothing was stored. Use parts.")


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


class Contents(Protocol):
    """Storage of contents. In a directory of artifacts, each has a file in `objects`, which sessions hold by a link."""

    inline: bool
    """Whether small contents are read and written without a thread."""
    place: str
    """Location of the contents, as a sentence."""

    def store(self, file: Path, blob: Blob) -> list[Path]:
        """Store a complete file of `incoming`. Returns the files that a session may link, the permanent file first."""
        ...

    def stored(self, file: Path, digest: str) -> None:
        """Note that a session has linked a file which `store` returned, or that none will."""
        ...

    def read(self, path: Path, blob: Blob, start: int, length: int | None) -> bytes:
        """A range of the content behind this link. Raises Tampered, or FileNotFoundError if the content is gone."""
        ...

    def dropped(self, home: Path, digest: str) -> None:
        """Note that a session has removed its link: the content is deleted with the last link."""
        ...

    def close(self) -> None:
        """Finish the deletions that `dropped` began."""
        ...


class LinkedFiles:
    """Contents in the directory of artifacts itself: the file that sessions link is the content."""

    inline = True
    place = "on disk"

    def store(self, file: Path, blob: Blob) -> list[Path]:
        path = file.parent.parent / "objects" / blob.digest
        try:
            os.link(file, path)
        except FileExistsError:
            if not _is_whole(path, blob):
                path.unlink(missing_ok=True)
                os.link(file, path)
        return [path, file]

    def stored(self, file: Path, digest: str) -> None:
        pass

    def read(self, path: Path, blob: Blob, start: int, length: int | None) -> bytes:
        def fetch(begin: int, count: int) -> bytes:
            with _open(path, blob) as file:
                file.seek(begin)
                return file.read(count)

        return checked(fetch, path.name, blob, start, length)

    def dropped(self, home: Path, digest: str) -> None:
        path = home / "objects" / digest
        with suppress(FileNotFoundError):
            if path.stat().st_nlink == 1:
                path.unlink()

    def close(self) -> None:
        pass


class Writer:
    """A file on its way into a store, invisible until `finish`. One thread may add while another abandons it."""

    def __init__(self, directory: Path, contents: Contents) -> None:
        incoming = directory / "incoming"
        for each in (directory, incoming, directory / "objects"):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._contents = contents
        self._path = incoming / token_hex(8)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._using = threading.Lock()
        self._size = 0
        self._checksums = bytearray()
        self._piece = sha256()
        self._digest: str | None = None

    def add(self, data: bytes | memoryview) -> None:
        """Append bytes. After an OSError, such as a full disk, only `abandon` may follow."""
        rest = memoryview(data)
        if self._size + rest.nbytes > MAX_ARTIFACT_BYTES:
            raise ArtifactTooLarge
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
        """The blob and its files, the permanent one first. Call `abandon` afterwards too."""
        if self._size % PIECE:
            self._end_piece()
        blob = Blob(self._size, bytes(self._checksums))
        self._digest = blob.digest
        return blob, self._contents.store(self._path, blob)

    def abandon(self) -> None:
        """Remove the temporary file; a finished blob stays with the sessions that hold it. May be called twice."""
        with self._using:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
        with suppress(FileNotFoundError):
            self._path.unlink()
        if self._digest is not None:
            self._contents.stored(self._path, self._digest)

    def _end_piece(self) -> None:
        self._checksums += self._piece.digest()
        self._piece = sha256()


def checked(fetch: Fetch, name: str, blob: Blob, start: int, length: int | None) -> bytes:
    """A range of bytes, shorter at the end. Raises Tampered if a piece differs, and any exception of `fetch`."""
    end = blob.size if length is None else min(blob.size, start + length)
    first = start // PIECE * PIECE
    if start >= end:
        fetch(0, 0)
        return b""
    last = min(blob.size, -(-end // PIECE) * PIECE)
    data = fetch(first, last - first)
    if len(data) != last - first:
        raise Tampered(f"{name} is shorter than what was written")
    for at, part in _pieces(data):
        number = first // PIECE + at
        if sha256(part).digest() != blob.checksums[number * _CHECKSUM_BYTES : (number + 1) * _CHECKSUM_BYTES]:
            raise Tampered(f"{name} is not what was written, near byte {number * PIECE:,}")
    return data[start - first : end - first]


def _is_whole(path: Path, blob: Blob) -> bool:
    """Whether the file holds exactly this blob."""
    try:
        for start in range(0, blob.size or 1, PIECE):
            LinkedFiles().read(path, blob, start, PIECE)
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
