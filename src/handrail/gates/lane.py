"""Keep conflicting calls apart: readers run together, a writer runs alone, in the order of the calls.

A call reserves its slot in a lane when it is accepted, before anything runs, and enters it after approval. A slot
counts from the moment it is reserved: a later call that conflicts with it waits behind it, so no call starves. A child
call does not wait for its parent's slot; it takes one in the lane's inner lane, which keeps the children apart from
each other. Sessions on several event loops may share a lane.
"""

import threading
from collections.abc import Awaitable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio

from handrail.aio import call_on, running_loop
from handrail.contract.errors import Unavailable
from handrail.contract.result import Failure, Result
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.gate import Next, Step


async def lane(step: Step, proceed: Next) -> Result:
    """Enter the slot that `admit` reserved."""
    slot = step.slot
    if slot is None:
        return await proceed(step)
    if slot.behind:
        refused = await _wait(step, slot.enter(), slot.behind)
        if refused is not None:
            return refused
    else:
        await slot.enter()
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
    known = _lanes.get(sandbox.identity)
    if known is None:
        with _changing:
            known = _lanes.setdefault(sandbox.identity, Lane())
    return known


def _lane_of(step: Step) -> "Lane | None":
    """The lane that the tool names, or else the sandbox's lane if the tool needs the sandbox."""
    name, sandbox = step.tool.lane, step.shared.sandbox
    if name is None:
        return None if sandbox is None or not step.tool.needs else lane_of_sandbox(sandbox)
    named: Lane | None = None if name == "none" else step.shared.lanes.setdefault(name, Lane())
    return named


def _parents_of(step: Step) -> "list[Slot]":
    """The slots of the parent calls, nearest first."""
    slots, outer = [], step.parent
    while outer is not None:
        if outer.slot is not None:
            slots.append(outer.slot)
        outer = outer.parent
    return slots


async def _wait(step: Step, entering: Awaitable[None], behind: tuple[str, ...]) -> Failure | None:
    """Wait for the slot, with an event. The call's clock is paused, the run's is not. A person can end the wait."""
    step.emit("call_waiting", {"lane": step.tool.lane or "sandbox", "behind": list(behind)})
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


class Slot:
    """One slot in a lane. `leave` gives it back at any time, and may be called twice."""

    __slots__ = ("_loop", "_open", "_work", "entered", "lane", "parents", "stuck", "waiting_children", "who", "writes")

    def __init__(self, lane: "Lane", writes: bool, who: str, parents: "Sequence[Slot]") -> None:
        self.lane = lane
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
    def behind(self) -> tuple[str, ...]:
        """The ids of the calls that this slot waits for; empty when it can be entered now."""
        return tuple(slot.who for slot in self.lane.before(self))

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

    def leave(self) -> None:
        """Give the slot back. While its work cannot be stopped, mark it stuck instead."""
        with _changing:
            if self._work > 0:
                self.stuck = True
                self.lane.wake_waiting()
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
        if self._open is not None:
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
            return self._open

    def _family(self) -> "list[Slot]":
        return [self, *(slot for slot in self.parents if slot.lane.root is self.lane.root)]

    def _may_enter(self) -> bool:
        if self not in self.lane:
            raise RuntimeError(f"the slot of {self.who or 'this call'} was given back before it was entered")
        conflicts = self.lane.before(self)
        stuck = next((slot for slot in conflicts if slot.stuck), None)
        if stuck is not None:
            raise Unavailable(
                f"The sandbox is still used by {stuck.who or 'an earlier call'}, whose work could not be stopped. "
                "Try again when it has ended, or go on without this."
            )
        if conflicts and self.parents and self._would_deadlock():
            raise Unavailable(
                f"This would wait for {conflicts[0].who or 'an earlier call'}, which waits for the call that "
                "made this one. Try again when that has ended, or go on without this."
            )
        return not conflicts

    def _would_deadlock(self) -> bool:
        """Whether an earlier call can leave only after this one or one of its parents."""
        ours, seen, waiting = {self, *self.parents}, set[Slot](), [self]
        while waiting:
            here = waiting.pop()
            for slot in here.lane.before(here):
                if slot in ours:
                    return True
                if slot not in seen:
                    seen.add(slot)
                    waiting += [*slot.waiting_children, *([] if slot.entered else [slot])]
        return False


class Lane:
    """One reader–writer lane: a sandbox's, or one that tools name."""

    __slots__ = ("_inner", "_slots", "root")

    def __init__(self, root: "Lane | None" = None) -> None:
        self._slots: dict[Slot, None] = {}
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
        return slot in self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def reserve(self, writes: bool, who: str = "", parents: Sequence[Slot] = ()) -> Slot:
        """Reserve the next slot without waiting. `who` is the id of the call."""
        slot = Slot(self, writes, who, parents)
        with _changing:
            self._slots[slot] = None
        return slot

    def stuck(self, who: str) -> bool:
        """Mark a call's slots as stuck: conflicting calls get Unavailable until its work ends."""
        with _changing:
            slots = [slot for slot in self._slots if slot.who == who]
            for slot in slots:
                slot.stuck = True
            self.wake_waiting()
        return bool(slots)

    def free(self, who: str) -> bool:
        """Give back the slots of a stuck call, because its work has ended."""
        with _changing:
            slots = [slot for slot in self._slots if slot.who == who]
            for slot in slots:
                self.drop(slot)
        return bool(slots)

    def before(self, slot: Slot) -> list[Slot]:
        """The earlier slots that conflict with this one."""
        earlier = []
        with _changing:
            for other in self._slots:
                if other is slot:
                    break
                if other.writes or slot.writes:
                    earlier.append(other)
        return earlier

    def drop(self, slot: Slot) -> None:
        with _changing:
            if self._slots.pop(slot, slot) is None:
                self.wake_waiting()

    def wake_waiting(self) -> None:
        """Wake every slot that can be entered now, or that waits for a stuck one."""
        first, writer, stuck = True, False, False
        for slot in self._slots:
            if stuck or (first if slot.writes else not writer):
                slot.wake()
            first, writer, stuck = False, writer or slot.writes, stuck or slot.stuck
