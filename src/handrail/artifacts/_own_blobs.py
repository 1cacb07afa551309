"""Contents in a user's own store. An empty file stands for each, and the links to that file count who holds it.

Nothing here waits for the store while others wait for the index: contents are put and read in threads, and removed in
one of their own.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from inspect import iscoroutinefunction
from logging import WARNING
from pathlib import Path
from typing import Final

from handrail.artifacts._blobs import Blob, Tampered, checked
from handrail.contract.blobs import Blobs
from handrail.contract.errors import describe_error
from handrail.log import report
from handrail.misuse import kind_of, refuse

_METHODS: Final = ("put", "read", "has", "remove")


class StoreFailed(OSError):
    """The user's store raised, or returned something else than bytes."""


class OwnBlobs:
    """Contents by their digest in `blobs`, removed from it when the last session drops them."""

    inline = False

    def __init__(self, blobs: Blobs) -> None:
        if isinstance(blobs, type) or not all(callable(getattr(blobs, name, None)) for name in _METHODS):
            refuse("Artifacts.blobs", blobs, f"an object with the methods {', '.join(_METHODS)}, as in handrail.Blobs")
        for name in _METHODS:
            if iscoroutinefunction(getattr(blobs, name)):
                kind = type(blobs).__name__
                refuse("Artifacts.blobs", blobs, f"plain functions, which run in threads: {kind}.{name} is async")
        self._blobs = blobs
        self._kind = type(blobs).__name__
        self.place = f"in {self._kind}"
        self._wrong: set[str] = set()
        """Keys of contents that could not be read back unchanged: they are put again even if the store has them."""
        self._starting = threading.Lock()
        self._removing: ThreadPoolExecutor | None = None

    def store(self, file: Path, blob: Blob) -> list[Path]:
        key, holding = blob.digest, _holding(file)
        home = file.parent.parent
        mark = home / "objects" / key
        with _locked(home, key):
            # The count of links is the count of holders, kept by the file system: it survives a killed process.
            mark.touch(mode=0o600)
            os.link(mark, holding)  # from now on nobody removes it
        try:
            if key in self._wrong or not self._blobs.has(key):
                with file.open("rb") as content:
                    self._blobs.put(key, content)
                self._wrong.discard(key)
        except Exception as error:
            raise StoreFailed(f"{self._kind} did not store it: {describe_error(error)}") from error
        return [mark, holding]

    def stored(self, file: Path, digest: str) -> None:
        _holding(file).unlink(missing_ok=True)
        home = file.parent.parent
        if _links(home / "objects" / digest) <= 1:
            self.dropped(home, digest)

    def read(self, path: Path, blob: Blob, start: int, length: int | None) -> bytes:
        try:
            return checked(lambda begin, count: self._fetch(blob.digest, begin, count), path.name, blob, start, length)
        except (Tampered, FileNotFoundError):
            self._wrong.add(blob.digest)
            raise

    def dropped(self, home: Path, digest: str) -> None:
        with self._starting:
            if self._removing is None:
                # One thread: the index is locked by the caller, and a slow store must not hold it up.
                self._removing = ThreadPoolExecutor(1, "handrail-blobs")
            try:
                self._removing.submit(self._remove, home, digest)
                return
            except RuntimeError:  # the program is ending, and takes no more work for threads
                pass
        self._remove(home, digest)

    def close(self) -> None:
        with self._starting:
            removing, self._removing = self._removing, None
        if removing is not None:
            removing.shutdown()

    def _fetch(self, key: str, start: int, length: int) -> bytes:
        if not length:
            return b""
        try:
            data = self._blobs.read(key, start, length)
        except (KeyError, FileNotFoundError):
            raise FileNotFoundError(key) from None
        except Exception as error:
            raise StoreFailed(f"{self._kind} did not return it: {describe_error(error)}") from error
        if not isinstance(data, bytes | bytearray | memoryview):
            raise StoreFailed(f"{self._kind}.read returned {kind_of(data)}, and must return bytes")
        return bytes(data)

    def _remove(self, home: Path, key: str) -> None:
        try:
            with _locked(home, key) if home.is_dir() else nullcontext():
                mark = home / "objects" / key
                if _links(mark) <= 1:
                    self._blobs.remove(key)
                    mark.unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 - nobody waits for it, and the session goes on
            report(f"{self._kind}.remove({key!r})", error, WARNING)


def _holding(file: Path) -> Path:
    """The link by which an unfinished file holds its content."""
    return file.with_name(f"{file.name}-held")


def _links(path: Path) -> int:
    try:
        return path.stat().st_nlink
    except FileNotFoundError:
        return 0


@contextmanager
def _locked(home: Path, key: str) -> Iterator[None]:
    """Lock a key: only one thread of one process counts its links or removes it. Keys with one prefix share a lock."""
    locks = home / "locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    # 256 lock files at most, never removed: unlinking a lock file races with one who is opening it.
    lock = os.open(locks / key[:2], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
