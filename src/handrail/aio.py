"""Run a closing to its end, whatever cancels the task that waits for it."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel


async def finish(closing: Callable[[], Awaitable[None]]) -> None:
    """Run it in a task of its own, wait until that has ended, and only then raise the cancellation, if there was one.

    Neither anyio's scopes nor asyncio's own cancellation (`task.cancel()`, `wait_for`, `timeout`, `TaskGroup`) reach
    it. Only the end of the event loop does: it cancels every task, this one too, so what must happen then has to be
    done without the loop by whoever calls this. What the closing raises is raised here; beside a cancellation it is
    the cause of that.
    """

    async def run() -> None:
        await closing()

    task = asyncio.create_task(run())
    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    task.result()
    await anyio.lowlevel.checkpoint_if_cancelled()
