"""Run a plain function in a daemon thread: one that is stuck delays neither the next call nor the exit.

The threads of anyio keep a program from exiting if its event loop was closed while a task still waited for one.
"""

import inspect
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from handrail.aio import LOOP_CHECK_INTERVAL, call_on, finish, running_loop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

IDLE_THREADS = 16
"""Idle threads kept for later calls. A new thread is started when all are busy."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function is an `async def`, or an object with an async `__call__`: it needs no thread."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Work:
    """One body in a thread. If it ends after its caller has left, it calls `on_late` in that thread."""

    def __init__(self, function: Callable[[], Any], on_late: Callable[["Work"], None] | None = None) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._run = function
        self._context = copy_context()  # the body sees the caller's context variables, as with asyncio.to_thread
        self._on_late = on_late
        self._lock = threading.Lock()
        self._left = False
        self._done = False
        self._loop: Any = None
        self._woken: anyio.Event | None = None

    async def wait(self) -> Any:
        """Return the body's value or raise its exception. A cancelled caller leaves at once; the body keeps running."""
        self._loop, self._woken = running_loop(), anyio.Event()
        _hand_out(self)
        try:
            await self._woken.wait()
        except BaseException:
            # Under the lock, so that exactly one side reports: the caller its value, or the thread `on_late`.
            with self._lock:
                self._left = not self._done
            raise
        return self._outcome()

    async def seen_to_end(self) -> None:
        """Wait as `wait` does, and look now and then: a forked child that closes its loop takes our wake-up away."""
        self._loop, self._woken = running_loop(), anyio.Event()
        _hand_out(self)
        while not self._done:
            with anyio.move_on_after(LOOP_CHECK_INTERVAL):
                await self._woken.wait()
        self._outcome()

    def _outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value

    @property
    def left_running(self) -> bool:
        return self._left

    def execute(self) -> None:
        """Run the body, in the thread, keep its outcome, and wake the caller if it still waits."""
        try:
            self.value = self._context.run(self._run)
        except BaseException as error:  # noqa: BLE001 - every outcome of a body belongs to its caller
            self.error = error
        with self._lock:
            self._done = True
            late = self._left
        if late:
            if self._on_late is not None:
                self._on_late(self)
        elif self._woken is not None:
            call_on(self._loop, self._woken.set)


async def in_thread(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Call it in a thread and wait for its end, even when cancelled. As many run at once as anyio allows threads."""
    outcome: list[T] = []
    work = Work(lambda: outcome.append(function(*arguments)))
    # A thread cannot be stopped: without the wait, a cancelled function would go on writing unseen.
    async with anyio.to_thread.current_default_thread_limiter():
        await finish(work.seen_to_end)
    return outcome[0]


_idle: "deque[SimpleQueue[Work]]" = deque()


def _hand_out(work: Work) -> None:
    try:
        queue = _idle.pop()
    except IndexError:
        queue = SimpleQueue()
        threading.Thread(target=_serve, args=(queue,), name="handrail body", daemon=True).start()
    queue.put(work)


def _serve(queue: "SimpleQueue[Work]") -> None:
    while True:
        work = queue.get()
        work.execute()
        del work  # an idle thread must not keep the last body's arguments and value alive
        if len(_idle) >= IDLE_THREADS:
            return
        _idle.append(queue)
