"""Let readers of a sandbox work together and writers alone, in the order in which their places were reserved.

A place counts from the moment it is reserved, entered or not: who comes later and would be in its way waits behind it.
So nobody starves, and a call that still waits for approval keeps its place. A call inside a call passes the place of
the call around it and takes one in the lane's inner lane, where those inside are kept apart from each other.
Sessions on several event loops may share a lane.
"""

import threading
from collections.abc import Sequence
from typing import Any

import anyio

from handrail.contract.errors import Unavailable
from handrail.sandbox.background import call_in, running_loop

_changing = threading.RLock()
"""Held while anybody looks at a lane or changes it; for all lanes, because who waits for whom leads through several."""


class Place:
    """One place in a lane. `leave` gives it back at any time, and may be called twice."""

    __slots__ = ("_loop", "_open", "_work", "around", "entered", "inside", "lane", "stuck", "who", "writes")

    def __init__(self, lane: "Lane", writes: bool, who: str, around: "Sequence[Place]") -> None:
        self.lane = lane
        self._loop: Any = None
        self._open: anyio.Event | None = None
        self._work = 0
        self.writes = writes
        self.who = who
        self.around = around
        """The places, in any lane, of the calls around this one."""
        self.inside: set[Place] = set()
        """Those that wait in any lane, of calls inside this one."""
        self.entered = False
        self.stuck = False

    @property
    def behind(self) -> tuple[str, ...]:
        """Who this place waits for; empty when it can be entered now."""
        return tuple(place.who for place in self.lane.before(self))

    async def enter(self) -> None:
        """Wait until everybody before who is in the way has left. A cancelled wait gives the place back.

        Raises Unavailable, and gives the place back, when one of them is stuck, or waits for a call around this one.
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
                    for place in self.around:
                        place.inside.discard(self)

    def leave(self) -> None:
        """Give it back. While work that could not be stopped goes on in it, it is stuck instead."""
        with _changing:
            if self._work > 0:
                self.stuck = True
                self.lane.look_again()
            else:
                self.lane.drop(self)

    def hold(self) -> None:
        """The work of this call cannot be stopped: its place, and those around it in this lane, are kept for it."""
        with _changing:
            for place in self._family():
                place._work += 1

    def let_go(self) -> None:
        """That work has ended after all."""
        with _changing:
            for place in self._family():
                place._work -= 1
                if place.stuck and place._work == 0:
                    place.leave()

    def wake(self) -> None:
        """Look again."""
        if self._open is not None:
            call_in(self._loop, self._open.set)

    def _closed(self) -> anyio.Event | None:
        """None when it was entered, else what will be set when it is worth another look."""
        with _changing:
            if self._may_enter():
                self.entered = True
                return None
            self._loop, self._open = running_loop(), anyio.Event()
            for place in self.around:
                place.inside.add(self)
            return self._open

    def _family(self) -> "list[Place]":
        return [self, *(place for place in self.around if place.lane.root is self.lane.root)]

    def _may_enter(self) -> bool:
        if self not in self.lane:
            raise RuntimeError(f"the place of {self.who or 'this call'} was given back before it was entered")
        in_the_way = self.lane.before(self)
        stuck = next((place for place in in_the_way if place.stuck), None)
        if stuck is not None:
            raise Unavailable(
                f"The sandbox is held by {stuck.who or 'an earlier call'}, whose work could not be stopped. "
                "Try again when it has ended, or go on without this."
            )
        if in_the_way and self.around and self._waits_for_itself():
            raise Unavailable(
                f"This would wait for {in_the_way[0].who or 'an earlier call'}, which waits for the call around this "
                "one. Try again when that has ended, or go on without this."
            )
        return not in_the_way

    def _waits_for_itself(self) -> bool:
        """Whether somebody before us can only leave when we, or a call around us, have."""
        ours, seen, waiting = {self, *self.around}, set[Place](), [self]
        while waiting:
            here = waiting.pop()
            for place in here.lane.before(here):
                if place in ours:
                    return True
                if place not in seen:
                    seen.add(place)
                    waiting += [*place.inside, *([] if place.entered else [place])]
        return False


class Lane:
    """One reader–writer lane, shared by all views of a sandbox."""

    __slots__ = ("_inner", "_places", "root")

    def __init__(self, root: "Lane | None" = None) -> None:
        self._places: dict[Place, None] = {}
        self._inner: Lane | None = None
        self.root: Lane = root or self
        """The lane itself, for the inner lane of a lane."""

    @property
    def inner(self) -> "Lane":
        """The lane of calls inside calls that hold this one."""
        if self._inner is None:
            self._inner = Lane(self.root)
        return self._inner

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    def __len__(self) -> int:
        return len(self._places)

    def reserve(self, writes: bool, who: str = "", around: Sequence[Place] = ()) -> Place:
        """Take the next place, at once. `who` is the id of the call."""
        place = Place(self, writes, who, around)
        with _changing:
            self._places[place] = None
        return place

    def stuck(self, who: str) -> bool:
        """The work of this call cannot be stopped: whom it is in the way of is answered Unavailable until it ends."""
        with _changing:
            found = [place for place in self._places if place.who == who]
            for place in found:
                place.stuck = True
            self.look_again()
        return bool(found)

    def free(self, who: str) -> bool:
        """The work of this call has ended after all: its places are given back."""
        with _changing:
            found = [place for place in self._places if place.who == who]
            for place in found:
                self.drop(place)
        return bool(found)

    def before(self, place: Place) -> list[Place]:
        """The earlier places that are in the way of this one."""
        found = []
        with _changing:
            for other in self._places:
                if other is place:
                    break
                if other.writes or place.writes:
                    found.append(other)
        return found

    def drop(self, place: Place) -> None:
        with _changing:
            if self._places.pop(place, place) is None:
                self.look_again()

    def look_again(self) -> None:
        """Wake whoever can enter now, or has somebody stuck in the way."""
        first, writer, stuck = True, False, False
        for place in self._places:
            if stuck or (first if place.writes else not writer):
                place.wake()
            first, writer, stuck = False, writer or place.writes, stuck or place.stuck
