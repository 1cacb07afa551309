"""Run the calls of one answer together: all of them start soon, and the event loop stays free for others."""

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint

from handrail.contract.call import Call
from handrail.contract.result import Failure, Result
from handrail.gates.budget import spent
from handrail.session.pending import never_ran
from handrail.store.ends import never_began, never_started
from handrail.toolkit.gate import Step

if TYPE_CHECKING:
    from handrail.session.core import SessionCore

MAX_STARTED_COUNT: Final = 16
"""Calls that are started, or refused, before others on the event loop get their turn."""
MIN_STARTED_COUNT: Final = 4
"""The same where they are slow, or others are."""
TURN_SECONDS: Final = 0.004
"""Seconds for which the beginnings of calls may keep the event loop; those of a stored session are slow."""


class CallsTogether:
    """The calls of one answer. Each gets its two events and its result, whatever happens to the others."""

    def __init__(self, core: "SessionCore", calls: Sequence[Call], results: dict[int, Result]) -> None:
        self._core, self._results = core, results
        self._calls = [core.ids.take(call) for call in calls]  # all at once: others may soon want the same ids
        self._next = 0
        """The number of the first call that was neither started nor refused."""
        self._size = MAX_STARTED_COUNT
        """How many are started at once."""
        self._waiting: dict[int, Step] = {}
        """Accepted calls whose task has not begun."""

    async def run(self) -> None:
        """Run them where their lanes allow; what is over the run's budget is refused without passing the gates."""
        try:
            async with anyio.create_task_group() as group:
                while piece := self._piece():
                    why = spent(self._core.shared) if piece.start and self._core.is_budgeted else None
                    if why is not None or not self._core.is_open:
                        self._refuse(piece, Failure("budget_exhausted", why) if why is not None else None)
                    else:
                        self._accept(piece)
                        for number in piece:
                            group.start_soon(self._fill, number)
                    if self._next < len(self._calls):
                        await self._give_turn()
        except anyio.get_cancelled_exc_class():
            while piece := self._piece():
                self._refuse(piece)
                await cancel_shielded_checkpoint()
            raise
        finally:
            for step in self._waiting.values():  # cancelled before their tasks began
                never_ran(step)
            self._refuse(range(self._next, len(self._calls)))  # the event loop ends, and nobody can wait

    def _piece(self) -> range:
        """The numbers of the next calls to start or to refuse."""
        return range(self._next, min(self._next + self._size, len(self._calls)))

    async def _give_turn(self) -> None:
        """Let the calls that were started begin, and others on the event loop run: fewer at once if that takes long."""
        began = monotonic()
        await checkpoint()
        took = monotonic() - began
        self._size = (
            max(MIN_STARTED_COUNT, self._size // 2) if took > TURN_SECONDS else min(self._size * 2, MAX_STARTED_COUNT)
        )

    def _accept(self, piece: range) -> None:
        """Accept calls, which reserves their slots in the order of the answer."""
        for number in piece:
            self._waiting[number] = self._core.accept(self._calls[number])
            self._next = number + 1

    async def _fill(self, number: int) -> None:
        self._results[number] = await self._core.run_step(self._waiting.pop(number))

    def _refuse(self, piece: range, failure: Failure | None = None) -> None:
        """Write the start and the end of calls that do not begin; without a failure, because they were cancelled."""
        core = self._core
        for number in piece:
            call = self._calls[number]
            self._results[number] = result = never_began(call.name) if failure is None else failure
            for type, data in never_started(call, result):
                core.emit(type, call.id, call.parent, data)
            core.call_count += 1
            self._next = number + 1
        core.flush()
