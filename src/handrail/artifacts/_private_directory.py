"""A private directory that goes with its owner: when it is closed, forgotten, or its process was killed."""

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME: Final = "handrail-artifacts-"
_LOCK: Final = "in-use"


class Home:
    """Made once, when it is first needed, by whichever thread. A lock tells a later start whether the owner lives."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._path: Path | None = None
        self._end: weakref.finalize[..., Home] | None = None

    @property
    def exists(self) -> bool:
        return self._path is not None

    @property
    def path(self) -> Path:
        """The directory, which only this user can read."""
        with self._making:
            if self._path is None:
                sweep()
                path = Path(tempfile.mkdtemp(prefix=_NAME))
                fresh = path / f"{_LOCK}-soon"
                lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.rename(fresh, path / _LOCK)  # nobody ever sees it unlocked while the owner lives
                self._end = weakref.finalize(self, _remove, path, lock, os.getpid())
                self._path = path
            return self._path

    def close(self) -> None:
        """Remove it with everything in it. May be called twice; a later use makes a new one."""
        with self._making:
            if self._end is not None:
                self._end()
            self._path = self._end = None


def sweep() -> int:
    """Remove what owners left behind that no longer live; how many there were."""
    removed = 0
    for entry in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with suppress(OSError):
            if entry.is_symlink() or entry.stat().st_uid != os.getuid():
                continue
            lock = os.open(entry / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry, ignore_errors=True)
                removed += 1
            finally:
                os.close(lock)
    return removed


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child only borrows it
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)
