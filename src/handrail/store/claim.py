"""A claim: the right to write one session, held by one process at a time."""

import fcntl
import json
import os
import socket
import weakref
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import Final

from handrail.contract.errors import HandrailError

DOOR_ENDING: Final = ".door"
"""End of the file name of a door, which begins with its claim's and is new each time."""
SOON: Final = 1e-3
"""Seconds after which nobody looks any more who looked before."""


class Claim:
    """A locked file that names its holder. It ends by `release`, with its owner, or with the process."""

    def __init__(self, directory: Path, session: str) -> None:
        self._path = _path(directory, session)
        try:
            for each in (directory.parent, directory):  # so that both are private, if they are new
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._lock(session)
        except OSError as error:
            raise HandrailError(f"session {session} cannot be claimed: {error.strerror}: {self._path}") from error
        # flock ends with the process, however it dies; a file with a process id would have to be judged stale.
        self._file = file
        with suppress(OSError):  # a full disk: the lock holds, and only its holder's name is missing
            self.name_door("")
        self.release = weakref.finalize(self, _release, file, self._path, os.getpid())
        """End the claim. May be called twice."""

    @property
    def directory(self) -> Path:
        """The directory of the claims and the doors, which only this user can enter."""
        return self._path.parent

    @property
    def stem(self) -> str:
        """The beginning of the names of the session's files here."""
        return self._path.stem

    def name_door(self, name: str) -> None:
        """Write the holder's name, and the file name of the session's door; empty for none. Raises OSError."""
        holder = {"pid": os.getpid(), "host": socket.gethostname(), **({"door": name} if name else {})}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(holder).encode(), 0)

    def _lock(self, session: str) -> int:
        while True:
            file, wait = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), 0.0
            try:
                if not _try(file, fcntl.LOCK_EX):
                    if not _try(file, fcntl.LOCK_SH):
                        raise HandrailError(f"session {session} is in use by {_holder(file)}")
                    wait = SOON  # somebody only looks whether it is claimed
                # The holder before us may have unlinked the file between our open and our lock: a lock on a nameless
                # file excludes nobody, so the inode must still be the one at the path.
                elif os.fstat(file).st_ino == os.stat(self._path).st_ino:
                    return file
            except FileNotFoundError:
                pass  # its last holder removed it just now: take a new one
            except BaseException:
                os.close(file)
                raise
            os.close(file)
            sleep(wait)  # with nothing locked: those who wait would take one another for one who looks


def _try(file: int, kind: int) -> bool:
    """Whether the file could be locked now: exclusively to write, or shared to look."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_claimed(directory: Path, session: str) -> bool:
    """Whether a living process holds the session."""
    try:
        file = os.open(_path(directory, session), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def door_of(directory: Path, session: str) -> tuple[str, bool]:
    """The file name of a session's door, as its claim says, and whether a living process holds the claim."""
    try:
        file = os.open(_path(directory, session), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return "", False
    try:
        door = str(json.loads(os.pread(file, 4096, 0)).get("door", ""))
        return (door if "/" not in door else ""), not _try(file, fcntl.LOCK_SH)
    except (ValueError, AttributeError, OSError):
        return "", not _try(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def sweep_doors(directory: Path) -> None:
    """Remove the doors that killed processes left: those whose claim nobody holds, or names another door."""
    for door in directory.glob(f"*{DOOR_ENDING}"):
        with suppress(OSError, ValueError, AttributeError):
            claim = directory / f"{door.name.partition('-')[0]}.lock"
            if not claim.exists() or _is_stale(claim, door.name):
                door.unlink()


def _is_stale(claim: Path, door: str) -> bool:
    file = os.open(claim, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _try(file, fcntl.LOCK_SH) or json.loads(os.pread(file, 4096, 0)).get("door") not in ("", None, door)
    finally:
        os.close(file)


def file_name(session: str) -> str:
    """The name of a file about a session, whose id may have any characters."""
    return sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _path(directory: Path, session: str) -> Path:
    return directory / f"{file_name(session)}.lock"


def _holder(file: int) -> str:
    try:
        holder = json.loads(os.pread(file, 4096, 0))
        pid, host = int(holder["pid"]), str(holder["host"])
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
    return "this process" if (pid, host) == (os.getpid(), socket.gethostname()) else f"process {pid} on {host}"


def _release(file: int, path: Path, owner: int) -> None:
    with suppress(OSError):
        if owner == os.getpid() and os.fstat(file).st_ino == os.stat(path).st_ino:  # a forked child removes nothing
            path.unlink()
    with suppress(OSError):
        os.close(file)
