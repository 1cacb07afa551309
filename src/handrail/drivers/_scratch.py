"""Temporary directories that a later start can recognise as left over, because their names tell whose they were."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from handrail.drivers._options import is_below

MEMORY: Final = "/dev/shm"
_ROOM: Final = 32 << 20
_FILES: Final = 10_000
_held: dict[str, tuple[int, int]] = {}
"""The directories of this process, each locked as long as it lives: by which descriptor, and of which inode."""
_NAME: Final = re.compile(r"handrail-(\d+)-(\d+)-")


def make_scratch(parent: str | None = None) -> str:
    """A new private directory, named after this process. Those of dead processes are removed on the way."""
    for place in dict.fromkeys((parent or tempfile.gettempdir(), *usual_places())):
        sweep_scratch(place)
    path = tempfile.mkdtemp(prefix=f"handrail-{os.getpid()}-{_born(os.getpid())}-", dir=parent)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    _held[path] = fd, os.fstat(fd).st_ino
    return path


def usual_places() -> tuple[str, ...]:
    """Where temporary files are put."""
    return tempfile.gettempdir(), "/var/tmp", MEMORY


def place_outside(tops: Sequence[str], *, quick: bool = False, longest: int = 4096) -> str | None:
    """A directory for temporary files that is not below any of these real paths; None where there is none.

    A `quick` one is in memory, if there is room. Its path is not longer than `longest`.
    """
    usual = (*usual_places(), os.path.expanduser("~"))
    for path in (MEMORY, *usual) if quick and _suits(MEMORY) else usual:
        real = _real(path)
        if not is_below(real, tops) and len(real) <= longest and os.access(real, os.W_OK):
            return real
    return None


@lru_cache(maxsize=16)
def _real(path: str) -> str:
    return os.path.realpath(path)


def _suits(path: str) -> bool:
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    many = found.f_files == 0 or found.f_favail >= _FILES  # no number at all means no limit
    return many and found.f_bavail * found.f_frsize >= _ROOM


def remove_scratch(path: str) -> None:
    """Remove it with everything in it; what a command made unreadable too. No link is followed, also not a new one."""
    _let_go(path)
    try:
        for _, names, _, parent in os.fwalk(path, follow_symlinks=False):
            for name in names:
                with suppress(OSError):  # two processes may sweep the same directory at once
                    _open_up(name, parent)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # a command made it deeper than Python can go
        subprocess.run(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL, check=False)


def _let_go(path: str) -> None:
    fd, inode = _held.pop(path, (-1, 0))
    with suppress(OSError):  # somebody closed all descriptors; the number may be another file's
        if fd >= 0 and os.fstat(fd).st_ino == inode:
            os.close(fd)


def _open_up(name: str, parent: int) -> None:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def sweep_scratch(place: str | None = None) -> int:
    """Remove this user's directories whose owner is dead, in the usual place; how many there were."""
    removed = 0
    for entry in Path(place or tempfile.gettempdir()).glob("handrail-*"):
        match = _NAME.match(entry.name)
        if match and _is_dead(int(match[1]), int(match[2])) and _is_ours(entry) and not _is_held(entry):
            remove_scratch(str(entry))
            removed += 1
    return removed


def _is_ours(entry: Path) -> bool:
    try:
        return entry.lstat().st_uid == os.getuid() and entry.is_dir() and not entry.is_symlink()
    except OSError:
        return False


def _is_held(entry: Path) -> bool:
    """A process that has another table of processes may live though we cannot see it: it holds a lock."""
    try:
        fd = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _is_dead(pid: int, born: int) -> bool:
    return _born(pid) != born


def _born(pid: int) -> int:
    """When a process started, in clock ticks since the machine did; 0 when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])
