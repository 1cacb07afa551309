"""Programs in sealed memory, as they were when this process first needed them: no command can change them."""

import fcntl
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from handrail.contract.errors import Unavailable
from handrail.drivers.guard.build import PROGRAM

NOT_BUILT: Final = "the guard was not built: reinstall handrail where there is a C compiler"
_MFD_EXEC: Final = 0x10


def open_sealed() -> int:
    """Open a new descriptor of the guard; the caller closes it. Raises Unavailable if the guard was not built."""
    return os.open(f"/proc/self/fd/{_guard()}", os.O_RDONLY | os.O_CLOEXEC)


def runnable() -> tuple[str, tuple[int, ...]]:
    """Return a path at which a child process can run the guard, and the descriptors that the child must inherit."""
    path = f"/proc/self/fd/{_guard()}"
    return (path, (_guard(),)) if os.access(path, os.X_OK) else (str(PROGRAM), ())  # some kernels forbid running it


_made: dict[str, tuple[int, int]] = {}
"""Descriptors and inodes of sealed files, by name."""
# The inode is checked before each use: a program may close all descriptors, and open others under their numbers.


def sealed(name: str, content: Callable[[], bytes]) -> int:
    """Return a descriptor of a sealed file, which is made from `content()` once for each name and stays open."""
    fd, inode = _made.get(name, (-1, 0))
    if fd < 0 or not _is(fd, inode):
        fd = _seal(content())
        _made[name] = fd, os.fstat(fd).st_ino
    return fd


def _guard() -> int:
    return sealed("guard", _content)


def _seals() -> int:
    return fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def _is(fd: int, inode: int) -> bool:
    try:
        return os.fstat(fd).st_ino == inode and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _seals() == _seals()
    except OSError:
        return False


@lru_cache(maxsize=1)
def _content() -> bytes:
    try:
        return PROGRAM.read_bytes()
    except FileNotFoundError:
        raise Unavailable(NOT_BUILT, retryable=False) from None


def _seal(content: bytes) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("handrail", flags | _MFD_EXEC)
    except OSError:  # an older kernel, or one that forbids running programs from memory
        fd = os.memfd_create("handrail", flags)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _seals())
    return fd
