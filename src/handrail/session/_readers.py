"""Give every event to each reader through its own queue; drop a reader that raises, blocks or falls behind."""

import inspect
import threading
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, Final

import anyio

from handrail.aio import call_on, in_background, running_loop
from handrail.contract.errors import describe_error
from handrail.contract.event import Event, Reader
from handrail.contract.limits import READER_WAIT
from handrail.log import report
from handrail.threads import is_async

QUEUE_LIMIT: Final = 1_000
"""Events that a reader may fall behind."""


class ReaderQueue:
    """One reader's queue. `put` never blocks or raises. A plain reader runs in a thread, an async one in a task."""

    def __init__(self, reader: Reader, warn: Callable[[str, str], None]) -> None:
        self._reader: Callable[[Event], Any] = reader
        self._warn = warn
        self._events: deque[Event] = deque()
        self._deadline = inf
        self._dropped = False
        self._warned = False
        self._ending = False
        self._loop: Any = None
        self._woken: anyio.Event | None = None
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._serving = False
        self.is_async = is_async(reader)

    def put(self, event: Event) -> None:
        """Queue an event, from any thread."""
        if self._dropped:
            return
        if len(self._events) >= QUEUE_LIMIT:
            self._drop(f"was {QUEUE_LIMIT:,} events behind")
        elif monotonic() > self._deadline:
            self._drop(f"took more than {READER_WAIT:g} s over one event")
        else:
            self._events.append(event)
            self._wake()

    def begin(self) -> None:
        """Start an async reader in its own task, apart from the session's cancellations."""
        if self.is_async:
            self._loop, self._serving = running_loop(), True
            in_background(self._serve())

    async def _serve(self) -> None:
        while not self._dropped:
            self._woken = anyio.Event()
            while self._events and not self._dropped:
                await self._give(self._events.popleft())
            if self._ending:
                break
            if not self._events:
                await self._woken.wait()
        self._serving = False

    async def finish(self) -> None:
        """Wait until the reader has received every event, or drop it after READER_WAIT seconds."""
        self._ending = True
        self._wake()
        limit = monotonic() + READER_WAIT
        while not self._warned and (self._serving or (self._thread is not None and self._thread.is_alive())):
            if monotonic() > self._deadline:
                self._drop(f"took more than {READER_WAIT:g} s over one event")
            elif monotonic() > limit:
                self._drop(f"did not finish within {READER_WAIT:g} s after the session ended")
            await anyio.sleep(0.002)

    async def _give(self, event: Event) -> None:
        self._deadline = monotonic() + READER_WAIT
        try:
            with anyio.move_on_after(READER_WAIT) as limit:
                await self._reader(event)
        except BaseException as error:  # noqa: BLE001 - a reader may raise anything
            self._drop(f"raised {describe_error(error)}", error)
        if limit.cancelled_caught or monotonic() > self._deadline:
            self._drop(f"took more than {READER_WAIT:g} s over one event")
        self._deadline = inf

    def _wake(self) -> None:
        if not self.is_async:
            if self._thread is None and self._events:
                self._thread = threading.Thread(target=self._work, name="handrail reader", daemon=True)
                self._thread.start()
            with self._news:
                self._news.notify()
        elif self._woken is not None and not self._woken.is_set():
            call_on(self._loop, self._woken.set)

    def _work(self) -> None:
        while not self._dropped:
            with self._news:
                while not self._events and not self._ending and not self._dropped:
                    self._news.wait()
            if not self._events:
                return
            self._deadline = monotonic() + READER_WAIT
            try:
                if inspect.iscoroutine(made := self._reader(self._events.popleft())):
                    made.close()
                    self._drop("is a plain function that returned a coroutine: make it `async def`,")
            except BaseException as error:  # noqa: BLE001 - a reader may raise anything
                self._drop(f"raised {describe_error(error)}", error)
            self._deadline = inf

    def _drop(self, why: str, error: BaseException | None = None) -> None:
        if not self._dropped:
            self._dropped = True
            self._events.clear()
            self._wake()
            name = getattr(self._reader, "__qualname__", type(self._reader).__qualname__)
            traceback = "" if error is None else report(f"The event reader {name}", error)
            self._warn(f"The event reader {name} {why} and was dropped. Nothing else is affected.", traceback)
            self._warned = True
