"""Keep calls that touch the same thing apart: readers together, a writer alone, in the order asked.

A call reserves its slot in a lane when it is accepted, before anything runs, and enters it after approval. A slot
counts from the moment it is reserved: a later call that conflicts with it waits behind it, so nobody starves. A call
inside a call passes the slot of the call around it and takes one in the lane's inner lane, where those inside are kept
apart from each other. Sessions on several event loops may share a lane.
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
    """The slot was reserved by `admit`; it is entered now."""
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
    """Reserve the call's slot in its lane, if it has one; inside a call that holds that lane, in its inner lane."""
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
    """The lane that the tool names, else the sandbox's where it needs one."""
    name, shared = step.tool.lane, step.shared
    if name == "none":
        return None
    if name is not None:
        named: Lane = shared.lanes.setdefault(name, Lane())
        return named
    return lane_of_sandbox(shared.sandbox) if shared.sandbox is not None and step.tool.needs else None


def _parents_of(step: Step) -> "list[Slot]":
    """The slots of the calls around this one, the nearest first."""
    slots, outer = [], step.parent
    while outer is not None:
        if outer.slot is not None:
            slots.append(outer.slot)
        outer = outer.parent
    return slots


async def _wait(step: Step, entering: Awaitable[None], behind: tuple[str, ...]) -> Failure | None:
    """Waiting is an event, can be ended, and uses up no deadline; the seconds of the run go on, because others work."""
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
            "cancelled", f"{step.tool.name} was ended by the user before it began.", data={"killed_by": "user"}
        )
    return None


_changing: Final = threading.RLock()
"""Held while anybody looks at a lane or changes it; for all lanes, because who waits for whom leads through several."""

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
        """The slots, in any lane, of the calls around this one."""
        self.waiting_children: set[Slot] = set()
        """Those that wait in any lane, of calls inside this one."""
        self.entered = False
        self.stuck = False

    @property
    def behind(self) -> tuple[str, ...]:
        """Who this slot waits for; empty when it can be entered now."""
        return tuple(slot.who for slot in self.lane.before(self))

    async def enter(self) -> None:
        """Wait until everybody before who is in the way has left. A cancelled wait gives the slot back.

        Raises Unavailable, and gives the slot back, when one of them is stuck, or waits for a call around this one.
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
        """Give it back. While work that could not be stopped goes on in it, it is stuck instead."""
        with _changing:
            if self._work > 0:
                self.stuck = True
                self.lane.look_again()
            else:
                self.lane.drop(self)

    def hold(self) -> None:
        """The work of this call cannot be stopped: its slot, and those around it in this lane, are kept for it."""
        with _changing:
            for slot in self._family():
                slot._work += 1

    def let_go(self) -> None:
        """That work has ended after all."""
        with _changing:
            for slot in self._family():
                slot._work -= 1
                if slot.stuck and slot._work == 0:
                    slot.leave()

    def wake(self) -> None:
        """Look again."""
        if self._open is not None:
            call_on(self._loop, self._open.set)

    def _closed(self) -> anyio.Event | None:
        """None when it was entered, else what will be set when it is worth another look."""
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
        in_the_way = self.lane.before(self)
        stuck = next((slot for slot in in_the_way if slot.stuck), None)
        if stuck is not None:
            raise Unavailable(
                f"The sandbox is held by {stuck.who or 'an earlier call'}, whose work could not be stopped. "
                "Try again when it has ended, or go on without this."
            )
        if in_the_way and self.parents and self._would_deadlock():
            raise Unavailable(
                f"This would wait for {in_the_way[0].who or 'an earlier call'}, which waits for the call around this "
                "one. Try again when that has ended, or go on without this."
            )
        return not in_the_way

    def _would_deadlock(self) -> bool:
        """Whether somebody before us can only leave when we, or a call around us, have."""
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
    """One reader–writer lane, of a sandbox, or one that tools name."""

    __slots__ = ("_inner", "_slots", "root")

    def __init__(self, root: "Lane | None" = None) -> None:
        self._slots: dict[Slot, None] = {}
        self._inner: Lane | None = None
        self.root: Lane = root or self
        """The lane itself, for the inner lane of a lane."""

    @property
    def inner(self) -> "Lane":
        """The lane of calls inside calls that hold this one."""
        if self._inner is None:
            self._inner = Lane(self.root)
        return self._inner

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def reserve(self, writes: bool, who: str = "", parents: Sequence[Slot] = ()) -> Slot:
        """Take the next slot, at once. `who` is the id of the call."""
        slot = Slot(self, writes, who, parents)
        with _changing:
            self._slots[slot] = None
        return slot

    def stuck(self, who: str) -> bool:
        """The work of this call cannot be stopped: whom it is in the way of is answered Unavailable until it ends."""
        with _changing:
            slots = [slot for slot in self._slots if slot.who == who]
            for slot in slots:
                slot.stuck = True
            self.look_again()
        return bool(slots)

    def free(self, who: str) -> bool:
        """The work of this call has ended after all: its slots are given back."""
        with _changing:
            slots = [slot for slot in self._slots if slot.who == who]
            for slot in slots:
                self.drop(slot)
        return bool(slots)

    def before(self, slot: Slot) -> list[Slot]:
        """The earlier slots that are in the way of this one."""
        found = []
        with _changing:
            for other in self._slots:
                if other is slot:
                    break
                if other.writes or slot.writes:
                    found.append(other)
        return found

    def drop(self, slot: Slot) -> None:
        with _changing:
            if self._slots.pop(slot, slot) is None:
                self.look_again()

    def look_again(self) -> None:
        """Wake whoever can enter now, or has somebody stuck in the way."""
        first, writer, stuck = True, False, False
        for slot in self._slots:
            if stuck or (first if slot.writes else not writer):
                slot.wake()
            first, writer, stuck = False, writer or slot.writes, stuck or slot.stuck
