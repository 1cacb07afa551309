"""Kill processes that a check left running, if the driver does not: those that work in a directory of the kit."""

import os
import signal
from collections.abc import Collection
from typing import Final

PROC: Final = "/proc"


def kill_leftovers(directories: Collection[str]) -> int:
    """Kill every process of this machine whose working directory is below one of these names or paths.

    A directory has a name that nothing else has, so it is told apart in whatever view of the files the process has.
    Returns how many were found. Finds none where there is no /proc, and none that is on another machine.
    """
    found = [pid for pid in _pids() if _works_in(pid, directories)]
    for pid in found:
        _kill(pid, directories)
    return len(found)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdecimal() and name != str(os.getpid())]
    except OSError:
        return []


def _works_in(pid: int, directories: Collection[str]) -> bool:
    try:
        path = os.readlink(f"{PROC}/{pid}/cwd").removesuffix(" (deleted)")
    except OSError:  # it has ended, or belongs to somebody else
        return False
    return any(f"/{it.lstrip('/')}/" in f"{path}/" for it in directories)


def _kill(pid: int, directories: Collection[str]) -> None:
    """Kill a process through a pidfd, so that a later process with the same pid is not hit."""
    try:
        process = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return
    try:
        if _works_in(pid, directories):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:  # it has ended, or may not be killed
        pass
    finally:
        os.close(process)
