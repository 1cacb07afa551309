"""Tell a real cancellation of this task from an exception that somebody raised by himself."""

import sys
from math import inf
from typing import Any

import anyio


def is_cancelled() -> bool:
    """Whether somebody really cancelled this task."""
    return anyio.current_effective_deadline() == -inf or cancels() > 0


def cancels() -> int:
    """How often this task was cancelled, and not uncancelled."""
    return int(this_task().cancelling())


def this_task() -> Any:
    """The task that runs now. A cancellation by anyio's scopes cancels it too."""
    return sys.modules["asyncio"].current_task()  # loaded wherever one of its tasks runs
