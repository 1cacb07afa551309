"""A private directory that is removed when its owner is closed or collected, or after its process was killed."""

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "handrail-artifacts-"
_LOCK: Final = "in-use"


class PrivateDirectory:
    """A directory created at first use, by any thread. Its lock tells later processes whether the owner is alive."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._path: Path | None = None
        self._end: weakref.finalize[..., PrivateDirectory] | None = None

    @property
    def exists(self) -> bool:
        return self._path is not None

    @property
    def path(self) -> Path:
        """The directory; only this user can read it."""
        with self._making:
            if self._path is None:
                sweep()
                path = Path(tempfile.mkdtemp(prefix=_PREFIX))
                fresh = path / f"{_LOCK}-soon"
                lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.rename(fresh, path / _LOCK)  # so nobody sees the lock file unlocked while the owner is alive
                # finalize also runs at the exit of the program, which `__del__` need not.
                self._end = weakref.finalize(self, _remove, path, lock, os.getpid())
                self._path = path
            return self._path

    def close(self) -> None:
        """Remove the directory with its contents. May be called twice; a later use creates a new one."""
        with self._making:
            if self._end is not None:
                self._end()
            self._path = self._end = None


def sweep() -> int:
    """Remove the directories of dead owners. Returns how many there were."""
    removed = 0
    for entry in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if entry.is_symlink() or entry.stat().st_uid != os.getuid():
                continue
            # Others can write in the temporary directory: follow no link, and do not block on a pipe.
            lock = os.open(entry / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry, ignore_errors=True)
                removed += 1
            finally:
                os.close(lock)
    return removed


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child does not own it
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)
