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
"""Seconds between two looks whether processes without a pidfd of their own have ended."""


def open_process(pid: int) -> int | None:
    """A pidfd; None when there is no such process, or the kernel has no pidfds."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def open_children(pid: int) -> list[int]:
    """A pidfd for each child of this process, adopted ones included."""
    opened = [(child, open_process(child)) for child in _children(pid)]
    still = set(_children(pid))  # a number may name another process by the time it is opened
    for child, fd in opened:
        if fd is not None and child not in still:
            os.close(fd)
    return [fd for child, fd in opened if fd is not None and child in still]


def open_named(info: int, parent: int) -> int | None:
    """A pidfd of the process that bubblewrap named in its info; None unless that is a child of `parent`."""
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
    """Send KILL to each; not an error when it has ended."""
    for fd in fds:
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        except OSError:
            pass


def living(fds: Sequence[int], seconds: float) -> list[int]:
    """Wait until all have ended, at most so many seconds; returns those that have not."""
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
    """Kill these and every process below them, and wait for their end, at most so many seconds.

    They are stopped first: what is stopped starts nothing, and what has no parent any more is not found below these.
    """
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
    """A process, told from a later one with its number by when it began. There may be too many to hold pidfds."""

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
    """Every process with its parent's number and its state."""
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
    """The number of a pidfd's process; -1 when it has ended and was collected."""
    found = re.search(rb"^Pid:\s*(-?\d+)", Path(f"/proc/self/fdinfo/{fd}").read_bytes(), re.MULTILINE)
    return int(found[1]) if found else -1


def _children(pid: int) -> list[int]:
    """The children of its first thread: neither bubblewrap nor the guard has others."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
