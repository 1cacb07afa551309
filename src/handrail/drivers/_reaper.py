"""Remove, once in each process, what earlier processes left that were killed: directories and cgroups.

Everything of ours is tagged with its process, and what belongs to a living one is not touched. Mounts need no reaper:
each is in a mount namespace, which ends with its sandbox. A room that makes something else adds its function here.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from handrail.drivers._cgroup import reap_cgroups
from handrail.drivers.scratch import sweep_scratch, temporary_directories


def _reap_scratch() -> None:
    for directory in dict.fromkeys(temporary_directories()):
        sweep_scratch(directory)


REAPERS: Final[tuple[Callable[[], object], ...]] = (_reap_scratch, reap_cgroups)
_reaping: dict[int, threading.Thread] = {}
"""Reaping threads by process id, because a forked child reaps for itself."""


def reap() -> None:
    """Begin to remove leftovers, in a thread: a machine with thousands of cgroups would delay the first sandbox."""
    if os.getpid() not in _reaping:
        thread = threading.Thread(target=_reap_all, name="handrail-reaper", daemon=True)
        _reaping[os.getpid()] = thread
        thread.start()


def reaped(timeout: float | None = None) -> bool:
    """Wait until this process has reaped; returns whether it has."""
    thread = _reaping.get(os.getpid())
    if thread is not None:
        thread.join(timeout)
    return thread is not None and not thread.is_alive()


def _reap_all() -> None:
    for each in REAPERS:
        with suppress(Exception):  # leftovers must not harm who starts
            each()
