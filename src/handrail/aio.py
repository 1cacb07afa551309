"""Everything that needs asyncio by its name: tasks that outlive a call, closings that finish, work on another loop.

anyio has no word for these. A task group ends with the block that opened it; a job, a late answer or a signal to a
silent driver must not. anyio's shield does not stop asyncio's own cancellation. No other file says asyncio.
"""

import asyncio
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from inspect import isawaitable
from math import inf
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import anyio
import anyio.lowlevel

from handrail.contract.errors import HandrailError, Unavailable

T = TypeVar("T")
P = ParamSpec("P")
_THREE_YEARS: Final = 1e8
"""Seconds, which are three years."""
LOOP_CHECK_INTERVAL: Final = 1.0
"""Seconds after which somebody on another event loop looks whether the one he waits for still runs."""


class Task(Protocol):
    """What the event loop calls a task."""

    def cancel(self) -> bool: ...
    def done(self) -> bool: ...
    def add_done_callback(self, call: Callable[[Any], object], /) -> None: ...


_claiming = threading.Lock()


def refuse_other_loops(what: str) -> None:
    """Raise HandrailError under trio. Outside any event loop, nothing is wrong yet."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        raise HandrailError(
            f"{what} runs on asyncio (uvloop too), and this is trio: run it with asyncio.run or run_sync"
        )


def running_loop() -> Any:
    """The event loop of this thread. Raises RuntimeError where there is none."""
    return asyncio.get_running_loop()


def loop_here() -> Any:
    """The event loop of this thread, or None."""
    try:
        return running_loop()
    except RuntimeError:
        return None


def call_on(loop: Any, function: Callable[[], object]) -> None:
    """Call it in that loop's thread: now, if that is this one, else soon. A loop that has ended needs nothing more."""
    if loop is loop_here():
        function()
        return
    try:
        loop.call_soon_threadsafe(function, context=copy_context())
    except RuntimeError:
        return


def in_background(work: Coroutine[Any, Any, None]) -> Task:
    """Run `work` beside the caller. It must answer for its own errors; its task can be cancelled.

    An event loop does not hold its tasks, so they are held on it; what it still has when it is closed goes with it.
    """
    loop = running_loop()
    task: Task = loop.create_task(work)
    held: set[Task] = vars(loop).setdefault("_handrail_tasks", set())
    held.add(task)
    task.add_done_callback(held.discard)
    return task


@contextmanager
def if_loop_closes(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` when this event loop is closed inside the block, which then never ends."""
    timer = weakref.ref(running_loop().call_later(_THREE_YEARS, _OnLoopClosed(act)))
    try:
        yield
    finally:
        if (held := timer()) is not None:
            held.cancel()


class _OnLoopClosed:
    """Held by one timer of an event loop. A loop that is closed lets go of its timers, and so of this."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __call__(self) -> None:
        """Never: that is when the timer is due."""

    def __del__(self) -> None:
        self._act()


class OwnLoop:
    """The event loop on which something was made or first used, and is used as long as that loop runs."""

    __slots__ = ("loop",)

    def __init__(self) -> None:
        self.loop = loop_here()

    def here(self) -> bool:
        """Whether this is that loop. One that does not run any more gives way to the one that asks."""
        current = running_loop()
        if self.loop is current:
            return True
        with _claiming:
            if self.loop is None or not self.loop.is_running():
                self.loop = current
        return self.loop is current

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` there and wait for it here. A cancellation reaches it, and is raised here when it has ended.

        Raises Unavailable when that loop ends before the work does.
        """
        if self.here():
            return await work()
        remote = _RemoteWork(self.loop, work)
        remote.begin()
        try:
            await remote.over()
        except BaseException:
            remote.cancel()
            await finish(remote.over)
            raise
        if remote.error is not None:
            raise remote.error
        value: T = remote.value
        return value


class _RemoteWork:
    """One piece of work on another event loop."""

    def __init__(self, loop: Any, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._loop = loop
        self._back = running_loop()
        self._work = work
        self._task: Task | None = None
        self._done = anyio.Event()

    def begin(self) -> None:
        call_on(self._loop, self._start)

    async def over(self) -> None:
        """Until it has ended, or the loop it is on has."""
        while not self._done.is_set():
            with anyio.move_on_after(LOOP_CHECK_INTERVAL):
                await self._done.wait()
            if not self._done.is_set() and not self._loop.is_running():
                self.error = Unavailable("The event loop that this belongs to has ended.", retryable=False)
                return

    def cancel(self) -> None:
        call_on(self._loop, lambda: self._task is not None and self._task.cancel())

    def _start(self) -> None:
        self._task = in_background(self._serve())

    async def _serve(self) -> None:
        try:
            self.value = await self._work()
        except Exception as error:  # noqa: BLE001 - raised again where the work was asked for
            self.error = error
        except BaseException as error:
            self.error = Unavailable("It was ended with the event loop that it belongs to.", retryable=False)
            self.error.__cause__ = error
            raise
        finally:
            call_on(self._back, self._done.set)


class HasOwnLoop(Protocol):
    """Something that belongs to an event loop."""

    @property
    def own_loop(self) -> OwnLoop: ...


S = TypeVar("S", bound=HasOwnLoop)


def on_own_loop(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method, run on the event loop that its object belongs to, whoever awaits it.

    A function given as `on_output` is called on the event loop of the one who gave it, as long as that runs.
    """

    @wraps(method)
    async def anywhere(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        own_loop = self.own_loop
        if own_loop.here():
            return await method(self, *args, **named)
        if callable(given := named.get("on_output")):
            named["on_output"] = _called_on(OwnLoop(), given)
        return await own_loop.run(lambda: method(self, *args, **named))

    return anywhere


def _called_on(listener: OwnLoop, given: Callable[[Any], object]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    async def hear(chunk: Any) -> None:
        answer = given(chunk)
        if isawaitable(answer):
            await answer

    return lambda chunk: listener.run(lambda: hear(chunk))


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


def is_cancelled() -> bool:
    """Whether somebody really cancelled this task."""
    return anyio.current_effective_deadline() == -inf or cancels() > 0


def cancels() -> int:
    """How often this task was cancelled, and not uncancelled."""
    return int(this_task().cancelling())


def this_task() -> Any:
    """The task that runs now. A cancellation by anyio's scopes cancels it too."""
    return asyncio.current_task()
