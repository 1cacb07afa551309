"""Temporary directories named after their process, so that a later process removes those of dead ones."""

import atexit
import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from handrail.aio import when_loop_closes
from handrail.drivers._options import is_below

MEMORY: Final = "/dev/shm"
_MEMORY_FREE: Final = 32 << 20
"""Free space that a directory in memory must have to be used, in bytes."""
_MEMORY_FILES: Final = 10_000
"""Free inodes that a directory in memory must have to be used."""
_locked: dict[str, tuple[int, int]] = {}
"""Lock descriptors and inodes of this process's scratch directories, by path."""
# A shared lock is held while the directory exists: a process in another pid namespace cannot see whether this one
# lives, but sees the lock.
_undo_at_loop_end: dict[str, Callable[[], object]] = {}
_NAME: Final = re.compile(r"handrail-(\d+)-(\d+)-")


def make_scratch(parent: str | None = None, *, outlives_loop: bool = False) -> str:
    """Make a new private directory, named after this process, and remove the directories of dead processes.

    The end of the running event loop removes the directory, unless it `outlives_loop`.
    """
    for directory in dict.fromkeys((parent or tempfile.gettempdir(), *temporary_directories())):
        sweep_scratch(directory)
    path = tempfile.mkdtemp(prefix=f"{process_tag()}-", dir=parent)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    _locked[path] = fd, os.fstat(fd).st_ino
    if not outlives_loop:
        remove_at_loop_end(path)
    return path


def process_tag() -> str:
    """The beginning of the name of whatever this process makes outside of itself."""
    return f"handrail-{os.getpid()}-{_started(os.getpid())}"


def is_dead(name: str) -> bool:
    """Whether a name has the tag of a process that does not live any more."""
    match = _NAME.match(name)
    return match is not None and not _lives(int(match[1]), int(match[2]))


def is_own_and_empty(path: str) -> bool:
    """Whether this process made the directory for itself, and nothing is in it yet."""
    try:
        inode = os.stat(path).st_ino
        own = [each for each, (_, known) in _locked.items() if known == inode]
        return any(os.path.samefile(path, each) for each in own) and not os.listdir(path)
    except OSError:
        return False


def remove_at_loop_end(path: str) -> None:
    """Remove a directory when the running event loop ends, unless it was removed before."""
    _undo_at_loop_end[path] = when_loop_closes(partial(remove_scratch, path))


def make_lasting_scratch(parent: str | None = None) -> str:
    """Make a scratch directory that is removed when this process ends; forked children remove nothing."""
    path = make_scratch(parent, outlives_loop=True)
    atexit.register(_remove_at_exit, path, os.getpid())
    return path


def _remove_at_exit(path: str, owner: int) -> None:
    if os.getpid() == owner:
        remove_scratch(path)


def is_same(path: str, inode: int) -> bool:
    """Whether a path is still the directory with this inode; another process may have replaced the directory."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (status.st_ino, status.st_uid) == (inode, os.geteuid())


def is_scratch(path: str) -> bool:
    """Whether a path is in a scratch directory, of any process."""
    return any(_NAME.match(part) for part in path.split("/"))


def temporary_directories() -> tuple[str, ...]:
    """Return the usual directories for temporary files."""
    return tempfile.gettempdir(), "/var/tmp", MEMORY


def directory_outside(
    tops: Sequence[str], *, in_memory: bool = False, on_disk: bool = False, longest: int = 4096
) -> str | None:
    """Choose a directory for temporary files that is not below any of the real paths `tops`; None if there is none.

    `in_memory` prefers one in memory, if there is room, and `on_disk` one on disk, which /tmp often is not. The path
    has at most `longest` characters.
    """
    candidates: tuple[str, ...] = (*temporary_directories(), os.path.expanduser("~"))
    if in_memory and _has_room(MEMORY):
        candidates = MEMORY, *candidates
    if on_disk and tempfile.gettempdir() == "/tmp":  # another one was chosen by a person
        candidates = "/var/tmp", *candidates
    for path in candidates:
        real = _real(path)
        if not is_below(real, tops) and len(real) <= longest and os.access(real, os.W_OK):
            return real
    return None


@lru_cache(maxsize=16)
def _real(path: str) -> str:
    return os.path.realpath(path)


def _has_room(path: str) -> bool:
    try:
        status = os.statvfs(path)
    except OSError:
        return False
    files = status.f_files == 0 or status.f_favail >= _MEMORY_FILES  # no number at all means no limit
    return files and status.f_bavail * status.f_frsize >= _MEMORY_FREE


def remove_scratch(path: str) -> None:
    """Remove a directory with everything in it, even if a command made it unreadable. Links are not followed."""
    _unlock(path)
    _undo_at_loop_end.pop(path, lambda: None)()
    try:
        for _, names, _, parent in os.fwalk(path, follow_symlinks=False):
            for name in names:
                with suppress(OSError):  # two processes may sweep the same directory at once
                    _make_readable(name, parent)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # a command made it deeper than Python can go
        subprocess.run(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL, check=False)


def _unlock(path: str) -> None:
    fd, inode = _locked.pop(path, (-1, 0))
    with suppress(OSError):  # something closed all descriptors, and the number may be another file's
        if fd >= 0 and os.fstat(fd).st_ino == inode:
            os.close(fd)


def _make_readable(name: str, parent: int) -> None:
    if not hasattr(os, "O_PATH"):  # on other systems than Linux
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=os.chmod not in os.supports_follow_symlinks)
        return
    # By way of a descriptor: between a look at the name and the chmod, a command may put a link in its place.
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def sweep_scratch(directory: str | None = None) -> int:
    """Remove this user's directories whose process is dead; return their number."""
    removed = 0
    for entry in Path(directory or tempfile.gettempdir()).glob("handrail-*"):
        match = _NAME.match(entry.name)
        if match and not _lives(int(match[1]), int(match[2])) and _is_ours(entry) and not _is_locked(entry):
            remove_scratch(str(entry))
            removed += 1
    return removed


def _is_ours(entry: Path) -> bool:
    try:
        return entry.lstat().st_uid == os.getuid() and entry.is_dir() and not entry.is_symlink()
    except OSError:
        return False


def _is_locked(entry: Path) -> bool:
    """Whether a living process holds the directory's lock, perhaps one in another pid namespace."""
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


def _lives(pid: int, started: int) -> bool:
    """Whether a process lives. Without a start time, a later process with the same pid counts as the process."""
    if started:
        return _started(pid) == started
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; 0 if unknown, as on systems other than Linux."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])
