"""Start work that outlives the call that started it, and never lose sight of it.

A task group ends with the block that opened it; a job, a late answer or a signal to a silent driver must not.
This is the one place that makes tasks of its own.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

Task = asyncio.Task[None]

_alive: set[Task] = set()


def in_background(work: Coroutine[Any, Any, None]) -> Task:
    """Run `work` beside the caller. It must answer for its own errors; its task can be cancelled."""
    task = asyncio.get_running_loop().create_task(work)
    _alive.add(task)
    task.add_done_callback(_alive.discard)
    return task
