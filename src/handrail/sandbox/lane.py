"""Let readers of a sandbox work together and writers alone, in the order in which their places were reserved.

A place counts from the moment it is reserved, entered or not: who comes later and would be in its way waits behind it.
So nobody starves, and a call that still waits for approval keeps its place.
"""

import anyio

from handrail.contract.errors import Unavailable


class Place:
    """One place in a lane. `leave` gives it back at any time, and may be called twice."""

    __slots__ = ("_open", "entered", "lane", "stuck", "who", "writes")

    def __init__(self, lane: "Lane", writes: bool, who: str) -> None:
        self.lane = lane
        self._open: anyio.Event | None = None
        self.writes = writes
        self.who = who
        self.entered = False
        self.stuck = False

    @property
    def behind(self) -> tuple[str, ...]:
        """Who this place waits for; empty when it can be entered now."""
        return tuple(place.who for place in self.lane.before(self))

    async def enter(self) -> None:
        """Wait until everybody before who is in the way has left. A cancelled wait gives the place back.

        Raises Unavailable, and gives the place back, when one of them is stuck.
        """
        try:
            while not self._may_enter():
                self._open = anyio.Event()
                await self._open.wait()
        except BaseException:
            self.leave()
            raise
        self.entered = True

    def leave(self) -> None:
        self.lane.drop(self)

    def wake(self) -> None:
        """Look again."""
        if self._open is not None:
            self._open.set()

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
        return not in_the_way


class Lane:
    """One reader–writer lane, shared by all views of a sandbox."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[Place, None] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._places

    def __len__(self) -> int:
        return len(self._places)

    def reserve(self, writes: bool, who: str = "") -> Place:
        """Take the next place, at once. `who` is the id of the call."""
        place = Place(self, writes, who)
        self._places[place] = None
        return place

    def stuck(self, who: str) -> bool:
        """The work of this call cannot be stopped: whom it is in the way of is answered Unavailable until it ends."""
        found = [place for place in self._places if place.who == who]
        for place in found:
            place.stuck = True
        self._look_again()
        return bool(found)

    def free(self, who: str) -> bool:
        """The work of this call has ended after all: its places are given back."""
        found = [place for place in self._places if place.who == who]
        for place in found:
            self.drop(place)
        return bool(found)

    def before(self, place: Place) -> list[Place]:
        """The earlier places that are in the way of this one."""
        found = []
        for other in self._places:
            if other is place:
                break
            if other.writes or place.writes:
                found.append(other)
        return found

    def drop(self, place: Place) -> None:
        if self._places.pop(place, place) is None:
            self._look_again()

    def _look_again(self) -> None:
        for place in self._places:
            place.wake()
