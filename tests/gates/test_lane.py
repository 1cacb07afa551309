"""Readers overlap, writers are alone, everybody comes in the order of their slots, and nobody starves."""

from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from handrail.contract.errors import Unavailable
from handrail.drivers.memory import MemoryDriver
from handrail.gates.lane import Lane, Slot, lane_of_sandbox
from handrail.sandbox import Sandbox
from handrail.sandbox.views import bind

pytestmark = pytest.mark.anyio


async def settle() -> None:
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


async def test_readers_overlap_and_a_writer_waits_for_them() -> None:
    lane = Lane()
    one, two, writer = lane.reserve(False, "r1"), lane.reserve(False, "r2"), lane.reserve(True, "w")
    assert (one.behind, two.behind, writer.behind) == (None, None, (one, 2))
    await one.enter()
    await two.enter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.enter)
        await settle()
        assert not writer.entered
        one.leave()
        await settle()
        assert not writer.entered
        assert writer.behind == (two, 1)
        two.leave()
        await settle()
        assert writer.entered
    writer.leave()
    assert len(lane) == 0


async def test_a_reader_behind_a_waiting_writer_waits_so_that_the_writer_does_not_starve() -> None:
    lane = Lane()
    early, writer, late = lane.reserve(False, "r1"), lane.reserve(True, "w"), lane.reserve(False, "r2")
    await early.enter()
    assert late.behind == (writer, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(late.enter)
        await settle()
        assert not late.entered
        writer.leave()
        await settle()
        assert late.entered


async def test_a_place_counts_before_it_is_entered() -> None:
    lane = Lane()
    asked_about, later = lane.reserve(True, "waits for approval"), lane.reserve(True, "later")
    with anyio.move_on_after(0.02) as scope:
        await later.enter()
    assert scope.cancelled_caught
    await asked_about.enter()


async def test_a_cancelled_wait_gives_its_place_back() -> None:
    lane = Lane()
    first, second, third = (lane.reserve(True, name) for name in "abc")
    await first.enter()
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0.02):
            await second.enter()
        tasks.start_soon(third.enter)
        await settle()
        assert third.behind == (first, 1)
        first.leave()
        await settle()
        assert third.entered
    with pytest.raises(RuntimeError, match="given back"):
        await second.enter()


async def test_leaving_twice_is_leaving_once() -> None:
    lane = Lane()
    first, second = lane.reserve(True), lane.reserve(True)
    first.leave()
    first.leave()
    await second.enter()
    assert len(lane) == 1


async def test_behind_a_stuck_call_the_lane_is_unavailable_until_it_is_freed() -> None:
    lane = Lane()
    holder, waiting = lane.reserve(True, "call-3"), lane.reserve(False, "call-4")
    await holder.enter()
    answers: list[str] = []

    async def wait() -> None:
        try:
            await waiting.enter()
        except Unavailable as error:
            answers.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await settle()
        assert answers == []
        assert lane.stuck("call-3")
    assert "call-3" in answers[0]
    with pytest.raises(Unavailable, match="call-3"):
        await lane.reserve(True, "call-5").enter()
    assert len(lane) == 1
    assert lane.free("call-3")
    await lane.reserve(True, "call-6").enter()
    assert not lane.stuck("nobody")
    assert not lane.free("nobody")


async def test_a_stuck_reader_is_in_nobody_elses_way_but_the_writers() -> None:
    lane = Lane()
    await lane.reserve(False, "r1").enter()
    lane.stuck("r1")
    await lane.reserve(False, "r2").enter()
    with pytest.raises(Unavailable, match="r1"):
        await lane.reserve(True, "w").enter()


async def test_all_views_of_a_sandbox_share_its_lane() -> None:
    sandbox = Sandbox(MemoryDriver())
    assert lane_of_sandbox(bind(sandbox.at("src"), call_id="x")) is lane_of_sandbox(sandbox)
    assert lane_of_sandbox(Sandbox(MemoryDriver())) is not lane_of_sandbox(sandbox)


@dataclass
class World:
    """A lane beside everything that must be true of it."""

    lane: Lane
    inside: list[Slot] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    async def visit(self, place: Slot, steps: int, give_up: bool) -> None:
        with anyio.CancelScope() as scope:
            if give_up:
                scope.cancel()
            await place.enter()
            self.inside.append(place)
            self.order.append(place.who)
            assert len(self.inside) == 1 or not any(each.writes for each in self.inside)
            try:
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
            finally:
                self.inside.remove(place)
                place.leave()


Visit = tuple[bool, int, bool, int]
VISITS = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.booleans(), st.integers(0, 3)), max_size=14)
"""Each: writes, how long it stays, whether it gives up, how long after the one before it comes."""


async def story(lane: Lane, visits: list[Visit]) -> None:
    world = World(lane)
    with anyio.fail_after(90):
        async with anyio.create_task_group() as tasks:
            for number, (writes, steps, give_up, before) in enumerate(visits):
                for _ in range(before):
                    await anyio.lowlevel.checkpoint()
                tasks.start_soon(world.visit, world.lane.reserve(writes, str(number)), steps, give_up)
    assert len(world.lane) == 0
    assert {str(n) for n, visit in enumerate(visits) if not visit[2]} <= set(world.order)
    for at, who in enumerate(world.order):
        overtaken = [late for late in world.order[at + 1 :] if int(late) < int(who)]
        assert not any(visits[int(who)][0] or visits[int(late)][0] for late in overtaken)


@given(VISITS)
@settings(max_examples=200, deadline=None)
def test_whatever_comes_the_laws_of_the_lane_hold(visits: list[Visit]) -> None:
    anyio.run(story, Lane(), visits)


class Crowded(Lane):
    """Lets a writer in beside readers."""

    def before(self, place: Slot) -> list[Slot]:
        return [other for other in super().before(place) if other.writes]


class Unfair(Lane):
    """Looks only at who is inside, so that the late overtake those who wait."""

    def before(self, place: Slot) -> list[Slot]:
        return [other for other in super().before(place) if other.entered]


@pytest.mark.parametrize("broken", [Crowded, Unfair])
def test_the_laws_catch_a_lane_that_breaks_them(broken: type[Lane]) -> None:
    @given(VISITS)
    @settings(max_examples=500, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    def laws(visits: list[Visit]) -> None:
        anyio.run(story, broken(), visits)

    with pytest.raises((AssertionError, ExceptionGroup)):
        laws()
