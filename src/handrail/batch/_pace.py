"""How many tasks may run, and when the next may begin: slower after losses, faster after results."""

import re
from math import inf
from time import monotonic
from typing import Final

from handrail.batch.task import Lost

FIRST_PAUSE_SECONDS: Final = 0.5
"""Seconds for which nothing is begun after a loss that others would meet too; twice as long after each one in a row."""
MAX_PAUSE_SECONDS: Final = 600.0
"""Seconds of the longest pause, even where a provider asks for more."""
MAX_ALIKE_COUNT: Final = 5
"""Losses alike in a row, of more than one task, after which the batch stops."""
SLOWS: Final = frozenset({"model", "machine", ""})
"""Kinds of losses that other tasks would meet at the same time."""
_NUMBER: Final = re.compile(r"\d+")


class Pace:
    """Slots that are halved by losses and come back one by one; `row` has the losses alike since the last result."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._allowed = slots
        self._until = self._paused_at = -inf
        self._alike = ""
        self._row: list[str] = []

    def wait(self, running: int) -> float:
        """Seconds until another task may begin; infinite where one has to end first."""
        return inf if running >= self._allowed else self._until - monotonic()

    def good(self) -> None:
        """Note a result."""
        self._row.clear()
        self._allowed = min(self.slots, self._allowed + 1)

    def bad(self, lost: Lost, task: str, began: float) -> float:
        """Note a loss of a task that began then. Returns for how many seconds nothing is begun.

        Tasks that were running when a pause began meet the same trouble: they count once together.
        """
        alike = f"{lost.kind}:{_NUMBER.sub('#', lost.why)[:120]}"
        if alike != self._alike:
            self._alike = alike
            self._row.clear()
        slows = lost.kind in SLOWS
        if slows and self._row and began < self._paused_at:
            return self._pause(lost.retry_after or 0.0)
        self._row.append(task)
        if not slows:
            return 0.0
        self._paused_at = monotonic()
        self._allowed = max(1, self._allowed // 2)
        return self._pause(max(lost.retry_after or 0.0, FIRST_PAUSE_SECONDS * 2 ** (len(self._row) - 1)))

    @property
    def hopeless(self) -> bool:
        """Whether so many losses alike followed each other that the rest would be lost too."""
        return len(self._row) >= MAX_ALIKE_COUNT and len(set(self._row)) > 1

    def _pause(self, seconds: float) -> float:
        wait = min(seconds, MAX_PAUSE_SECONDS)
        self._until = max(self._until, monotonic() + wait)
        return wait
