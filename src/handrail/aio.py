"""Everything that needs asyncio itself: tasks that outlive a call, cleanup that finishes, work on another event loop.

anyio does not offer these. Its task groups end with the block that opened them; a job, a late answer or a signal to a
silent driver must not. Its shield does not stop asyncio's own cancellation. No other file imports asyncio.
"""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import wraps
from inspect import isawaitable
from math import inf
from types import MethodType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import anyio
import anyio.lowlevel

from handrail.contract.errors import HandrailError, Unavailable
from handrail.misuse import misuse

T = TypeVar("T")
P = ParamSpec("P")
_THREE_YEARS: Final = 1e8
"""Delay of a timer that is never due, in seconds: longer than any event loop runs."""
LOOP_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks that the event loop which does the work still runs."""


class Task(Protocol):
    """The part of an event loop's task that we use."""

    def cancel(self) -> bool: ...
    def done(self) -> bool: ...
    def add_done_callback(self, call: Callable[[Any], object], /) -> None: ...


_claiming = threading.Lock()


def refuse_other_loops(what: str) -> None:
    """Raise HandrailError under trio. Outside an event loop, pass."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        raise HandrailError(
            f"{what} runs on asyncio (uvloop too), and this is trio: run it with asyncio.run or run_sync"
        )


running_loop: Final[Callable[[], Any]] = asyncio.get_running_loop
"""The event loop of this thread. Raises RuntimeError if none is running."""


this_task: Final[Callable[[], Any]] = asyncio.current_task
"""The running task. A cancellation by an anyio scope cancels it too."""


_scope_types: Final[list[type[anyio.CancelScope]]] = []


def cancel_scope() -> anyio.CancelScope:
    """A cancel scope of anyio's asyncio backend, made without anyio's search for the running library."""
    # anyio.CancelScope() looks up the running library at each call and initialises the scope twice; this is per call.
    if not _scope_types:
        _scope_types.append(type(anyio.CancelScope()))
    return _scope_types[0]()


_deadlines: Final[list[Callable[[], float]]] = []


def in_cancelled_scope() -> bool:
    """Whether an anyio scope around the running task is cancelled, which anyio calls a deadline in the past.

    anyio's own function asks each time which library runs.
    """
    if not _deadlines:
        backend = getattr(sys.modules[type(cancel_scope()).__module__], "backend_class", anyio)
        _deadlines.append(backend.current_effective_deadline)
    return _deadlines[0]() == -inf


class _Waiting(dict[object, Callable[[], object]]):
    """Functions to call when the running task first waits."""

    soon = False
    """Whether the event loop will call the waiting functions in its next turn."""

    def act(self) -> None:
        self.soon = False
        while self:
            self.popitem()[1]()


def when_waiting(loop: Any) -> dict[object, Callable[[], object]]:
    """Table of functions that are called when the running task first waits, unless they are removed before that.

    A timer for each call, which is nearly always cancelled at once, would cost a tenth of the call.
    """
    # An attribute of the loop goes when the loop goes; a table of loops here would keep dead ones alive.
    waiting: _Waiting | None = vars(loop).get("_handrail_waiting")
    if waiting is None:
        waiting = vars(loop)["_handrail_waiting"] = _Waiting()
    if not waiting.soon:
        waiting.soon = True
        # An empty context, so that the callback holds nothing of the call that asked for it.
        loop.call_soon(waiting.act, context=Context())
    return waiting


def loop_here() -> Any:
    """The event loop of this thread, or None."""
    try:
        return running_loop()
    except RuntimeError:
        return None


def call_on(loop: Any, function: Callable[[], object]) -> None:
    """Call `function` on `loop`: now if that is the running loop, otherwise soon. Do nothing if `loop` has ended."""
    if loop is loop_here():
        function()
        return
    try:
        loop.call_soon_threadsafe(function, context=copy_context())
    except RuntimeError:
        return


def in_background(work: Coroutine[Any, Any, None]) -> Task:
    """Run `work` in a task of its own. It must handle its own errors; the task can be cancelled.

    An event loop keeps only weak references to its tasks, so we store them on the loop; they go when it goes.
    """
    loop = running_loop()
    task: Task = loop.create_task(work)
    tasks: set[Task] = vars(loop).setdefault("_handrail_tasks", set())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def when_loop_closes(act: Callable[[], object]) -> Callable[[], object]:
    """Call `act` when the running event loop is closed, or dropped without being closed; the newest `act` first.

    uvloop never frees a loop that was not closed; asyncio frees it unless a task waits on it for a descriptor.
    A method does not keep its object alive. Returns a function that undoes this. Outside an event loop, do nothing.
    """
    loop = loop_here()
    if loop is None:
        return lambda: None
    acts, key = _LoopEnd.of(loop).acts, object()
    # Weak: a sandbox that its owner dropped must be freed now, not when the loop ends.
    if isinstance(act, MethodType):
        acts[key] = weakref.WeakMethod(act, lambda _: acts.pop(key, None))
    else:
        acts[key] = lambda: act
    return lambda: acts.pop(key, None)


class _LoopEnd:
    """The callback of a timer. An event loop that ends drops its timers, and this object with them."""

    def __init__(self) -> None:
        self.acts: dict[object, Callable[[], Callable[[], object] | None]] = {}
        self._process = os.getpid()

    @staticmethod
    def of(loop: Any) -> "_LoopEnd":
        """The object of this event loop. Only the loop's timer keeps the object alive."""
        known: Callable[[], _LoopEnd | None] = vars(loop).get("_handrail_end", lambda: None)
        end = known()
        if end is None:
            # asyncio has no hook for the end of a loop, but close() drops all timers: `__del__` is that hook.
            end = _LoopEnd()
            # An empty context: a copy would keep its variables alive as long as the loop.
            loop.call_later(_THREE_YEARS, end, context=Context())
            # Only a weak reference: a strong one on the loop would outlive close(), and `__del__` would come late.
            vars(loop)["_handrail_end"] = weakref.ref(end)
        return end

    def __call__(self) -> None:
        """Do nothing: the timer is never due."""

    def __del__(self) -> None:
        if (
            sys.is_finalizing() or os.getpid() != self._process
        ):  # guards notice the end of this process; a fork is not it
            return
        while self.acts:
            with suppress(Exception):  # there is no caller to raise it to
                _, get = self.acts.popitem()
                if (act := get()) is not None:
                    act()


class OwnLoop:
    """The event loop to which an object belongs: the one on which it was created or first used.

    `at_end` is a method that is called when that loop is closed or dropped.
    """

    __slots__ = ("_at_end", "loop")

    def __init__(self, at_end: Callable[[], object] | None = None) -> None:
        self._at_end = None if at_end is None else weakref.WeakMethod(at_end)
        self.loop: Any = None
        self._claim(loop_here())

    def here(self) -> bool:
        """Whether this object's loop is the running one. A loop that no longer runs is replaced by the running one."""
        current = running_loop()
        if self.loop is current:
            return True
        # Two loops in two threads may ask at once; only one of them may become the owner.
        with _claiming:
            if self.loop is None or not self.loop.is_running():
                self._claim(current)
        return self.loop is current

    def _claim(self, loop: Any) -> None:
        self.loop = loop
        if self._at_end is not None and (at_end := self._at_end()) is not None:
            when_loop_closes(at_end)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on this loop and wait for it on the caller's.

        A cancellation is passed on to `work`, and raised here when `work` has ended. Raises Unavailable when the
        loop ends before the work does.
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
        """Wait until the work, or its event loop, has ended."""
        # A loop that was stopped tells nobody, so the wait looks at it now and then.
        while not self._done.is_set():
            with anyio.move_on_after(LOOP_CHECK_INTERVAL):
                await self._done.wait()
            if not self._done.is_set() and not self._loop.is_running():
                self.error = Unavailable("The event loop that this object belongs to has ended.", retryable=False)
                return

    def cancel(self) -> None:
        call_on(self._loop, lambda: self._task is not None and self._task.cancel())

    def _start(self) -> None:
        self._task = in_background(self._serve())
        self._task.add_done_callback(self._ended)

    async def _serve(self) -> None:
        try:
            self.value = await self._work()
        except Exception as error:  # noqa: BLE001 - raised again on the caller's loop
            self.error = error

    def _ended(self, task: Any) -> None:
        """Note the end of the task, also of one that was cancelled before it began."""
        if task.cancelled() or task.exception() is not None:
            self.error = Unavailable("The work was cancelled because its event loop ended.", retryable=False)
        call_on(self._back, self._done.set)


class HasOwnLoop(Protocol):
    """An object that belongs to an event loop."""

    @property
    def own_loop(self) -> OwnLoop: ...


S = TypeVar("S", bound=HasOwnLoop)


def on_own_loop(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorate a method: it runs on its object's own event loop, and may be awaited on any other.

    A function given as `on_output` is called on the caller's event loop while that runs.
    """

    @wraps(method)
    async def anywhere(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        own_loop = self.own_loop
        if own_loop.here():
            try:
                work = method(self, *args, **named)
            except TypeError:
                if why := misuse(method, (self, *args), named):
                    raise TypeError(why) from None
                raise
            return await work
        if callable(given := named.get("on_output")):
            named["on_output"] = _called_on(OwnLoop(), given)
        return await own_loop.run(lambda: method(self, *args, **named))

    return anywhere


def _called_on(caller: OwnLoop, given: Callable[[Any], object]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    async def call(chunk: Any) -> None:
        answer = given(chunk)
        if isawaitable(answer):
            await answer

    return lambda chunk: caller.run(lambda: call(chunk))


async def finish(closing: Callable[[], Awaitable[None]]) -> None:
    """Run `closing` to its end even if the caller is cancelled; raise the cancellation afterwards.

    Neither anyio's scopes nor asyncio's own cancellation (`task.cancel()`, `wait_for`, `timeout`, `TaskGroup`) reach
    it. Only the end of the event loop does, because it cancels every task: the caller must do without the loop what
    has to happen then. An exception of `closing` is raised here, or becomes the cause of the cancellation.
    Without an event loop, as in a coroutine that is destroyed after its loop ended, do nothing.
    """
    if loop_here() is None:
        return

    async def run() -> None:
        await closing()

    # In a task of its own, because `task.cancel()` passes anyio's shield and would end `closing` half-way.
    task = asyncio.create_task(run())
    cancelled: BaseException | None = None
    if isinstance(sys.exc_info()[1], GeneratorExit):
        # The garbage collector may be destroying this coroutine inside somebody else's task: then it ends at this first
        # await, and must not leave a scope of anyio's on that task. A generator that is closed goes on.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            cancelled = error
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error  # keep waiting; the last cancellation is raised after the work
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    task.result()
    await anyio.lowlevel.checkpoint_if_cancelled()


def is_cancelled() -> bool:
    """Whether this task was really cancelled."""
    return in_cancelled_scope() or cancels() > 0


def cancels() -> int:
    """How many cancellations of this task are pending."""
    return int(this_task().cancelling())
