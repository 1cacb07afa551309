"""A clock that is never paused, for commands outside a call."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

import anyio


class WallLimit:
    """One limit of a WallClock."""

    __slots__ = ("_scope", "seconds")

    def __init__(self, scope: anyio.CancelScope, seconds: float) -> None:
        self._scope = scope
        self.seconds = seconds

    @property
    def passed(self) -> bool:
        return self._scope.cancelled_caught


class WallClock:
    """Implements contract.clock.Clock; outside a call no person is asked, and no run ends."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = monotonic()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[WallLimit]:
        with anyio.move_on_after(seconds) as scope:
            yield WallLimit(scope, seconds)

    @contextmanager
    def pause(self) -> Iterator[None]:
        yield

    @contextmanager
    def grace(self) -> Iterator[None]:
        yield

    def now(self) -> float:
        return monotonic() - self._began

    def left(self) -> float:
        return inf
