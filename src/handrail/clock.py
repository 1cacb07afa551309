"""The clock of a call, or of a command outside a call. It and its parents are paused while a person is asked.

It may be read and paused from any thread. A limit belongs to the event loop on which it was entered.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, Final

from handrail.aio import call_on, cancel_scope, running_loop, when_waiting
from handrail.contract.errors import HandrailError
from handrail.contract.limits import BUDGET_GRACE

_pausing = threading.Lock()
"""Guards the pauses of every clock: one pause changes several, and they may be counted from any thread."""
_RUNNING: Final = (0, 0.0, 0.0)
"""The state of a clock that was never paused."""


class CallLimit:
    """One limit: a cancel scope whose deadline moves by as long as its clock is paused.

    It gets its deadline, and the event loop a timer, when the work inside first waits. Most work never does.
    """

    __slots__ = ("_clock", "_end", "_graces", "_unset", "loop", "scope", "seconds")

    def __init__(self, clock: "CallClock", seconds: float) -> None:
        self._clock = clock
        self._graces = 0
        self._unset: dict[object, Callable[[], object]] | None = None
        """Table in which the limit waits to get its deadline."""
        self.seconds = seconds

    def __enter__(self) -> "CallLimit":
        clock, seconds = self._clock, self.seconds
        try:
            self.loop: Any = running_loop()
        except RuntimeError:
            raise HandrailError("a limit can only end async work; in a `def` body call context.check()") from None
        pauses, since, lost = clock._state
        self._end = (since if pauses else monotonic()) - lost + seconds
        self.scope = cancel_scope()
        clock.limits.append(self)
        if seconds <= 0:
            self.settle()
        elif seconds < inf:
            self._unset = when_waiting(self.loop)
            self._unset[self] = self.settle
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._clock.limits.remove(self)
        if self._unset is not None:
            self._unset.pop(self, None)
        return self.scope.__exit__(kind, error, trace)

    @property
    def passed(self) -> bool:
        return self.scope.cancelled_caught

    @contextmanager
    def grace(self, seconds: float) -> Iterator[None]:
        """Move the deadline back inside the block, however often it is entered. A passed limit stays passed."""
        self._add(1, seconds)
        try:
            yield
        finally:
            self._add(-1, seconds)

    def _add(self, change: int, seconds: float) -> None:
        self._graces += change
        if self._graces == (1 if change > 0 else 0):
            self._end += change * seconds
            self.settle()

    def settle(self) -> None:
        """Set the deadline by the clock: none while it is paused. A limit that has passed stays passed."""
        left = self._end - self._clock.elapsed()
        if left > 0:
            self.scope.deadline = inf if self._clock.paused else self.loop.time() + left
        elif self.scope.deadline == inf:  # it has no time at all
            self.scope.deadline = self.loop.time()


class CallClock:
    """Implements contract.clock.Clock. `parent` is the clock of the parent call, or of the run.

    `seconds` is the time budget of a run, for all its calls together, or what `allow` gave to one call.
    """

    __slots__ = ("_began", "_parent", "_seconds", "_state", "limits", "run_limit")

    def __init__(self, parent: "CallClock | None" = None, seconds: float | None = None) -> None:
        self._parent = parent
        self._seconds = inf if seconds is None else seconds
        self._began: float | None = None
        self._state = _RUNNING
        """Number of open pauses, start of the first one, and seconds of earlier pauses; always replaced as one."""
        self.limits: list[CallLimit] = []
        self.run_limit: CallLimit | None = None
        """Limit that ends the call when the run's seconds are used up; None without such a budget."""

    @classmethod
    def started(cls) -> "CallClock":
        """A clock of its own that counts from now on, for a command outside a call."""
        made = cls()
        made.start()
        return made

    @property
    def paused(self) -> bool:
        return self._state[0] > 0

    def start(self) -> None:
        """Start counting; `now` is 0 until then."""
        if self._began is None:
            pauses, since, lost = self._state
            self._began = (since if pauses else monotonic()) - lost

    def allow(self, seconds: float) -> None:
        """Count `left` down from so many seconds, from now on."""
        self._seconds = self.now() + seconds

    def limit(self, seconds: float) -> CallLimit:
        return CallLimit(self, seconds)

    @contextmanager
    def grace(self) -> Iterator[None]:
        """Let this call, and the calls around it, end up to 5 s after the run's seconds."""
        with ExitStack() as later:
            clock: CallClock | None = self
            while clock is not None:
                if clock.run_limit is not None:
                    later.enter_context(clock.run_limit.grace(BUDGET_GRACE))
                clock = clock._parent
            yield

    @contextmanager
    def pause(self, *, run: bool = True) -> Iterator[None]:
        """Pause this clock and its parents; the outermost, which is the run's, only with `run`."""
        clocks: list[CallClock] = []
        clock: CallClock | None = self
        while clock is not None:
            if run or clock._parent is not None:
                clocks.append(clock)
            clock = clock._parent
        for each in clocks:
            each._count(1)
        try:
            yield
        finally:
            for each in clocks:
                each._count(-1)

    def now(self) -> float:
        if self._began is None:
            return 0.0
        pauses, since, lost = self._state  # as `elapsed` does, without a call more on the way of every call
        return (since if pauses else monotonic()) - lost - self._began

    def elapsed(self) -> float:
        """Seconds of unpaused time since an arbitrary moment."""
        pauses, since, lost = self._state
        return (since if pauses else monotonic()) - lost

    def left(self) -> float:
        own = self._seconds - self.now() if self._seconds < inf else inf
        return own if self._parent is None else min(own, self._parent.left())

    def _count(self, change: int) -> None:
        with _pausing:
            pauses, since, lost = self._state
            if pauses == 0:
                since = monotonic()
            elif pauses + change == 0:
                lost += monotonic() - since
            self._state = (pauses + change, since, lost)
        if 0 in (pauses, pauses + change):
            for limit in list(self.limits):
                call_on(limit.loop, limit.settle)
