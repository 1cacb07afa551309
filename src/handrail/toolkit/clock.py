"""A clock for one call whose limits stand still, with those of every clock around it, while a person is asked."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from types import TracebackType

import anyio


def _loop_time() -> float:
    """What `anyio.current_time` tells, without looking for the backend first, which takes six times as long."""
    return float(sys.modules["asyncio"].get_running_loop().time())


class CallLimit:
    """One limit: a cancel scope whose deadline moves on when its clock was paused."""

    __slots__ = ("_clock", "_left", "scope", "seconds")

    def __init__(self, clock: "CallClock", seconds: float) -> None:
        self._clock = clock
        self._left = seconds
        self.seconds = seconds

    def __enter__(self) -> "CallLimit":
        clock = self._clock
        deadline = inf if clock.paused else _loop_time() + self._left
        self.scope = anyio.CancelScope(deadline=deadline)
        self.scope.__enter__()
        clock.limits.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._clock.limits.remove(self)
        return self.scope.__exit__(kind, error, trace)

    @property
    def passed(self) -> bool:
        return self.scope.cancelled_caught

    def hold(self, now: float) -> None:
        """Stop running out. A limit that has already passed stays passed."""
        self._left = self.scope.deadline - now
        if self._left > 0:
            self.scope.deadline = inf

    def resume(self, now: float) -> None:
        """Run on from where it was held."""
        if self.scope.deadline == inf:
            self.scope.deadline = now + self._left


class CallClock:
    """Implements contract.clock.Clock. `around` is the clock of the call, or run, inside which this one runs."""

    __slots__ = ("_around", "_began", "_held_at", "_lost", "_pauses", "limits")

    def __init__(self, around: "CallClock | None" = None) -> None:
        self._around = around
        self._began: float | None = None
        self._held_at = 0.0
        self._lost = 0.0
        self._pauses = 0
        self.limits: list[CallLimit] = []

    @property
    def paused(self) -> bool:
        return self._pauses > 0

    def start(self) -> None:
        """Begin to count; `now` is 0 until then."""
        if self._began is None:
            self._began = monotonic()

    def limit(self, seconds: float) -> CallLimit:
        return CallLimit(self, seconds)

    @contextmanager
    def pause(self, *, run: bool = True) -> Iterator[None]:
        """Stop this clock and those around it; the outermost, which is the run's, only with `run`."""
        clocks: list[CallClock] = []
        clock: CallClock | None = self
        while clock is not None:
            if run or clock._around is not None:
                clocks.append(clock)
            clock = clock._around
        for each in clocks:
            each._hold()
        try:
            yield
        finally:
            for each in clocks:
                each._release()

    def now(self) -> float:
        if self._began is None:
            return 0.0
        return (self._held_at if self.paused else monotonic()) - self._began - self._lost

    def _hold(self) -> None:
        self._pauses += 1
        if self._pauses == 1:
            self._held_at = monotonic()
            for limit in self.limits:
                limit.hold(_loop_time())

    def _release(self) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            if self._began is not None:
                self._lost += monotonic() - max(self._held_at, self._began)
            for limit in self.limits:
                limit.resume(_loop_time())
