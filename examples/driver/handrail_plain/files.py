"""The file half of a driver: plain system calls, with the errors that the contract lists."""

import errno
import os
import shutil
import stat
import tempfile
from functools import partial

import anyio.to_thread

from handrail import FileStat, Unavailable

LARGEST = 512 << 20


class Files:
    """Paths are absolute and contain no `..`: the Sandbox sees to that."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def check_open(self, path: str = "/") -> None:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path")
        if self.closed:
            raise Unavailable("the sandbox is closed", retryable=False)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.check_open(path)
        if start < 0 or (length is not None and length < 0):
            raise ValueError("start and length count bytes: neither may be negative")
        return await anyio.to_thread.run_sync(_read, path, start, length)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self.check_open(path)
        await anyio.to_thread.run_sync(_write, path, data, mode)

    async def stat(self, path: str) -> FileStat:
        self.check_open(path)
        return _stat(path)

    async def list(self, path: str) -> list[FileStat]:
        self.check_open(path)
        return [_stat(os.path.join(path, name)) for name in sorted(os.listdir(path))]

    async def make_dir(self, path: str) -> None:
        self.check_open(path)
        os.makedirs(path, exist_ok=True)

    async def remove(self, path: str) -> None:
        self.check_open(path)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, path))
        else:
            os.unlink(path)


def _read(path: str, start: int, length: int | None) -> bytes:
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
        raise PermissionError(errno.EACCES, "it is not a regular file", path)
    if length is None and status.st_size - start > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(-1 if length is None else length)


def _write(path: str, data: bytes, mode: int | None) -> None:
    """Write beside the file, then put the new one in its place: a reader sees the old content or the new."""
    real = os.path.realpath(path)
    kept = 0o644
    if os.path.lexists(real):
        status = os.stat(real)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode) or not os.access(real, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        kept = stat.S_IMODE(status.st_mode)
    try:
        os.makedirs(os.path.dirname(real), exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
    beside, name = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".plain-")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            os.fchmod(beside, kept if mode is None else mode)
        os.replace(name, real)
    except BaseException:
        os.unlink(name)
        raise


def _stat(path: str) -> FileStat:
    try:
        status, real = os.stat(path), os.path.realpath(path)
    except FileNotFoundError:
        status, real = os.lstat(path), path  # a dangling link
    for holds, kind in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink")):
        if holds(status.st_mode):
            return FileStat(path, real, kind, status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime)  # type: ignore[arg-type]
    return FileStat(path, real, "other", status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime)
