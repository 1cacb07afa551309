"""File operations with plain system calls, each in a thread: below the roots, without hanging, whole or not at all.

Where a path leads is checked before it is used. What swaps a link between the two can lead an operation elsewhere.
"""

import errno
import os
import posixpath
import stat
import threading
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Final, Literal, TypeVar

from handrail.contract.driver import FileStat
from handrail.drivers._options import is_below

Result = TypeVar("Result")
WHOLE_MAX: Final = 512 << 20
"""Bytes; larger files are read by range."""
ENTRIES_MAX: Final = 1_000_000
PIECE: Final = 1 << 20
"""Bytes read or written between two looks at the stop flag."""
LONG_PATH: Final = 900
"""Bytes; a directory with a longer path is moved up before it is removed. macOS takes 1,024."""
MODE_BITS: Final = 0o777
NEW_FILE_MODE: Final = 0o644
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Stop:
    """A flag that tells an operation in a thread that its caller no longer waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False

    def set(self) -> None:
        """Stop the operation: it changes nothing more."""
        with self._lock:
            self._stopped = True

    def check(self) -> None:
        """Raise OSError (ECANCELED) if the caller no longer waits."""
        if self._stopped:
            raise _error(errno.ECANCELED)

    def unless_stopped(self, change: Callable[[], Result]) -> Result:
        """Make a change that `set` cannot overtake."""
        with self._lock:
            self.check()
            return change()


class Files:
    """The file operations of one sandbox. Errors are OSErrors with an errno: EXDEV for a path that leads outside."""

    def __init__(self, roots: Sequence[str], largest: int | None) -> None:
        self._roots = tuple(os.path.realpath(root) for root in roots)
        self._largest = largest

    def read(self, stop: Stop, path: str, start: int, length: int | None) -> bytes:
        real = self._real(path)
        _require_regular(os.lstat(real).st_mode)
        fd = os.open(real, _READ_FLAGS)
        try:
            status = os.fstat(fd)
            _require_regular(status.st_mode)
            if length is None and status.st_size - start > WHOLE_MAX:
                raise _error(errno.EFBIG)
            if start >= status.st_size:
                return b""
            return _read_from(stop, fd, start, WHOLE_MAX + 1 if length is None else length, whole=length is None)
        finally:
            os.close(fd)

    def write(self, stop: Stop, path: str, data: bytes, mode: int | None) -> None:
        if mode is not None and mode & (stat.S_ISUID | stat.S_ISGID):
            raise _error(errno.EPERM)
        real = self._real(path)
        if path.endswith("/"):
            raise _error(errno.EISDIR if os.path.isdir(real) else errno.ENOTDIR)
        if self._largest is not None and len(data) > self._largest:
            raise _error(errno.EFBIG)
        wanted = _mode_for(real, mode)
        if os.path.exists(real) and not os.access(real, os.W_OK):
            raise _error(errno.EACCES)
        stop.unless_stopped(lambda: os.makedirs(posixpath.dirname(real), exist_ok=True))
        beside = posixpath.join(posixpath.dirname(real), f".handrail-{token_hex(8)}")
        fd = os.open(beside, _WRITE_FLAGS, 0o600)
        try:
            _write_to(stop, fd, data)
            os.fchmod(fd, wanted)
            stop.unless_stopped(lambda: os.rename(beside, real))
        except BaseException:
            os.unlink(beside)
            raise
        finally:
            os.close(fd)

    def stat(self, stop: Stop, path: str) -> FileStat:
        try:
            real = self._real(path)
            status = os.lstat(real)
            if stat.S_ISLNK(status.st_mode):
                raise _error(errno.ELOOP)
        except OSError as error:
            # A link that leads nowhere, or out of the roots, is described as itself.
            if error.errno not in (errno.ENOENT, errno.EXDEV, errno.ELOOP, errno.EACCES):
                raise
            real = self._real(path, follow=False)
            status = _lstat_or(real, error)
            if not stat.S_ISLNK(status.st_mode):
                raise
        return _described(path, real, status)

    def list(self, stop: Stop, path: str) -> list[FileStat]:
        real = self._real(path)
        found: list[FileStat] = []
        with os.scandir(real) as entries:
            for entry in entries:
                stop.check()
                if len(found) >= ENTRIES_MAX:
                    raise _error(errno.EFBIG)
                try:
                    found.append(self._entry(stop, posixpath.join(path, entry.name), real, entry))
                except FileNotFoundError:
                    continue  # it was removed meanwhile
        return sorted(found, key=lambda entry: entry.path)

    def _entry(self, stop: Stop, path: str, directory: str, entry: "os.DirEntry[str]") -> FileStat:
        if entry.is_symlink():
            return self.stat(stop, path)
        return _described(path, posixpath.join(directory, entry.name), entry.stat(follow_symlinks=False))

    def make_dir(self, stop: Stop, path: str) -> None:
        real = self._real(path)
        if not os.path.isdir(real):
            stop.unless_stopped(lambda: os.makedirs(real, exist_ok=True))

    def remove(self, stop: Stop, path: str) -> None:
        real = self._real(path, follow=False)
        status = os.lstat(real)
        if real in self._roots:
            raise _error(errno.EBUSY)
        if stat.S_ISDIR(status.st_mode):
            _remove_tree(stop, real)
        elif path.endswith("/"):
            raise _error(errno.ENOTDIR)
        else:
            stop.unless_stopped(lambda: os.unlink(real))

    def _real(self, path: str, *, follow: bool = True) -> str:
        """The real path. Raises OSError (EXDEV) when it leads outside the roots."""
        real = os.path.realpath(path)
        if not follow and (bare := path.rstrip("/")):
            real = posixpath.join(os.path.realpath(posixpath.dirname(bare)), posixpath.basename(bare))
        if not is_below(real, self._roots):
            raise _error(errno.EXDEV)
        return real


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _require_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _error(errno.EISDIR if stat.S_ISDIR(mode) else errno.ELOOP if stat.S_ISLNK(mode) else errno.EPERM)


def _mode_for(real: str, mode: int | None) -> int:
    """The mode of the new file: the one asked for, else that of the file there, else the usual one."""
    try:
        there = os.lstat(real).st_mode
    except FileNotFoundError:
        return NEW_FILE_MODE if mode is None else mode & MODE_BITS
    _require_regular(there)
    return (there if mode is None else mode) & MODE_BITS


def _read_from(stop: Stop, fd: int, start: int, length: int, *, whole: bool) -> bytes:
    pieces = bytearray()
    while len(pieces) < length:
        stop.check()
        piece = os.pread(fd, min(PIECE, length - len(pieces)), start + len(pieces))
        if not piece:
            return bytes(pieces)
        pieces += piece
    if whole:  # it grew while it was read
        raise _error(errno.EFBIG)
    return bytes(pieces)


def _write_to(stop: Stop, fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        stop.check()
        left = left[os.write(fd, left[:PIECE]) :]


def _lstat_or(real: str, otherwise: OSError) -> os.stat_result:
    try:
        return os.lstat(real)
    except FileNotFoundError:
        raise otherwise from None


def _described(path: str, real: str, status: os.stat_result) -> FileStat:
    mode = status.st_mode
    kind: Literal["file", "directory", "symlink", "other"] = "other"
    if stat.S_ISREG(mode):
        kind = "file"
    elif stat.S_ISDIR(mode):
        kind = "directory"
    elif stat.S_ISLNK(mode):
        kind = "symlink"
    return FileStat(path, real, kind, status.st_size, mode & 0o7777, status.st_mtime)


def _remove_tree(stop: Stop, top: str) -> None:
    """Remove a directory of any depth with everything in it, even if unreadable. Links are not followed."""
    pending = [top]
    while pending:
        stop.check()
        directory = pending[-1]
        os.chmod(directory, 0o700)
        below = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(_within_reach(top, entry.path))
                else:
                    os.unlink(entry.path)
        if below:
            pending += below
        else:
            os.rmdir(directory)
            pending.pop()


def _within_reach(top: str, path: str) -> str:
    """Return the path of a directory, moved up if its path is too long for its entries."""
    if len(os.fsencode(path)) <= LONG_PATH or posixpath.dirname(path) == top:
        return path
    nearer = posixpath.join(top, f".handrail-{token_hex(8)}")
    os.rename(path, nearer)
    return nearer
