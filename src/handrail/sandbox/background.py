"""Start work that outlives the call that started it, and never lose sight of it.

A task group ends with the block that opened it; a job, a late answer or a signal to a silent driver must not.
This is the one place that makes tasks of its own.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from anyio.lowlevel import current_token


class Task(Protocol):
    """What the event loop calls a task."""

    def cancel(self) -> bool: ...
    def done(self) -> bool: ...
    def add_done_callback(self, call: Callable[[Any], object], /) -> None: ...


_alive: set[Task] = set()


def in_background(work: Coroutine[Any, Any, None]) -> Task:
    """Run `work` beside the caller. It must answer for its own errors; its task can be cancelled."""
    task: Task = current_token().native_token.create_task(work)  # type: ignore[attr-defined]
    _alive.add(task)
    task.add_done_callback(_alive.discard)
    return task
