"""Kill processes through pidfds, which never name another process, and wait for their end; without an event loop."""

import os
import re
import select
import signal
from collections.abc import Sequence
from pathlib import Path
from time import monotonic


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


def _children(pid: int) -> list[int]:
    """The children of its first thread: neither bubblewrap nor the guard has others."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
