"""Keep conflicting calls apart: readers run together, a writer runs alone, in the order of the calls.

A call reserves its slot in a lane when it is accepted, before anything runs, and enters it after approval. A slot
counts from the moment it is reserved: a later call that conflicts with it waits behind it, so no call starves. A child
call does not wait for its parent's slot; it takes one in the lane's inner lane, which keeps the children apart from
each other. Sessions on several event loops may share a lane.
"""

import threading
from bisect import bisect_left
from collections.abc import Awaitable, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import anyio

from handrail.aio import call_on, running_loop
from handrail.contract.errors import Unavailable
from handrail.contract.result import Failure, Result
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.views import identity
from handrail.toolkit.gate import Next, Step


async def lane(step: Step, proceed: Next) -> Result:
    """Enter the slot that `admit` reserved."""
    slot = step.slot
    if slot is None:
        return await proceed(step)
    behind = slot.behind
    if behind is None:
        await slot.enter()
    else:
        refused = await _wait(step, slot.enter(), behind)
        if refused is not None:
            return refused
    return await proceed(step)


def admit(step: Step) -> None:
    """Reserve the call's slot in its lane, if it has one; if a parent has a slot in that lane, in its inner lane."""
    own = _lane_of(step)
    if own is None:
        return
    parents = _parents_of(step)
    holding = next((slot.lane for slot in parents if slot.lane.root is own), None)
    reads_only = step.tool.effects == {"reads"}
    step.slot = (holding.inner if holding is not None else own).reserve(not reads_only, step.call.id, parents)


def lane_of_sandbox(sandbox: Sandbox) -> "Lane":
    """The one lane of a sandbox, the same for all its views and sessions."""
    shared = identity(sandbox)
    known = _lanes.get(shared)
    if known is None:
        with _changing:
            known = _lanes.setdefault(shared, Lane())
    return known


def _lane_of(step: Step) -> "Lane | None":
    """The lane that the tool names, or else the sandbox's lane if the tool needs the sandbox."""
    name, sandbox = step.tool.lane, step.shared.sandbox
    if name is None:
        return None if sandbox is None or not step.tool.needs else lane_of_sandbox(sandbox)
    if name == "none":
        return None
    named: dict[str, Lane] = step.shared.kept.setdefault(Lane, {})
    return named.setdefault(name, Lane())


def _parents_of(step: Step) -> "list[Slot]":
    """The slots of the parent calls, nearest first."""
    slots, outer = [], step.parent
    while outer is not None:
        if outer.slot is not None:
            slots.append(outer.slot)
        outer = outer.parent
    return slots


async def _wait(step: Step, entering: Awaitable[None], behind: "Behind") -> Failure | None:
    """Wait for the slot, with an event. The call's clock is paused, the run's is not. A person can end the wait."""
    lane = step.tool.lane or "sandbox"
    step.emit("call_waiting", {"lane": lane, "behind": [behind.first.who], "count": behind.total})
    try:
        with step.clock.pause(run=False), anyio.CancelScope() as scope:
            step.watch(scope)
            await entering
    except Unavailable as error:
        return Failure("unavailable", str(error), retryable=error.retryable)
    finally:
        step.scope = None
    if scope.cancel_called:
        return Failure(
            "cancelled", f"{step.tool.name} was ended by the user before it started.", data={"killed_by": "user"}
        )
    return None


_changing: Final = threading.RLock()
"""Guards every lane. One lock for all, because a chain of waiting calls can pass through several lanes."""

_lanes: "Final[WeakKeyDictionary[object, Lane]]" = WeakKeyDictionary()

_numbers: Final = count(1)
"""Numbers of slots, over all lanes, in the order in which they were reserved."""
_number: Final = attrgetter("number")


class Behind(NamedTuple):
    """The earlier calls that a slot waits for."""

    first: "Slot"
    total: int


class Slot:
    """One slot in a lane. `leave` gives it back at any time, and may be called twice."""

    __slots__ = (
        "_loop", "_open", "_work", "entered", "lane", "number", "parents", "stuck", "waiting_children", "who", "writes",
    )  # fmt: skip

    def __init__(self, lane: "Lane", writes: bool, who: str, parents: "Sequence[Slot]") -> None:
        self.lane = lane
        self.number = 0
        """The place in the order of all slots; set when it is reserved."""
        self._loop: Any = None
        self._open: anyio.Event | None = None
        self._work = 0
        self.writes = writes
        self.who = who
        self.parents = parents
        """The slots of the parent calls, in any lane."""
        self.waiting_children: set[Slot] = set()
        """The slots of child calls that wait, in any lane."""
        self.entered = False
        self.stuck = False

    @property
    def behind(self) -> Behind | None:
        """The calls that this slot waits for; None when it can be entered now."""
        return self.lane.before(self)

    async def enter(self) -> None:
        """Wait until every conflicting earlier call has left. A cancelled wait gives the slot back.

        Raises Unavailable, and gives the slot back, when one of them is stuck or waits for a parent of this call.
        """
        try:
            while (opened := self._closed()) is not None:
                await opened.wait()
        except BaseException:
            self.leave()
            raise
        finally:
            if self._open is not None:
                with _changing:
                    for slot in self.parents:
                        slot.waiting_children.discard(self)
                        if not slot.waiting_children:
                            slot.lane.with_children.discard(slot)

    def leave(self) -> None:
        """Give the slot back. While its work cannot be stopped, mark it stuck instead."""
        with _changing:
            if self._work > 0:
                self.lane.mark_stuck(self)
            else:
                self.lane.drop(self)

    def hold(self) -> None:
        """Keep this slot, and its parents' slots in this lane, because the call's work cannot be stopped."""
        with _changing:
            for slot in self._family():
                slot._work += 1

    def let_go(self) -> None:
        """Release what `hold` kept, because that work has ended."""
        with _changing:
            for slot in self._family():
                slot._work -= 1
                if slot.stuck and slot._work == 0:
                    slot.leave()

    def wake(self) -> None:
        """Check again whether the slot can be entered."""
        if self._open is not None and not self.entered:
            call_on(self._loop, self._open.set)

    def _closed(self) -> anyio.Event | None:
        """None when the slot was entered; otherwise an event that is set when it may have become free."""
        with _changing:
            if self._may_enter():
                self.entered = True
                return None
            self._loop, self._open = running_loop(), anyio.Event()
            for slot in self.parents:
                slot.waiting_children.add(self)
                slot.lane.with_children.add(slot)
            return self._open

    def _family(self) -> "list[Slot]":
        return [self, *(slot for slot in self.parents if slot.lane.root is self.lane.root)]

    def _may_enter(self) -> bool:
        if self not in self.lane:
            raise RuntimeError(f"the slot of {self.who or 'this call'} was given back before it was entered")
        stuck = self.lane.stuck_before(self)
        if stuck is not None:
            raise Unavailable(
                f"The sandbox is still used by {stuck.who or 'an earlier call'}, whose work could not be stopped. "
                "Try again when it has ended, or go on without this."
            )
        behind = self.lane.before(self)
        if behind is not None and self.parents and self._would_deadlock():
            raise Unavailable(
                f"This would wait for {behind.first.who or 'an earlier call'}, which waits for the call that "
                "made this one. Try again when that has ended, or go on without this."
            )
        return behind is None

    def _would_deadlock(self) -> bool:
        """Whether an earlier call can leave only after this one or one of its parents.

        A waiting slot depends on a whole stretch of its lane. Of that stretch only our own slots matter, and those
        with waiting children, which lead to other lanes: so thousands that just wait are never walked.
        """
        ours, reached, waiting = (self, *self.parents), dict[Lane, int](), [self]
        while waiting:
            here = waiting.pop()
            lane, end = here.lane, here.lane.reach(here)
            start = reached.get(lane, 0)
            if end <= start:
                continue
            reached[lane] = end
            if any(slot.lane is lane and slot in lane and slot.number < end for slot in ours):
                return True
            for slot in lane.with_children:
                if start <= slot.number < end and slot in lane:
                    waiting += slot.waiting_children
        return False


class Lane:
    """One reader–writer lane: a sandbox's, or one that tools name.

    What a call costs does not depend on how many wait: the slots are lists in the order of their numbers, in which one
    is found by halving, and only those that a departure frees are woken.
    """

    __slots__ = ("_inner", "_slots", "_stuck", "_writers", "root", "with_children")

    def __init__(self, root: "Lane | None" = None) -> None:
        self._slots: list[Slot] = []
        self._writers: list[Slot] = []
        self._stuck: list[Slot] = []
        self.with_children: set[Slot] = set()
        """The slots whose child calls wait somewhere."""
        self._inner: Lane | None = None
        self.root: Lane = root or self
        """The outermost lane; the lane itself unless it is an inner lane."""

    @property
    def inner(self) -> "Lane":
        """The lane for children of the calls in this one."""
        if self._inner is None:
            self._inner = Lane(self.root)
        return self._inner

    def __contains__(self, slot: Slot) -> bool:
        with _changing:
            at = _place(self._slots, slot)
            return at < len(self._slots) and self._slots[at] is slot

    def __len__(self) -> int:
        return len(self._slots)

    def reserve(self, writes: bool, who: str = "", parents: Sequence[Slot] = ()) -> Slot:
        """Reserve the next slot without waiting. `who` is the id of the call."""
        slot = Slot(self, writes, who, parents)
        with _changing:
            slot.number = next(_numbers)
            self._slots.append(slot)
            if writes:
                self._writers.append(slot)
        return slot

    def stuck(self, who: str) -> bool:
        """Mark a call's slots as stuck: conflicting calls get Unavailable until its work ends."""
        with _changing:
            slots = [slot for slot in self._slots if slot.who == who]
            for slot in slots:
                self.mark_stuck(slot)
        return bool(slots)

    def free(self, who: str) -> bool:
        """Give back the slots of a stuck call, because its work has ended."""
        with _changing:
            slots = [slot for slot in self._slots if slot.who == who]
            for slot in slots:
                self.drop(slot)
        return bool(slots)

    def before(self, slot: Slot) -> Behind | None:
        """The earlier slots that conflict with this one; None if there are none."""
        with _changing:
            others = self._slots if slot.writes else self._writers
            at = _place(others, slot)
            return Behind(others[0], at) if at else None

    def reach(self, slot: Slot) -> int:
        """The number before which this waiting slot depends on every slot, through the writers that it waits for."""
        if slot.writes:
            return slot.number
        at = _place(self._writers, slot)
        return self._writers[at - 1].number + 1 if at else 0

    def stuck_before(self, slot: Slot) -> Slot | None:
        """An earlier slot that conflicts with this one and is stuck."""
        with _changing:
            earlier = (each for each in self._stuck if each.number < slot.number and (each.writes or slot.writes))
            return next(earlier, None)

    def mark_stuck(self, slot: Slot) -> None:
        """The slot stays, and those that wait for it are told."""
        with _changing:
            slot.stuck = True
            if slot not in self:  # it was given back before
                return
            if slot not in self._stuck:
                self._stuck.append(slot)
            for later in self._slots[_place(self._slots, slot) + 1 :]:
                later.wake()

    def drop(self, slot: Slot) -> None:
        """Take the slot out, and wake those that can be entered now. It may be gone already."""
        with _changing:
            slots = self._slots
            at = _place(slots, slot)
            if at == len(slots) or slots[at] is not slot:
                return
            del slots[at]
            self.with_children.discard(slot)
            if slot in self._stuck:
                self._stuck.remove(slot)
            if slot.writes:
                self._drop_writer(slot, at)
            if slots and slots[0].writes:
                slots[0].wake()

    def _drop_writer(self, slot: Slot, at: int) -> None:
        """Wake the readers between the first writer, if this was the first, and the next one."""
        first = _place(self._writers, slot)
        del self._writers[first]
        if first == 0:
            end = _place(self._slots, self._writers[0]) if self._writers else len(self._slots)
            for reader in self._slots[at:end]:
                reader.wake()


def _place(slots: list[Slot], slot: Slot) -> int:
    """The index of the slot in a list in the order of their numbers, or of the first one after it."""
    return bisect_left(slots, slot.number, key=_number)
