"""The plain clock: it never stands still, and serves wherever no call has brought its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

import anyio


class WallLimit:
    """One limit of the plain clock."""

    __slots__ = ("_scope", "seconds")

    def __init__(self, scope: anyio.CancelScope, seconds: float) -> None:
        self._scope = scope
        self.seconds = seconds

    @property
    def passed(self) -> bool:
        return self._scope.cancelled_caught


class WallClock:
    """Implements contract.clock.Clock; `pause` stops nothing, because nobody can be asked here."""

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

    def now(self) -> float:
        return monotonic() - self._began

    def left(self) -> float:
        return inf
