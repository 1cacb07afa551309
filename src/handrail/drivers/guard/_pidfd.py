"""Kill processes through pidfds, which never name another process, and wait for their end; without an event loop."""

import os
import re
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

_LOOK_AGAIN: Final = 0.005
"""Pause between two looks at killed processes without pidfds, in seconds."""


def open_process(pid: int) -> int | None:
    """Open a pidfd; None if there is no such process, or the kernel has no pidfds."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def open_children(pid: int) -> list[int]:
    """Open a pidfd for each child of a process, adopted children included."""
    opened = [(child, open_process(child)) for child in _children(pid)]
    still = set(_children(pid))  # a number may name another process by the time it is opened
    for child, fd in opened:
        if fd is not None and child not in still:
            os.close(fd)
    return [fd for child, fd in opened if fd is not None and child in still]


def open_named(info: int, parent: int) -> int | None:
    """Open a pidfd of the process that bubblewrap named in its info; None unless the process is a child of `parent`."""
    try:
        os.set_blocking(info, False)
        named = re.search(rb'"child-pid": *(\d+)', os.read(info, 4096))
    except OSError:  # nothing was written
        return None
    fd = open_process(int(named[1])) if named else None
    if fd is not None and named and int(named[1]) not in _children(parent):
        os.close(fd)
        return None
    return fd


def kill(fds: Sequence[int]) -> None:
    """Send KILL to each process; a process that has ended is not an error."""
    for fd in fds:
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        except OSError:
            pass


def living(fds: Sequence[int], seconds: float) -> list[int]:
    """Wait at most `seconds` for all processes to end; return the pidfds of those that still live."""
    left, deadline = set(fds), monotonic() + seconds
    poll = select.poll()
    for fd in left:
        poll.register(fd, select.POLLIN)
    while left and (wait := deadline - monotonic()) > 0:
        for fd, _ in poll.poll(wait * 1000):
            poll.unregister(fd)
            left.discard(fd)
    return sorted(left)


def kill_trees(roots: Sequence[int], seconds: float) -> None:
    """Kill processes with all their descendants, and wait at most `seconds` for their end."""
    # All are stopped before the first is killed: a stopped process starts nothing, and the children of a killed one
    # would get another parent and be missed.
    deadline = monotonic() + seconds
    stopped: set[_Process] = set()
    while roots and (found := _with_all_below(roots) - stopped) and monotonic() < deadline:
        for each in found:
            _send(each, signal.SIGSTOP)
        stopped |= found
    for each in stopped:
        _send(each, signal.SIGKILL)
    while any(_lives(each) for each in stopped) and monotonic() < deadline:
        sleep(_LOOK_AGAIN)


class _Process(NamedTuple):
    """A process, identified by pid and start time: a later process may have the same pid."""

    # Not a pidfd, because a tree may have more processes than this process may have descriptors.

    pid: int
    began: int


def _with_all_below(roots: Sequence[int]) -> set[_Process]:
    below: dict[int, list[_Process]] = {}
    known: dict[int, _Process] = {}
    for process, parent, _ in _all_processes():
        below.setdefault(parent, []).append(process)
        known[process.pid] = process
    family = [known[pid] for pid in map(_pid_of, roots) if pid in known]  # still there, so the number was its own
    for each in family:
        family += below.get(each.pid, ())
    return set(family)


def _all_processes() -> Iterator[tuple[_Process, int, str]]:
    """Yield every process with its parent's pid and its state."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := _look(int(entry))):
            yield found


def _look(pid: int) -> tuple[_Process, int, str] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Process(pid, int(fields[19])), int(fields[1]), fields[0].decode()


def _lives(process: _Process) -> bool:
    found = _look(process.pid)
    return found is not None and found[0] == process and found[2] not in "ZX"


def _send(process: _Process, number: int) -> None:
    fd = open_process(process.pid)
    if fd is None:
        return
    with suppress(OSError):
        if _lives(process):
            signal.pidfd_send_signal(fd, number)
    os.close(fd)


def _pid_of(fd: int) -> int:
    """Return the pid of a pidfd's process; -1 if the process was reaped."""
    found = re.search(rb"^Pid:\s*(-?\d+)", Path(f"/proc/self/fdinfo/{fd}").read_bytes(), re.MULTILINE)
    return int(found[1]) if found else -1


def _children(pid: int) -> list[int]:
    """Return the children of a process's first thread; bubblewrap and the guard have no other threads."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
