"""A Clock: measures how long a call takes, and is paused while a person is asked."""

from contextlib import AbstractContextManager
from typing import Protocol


class Limit(Protocol):
    """One limit of a clock."""

    @property
    def seconds(self) -> float: ...
    @property
    def passed(self) -> bool:
        """Whether the limit ended its block."""


class Clock(Protocol):
    """A clock with nested limits. `pause` pauses this clock and its parents, with all their limits.

    Example:
        ```python
        import anyio

        @tool
        async def patient(context: Context) -> str:
            "Wait within a limit."
            clock: Clock = context.clock
            with clock.limit(0.01) as limit:
                await anyio.sleep(60)
            return "stopped" if limit.passed else "done"

        async with Session([patient]) as session:
            print((await session.call("patient")).value)
        #> stopped
        ```
    """

    def limit(self, seconds: float) -> AbstractContextManager[Limit]:
        """End the block after `seconds` of unpaused time, without an exception."""

    def pause(self) -> AbstractContextManager[None]:
        """Pause the clock during the block. Pauses may overlap."""

    def now(self) -> float:
        """Seconds of unpaused time since the clock was started."""

    def grace(self) -> AbstractContextManager[None]:
        """Let the block outlast the run's time budget by up to 5 s, to end its work by `left` and report it."""

    def left(self) -> float:
        """Seconds left in the run's time budget: infinite without a budget, negative when it is exceeded."""
