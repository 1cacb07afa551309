"""A Clock: the time a call may take, which stands still while a person is asked."""

from contextlib import AbstractContextManager
from typing import Protocol


class Limit(Protocol):
    """One limit of a clock."""

    @property
    def seconds(self) -> float: ...
    @property
    def passed(self) -> bool:
        """Whether the limit ended the block it stood around."""


class Clock(Protocol):
    """Limits nest; `pause` stops every limit of this clock and of the clocks around it."""

    def limit(self, seconds: float) -> AbstractContextManager[Limit]:
        """End the block when `seconds` of unpaused time have passed. The block is left without an exception."""

    def pause(self) -> AbstractContextManager[None]:
        """Run out no limit inside this block. May be entered several times at once."""

    def now(self) -> float:
        """Seconds of unpaused time since the clock was made."""

    def left(self) -> float:
        """Seconds until the budget of the run is spent; infinite where it has no end, negative where it is over."""
