"""Calls that touch the same thing are kept apart, in the order asked, whatever they call inside and how they end."""

from time import process_time
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Budget, Call, Decision, Policy, Sandbox, Session, Tool, tool
from handrail.gates.lane import lane_of_sandbox
from handrail.testing import HeldApprovals, MemoryDriver
from tests.gates.lanes import World, doing
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio
LOOSE = Budget(calls=None, refusals=None)

names = st.sampled_from(["look", "look", "change", "free"])
leaves = st.tuples(names, st.builds(doing, st.integers(0, 3)))
trees = st.recursive(
    leaves,
    lambda below: st.tuples(
        names, st.fixed_dictionaries({"naps": st.integers(0, 3), "inner": st.lists(below, max_size=3)})
    ),
    max_leaves=5,
)
fates = st.sampled_from(["lives", "lives", "lives", "cancelled", "terminated"])


async def story(batch: list[Any], pauses: list[int]) -> None:
    """Ask for everything at once; end some of it after a while, from outside or as a person does."""
    world, sandbox = World(), Sandbox(MemoryDriver())
    calls = [Call(f"c{at}", name, arguments) for at, ((name, arguments), _) in enumerate(batch)]
    fate = {call.id: fate for call, (_, fate) in zip(calls, batch, strict=True)}
    scopes = {call.id: anyio.CancelScope() for call in calls}
    kept = [call for call in calls if fate[call.id] != "cancelled"]

    async def alone(session: Session, call: Call) -> None:
        with scopes[call.id]:
            await session.call_all([call])

    async with world.session(sandbox=sandbox, budget=LOOSE) as session:
        with anyio.fail_after(90):
            async with anyio.create_task_group() as group:
                group.start_soon(session.call_all, kept)
                for call in calls:
                    if fate[call.id] == "cancelled":
                        group.start_soon(alone, session, call)
                for at, call in enumerate(calls):
                    for _ in range(pauses[at % len(pauses)] if pauses else 0):
                        await anyio.sleep(0)  # noqa: ASYNC115
                    if fate[call.id] == "cancelled":
                        scopes[call.id].cancel()
                    if fate[call.id] == "terminated":
                        await session.terminate(call.id)
    check(world, sandbox, session, kept)


def check(world: World, sandbox: Sandbox, session: Session, kept: list[Call]) -> None:
    assert world.inside == []
    lane = lane_of_sandbox(sandbox)
    assert len(lane) == len(lane.inner) == len(lane.inner.inner) == 0
    assert len(endings(session)) == session.call_count
    assert {event.data["kind"] for event in events_of(session, "call_ended")} <= {None, "cancelled"}
    asked = {call.id: (at, call.name == "change") for at, call in enumerate(kept)}
    entered = [asked[id] for id in world.order if id in asked]
    for at, (place, writes) in enumerate(entered):
        assert not any(place > later and (writes or also) for later, also in entered[at + 1 :]), (
            "somebody was overtaken"
        )


@given(st.lists(st.tuples(trees, fates), min_size=1, max_size=8), st.lists(st.integers(0, 5), max_size=8))
@settings(max_examples=150, deadline=None)
def test_whatever_is_asked_at_once_the_laws_of_the_lane_hold(batch: list[Any], pauses: list[int]) -> None:
    anyio.run(story, batch, pauses)


def test_the_laws_are_broken_where_there_is_no_lane() -> None:
    """The control: the same batch with the gate taken out."""
    world = World()

    async def without() -> None:
        change = world.tools()[1].function
        assert change is not None
        tools = [tool(name=name, effects=["writes"], lane="none")(change) for name in ("a", "b")]
        async with Session(tools, sandbox=Sandbox(MemoryDriver()), policy=Policy(mode="open"), state={}) as session:
            results = await session.call_all([Call("1", "a", doing(3)), Call("2", "b", doing(3))])
            assert "two writers" in getattr(results[1], "message", "")

    anyio.run(without)


async def batch(*names: str, naps: int = 3) -> World:
    world = World()
    async with world.session() as session:
        results = await session.call_all([Call(f"{at}-{name}", name, doing(naps)) for at, name in enumerate(names)])
    assert all(result.ok for result in results)
    return world


async def test_readers_overlap_writers_do_not_and_nobody_is_overtaken() -> None:
    assert (await batch("look", "look", "look", "look")).together == 4
    assert (await batch("change", "change", "change")).together == 1
    order = ["change", "look", "look", "change", "look", "change"]
    world = await batch(*order)
    assert world.together == 2
    assert world.order == [f"{at}-{name}" for at, name in enumerate(order)]


async def test_waiting_is_told_with_whom_it_waits_for() -> None:
    async with World().session() as session:
        await session.call_all([Call("a", "look", doing(2)), Call("b", "look", doing(2)), Call("w", "change", doing())])
    (waiting,) = events_of(session, "call_waiting")
    assert (waiting.call_id, dict(waiting.data)) == ("w", {"lane": "sandbox", "behind": ["a"], "count": 2})


async def test_however_many_wait_each_event_names_one_and_counts_the_rest() -> None:
    async with World().session() as session:
        first = Call("w0", "change", doing(2_000))  # it lasts until all of them wait
        await session.call_all([first, *(Call(f"w{n}", "change", doing(n % 2)) for n in range(1, 300))])
    told = [dict(event.data) for event in events_of(session, "call_waiting")]
    assert told == [{"lane": "sandbox", "behind": ["w0"], "count": n} for n in range(1, 300)]


async def test_a_call_among_many_that_wait_inside_a_call_costs_what_one_among_few_does() -> None:
    costs = []
    for count in (25, 25, 400):  # the first warms up
        async with World().session(budget=Budget(calls=None)) as session:
            began = process_time()
            inner = doing(0, *[("change", doing(1))] * count)
            assert (await session.call("change", inner)).ok
            costs.append((process_time() - began) / count)
    assert len(events_of(session, "call_waiting")) == 399, "the control: they waited"
    assert costs[2] < 5 * costs[1]  # it was 15 times as much, because each walked all the others, for each of them


async def test_a_call_that_waits_for_approval_keeps_its_place() -> None:
    held, world = HeldApprovals(), World()
    session = world.session(policy=Policy(mode="open", ask=["change(naps=7)"]), approver=held)
    async with session, anyio.create_task_group() as group:
        group.start_soon(session.call_all, [Call("asked", "change", doing(7)), Call("later", "look", doing())])
        request = await held.next()
        await anyio.sleep(0.02)
        assert world.order == []
        held.answer(request.id, Decision.approve())
    assert world.order == ["asked", "later"]


async def test_a_refused_call_gives_its_place_back() -> None:
    async with World().session(policy=Policy(mode="open", deny=["change(naps=7)"])) as session:
        calls = [Call("no", "change", doing(7)), Call("bad", "change", "{}"), Call("yes", "look", doing())]
        results = await session.call_all(calls)
    assert [result.ok for result in results] == [False, False, True]


async def test_tools_that_name_a_lane_are_kept_apart_and_others_are_not() -> None:
    inside = most = 0

    def busy(name: str, lane: str) -> Tool:
        async def body() -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await anyio.sleep(0.05)
            inside -= 1

        return tool(name=name, lane=lane)(body)

    for lanes, wanted in ((("x", "x"), 1), (("x", "y"), 2), (("none", "none"), 2)):
        inside = most = 0
        async with Session([busy("a", lanes[0]), busy("b", lanes[1])]) as session:
            await session.call_all([Call("1", "a", "{}"), Call("2", "b", "{}")])
        assert most == wanted, lanes


async def test_a_call_inside_a_writer_passes_and_two_inside_it_are_kept_apart() -> None:
    world = World()
    async with world.session() as session:
        with anyio.fail_after(90):
            inner = [("change", doing(2)), ("look", doing(2)), ("change", doing(2))]
            assert (await session.call("change", doing(1, *inner))).ok
    assert world.together == 2  # the outer one, and one inside it at a time


async def test_writers_inside_two_readers_are_kept_apart() -> None:
    world = World()
    async with world.session() as session:
        with anyio.fail_after(90):
            await session.call_all([Call(id, "look", doing(1, ("change", doing(3)))) for id in ("a", "b")])
    assert {event.data["kind"] for event in events_of(session, "call_ended")} == {None}
    assert world.together == 3


async def test_five_hundred_writers_at_once_are_soon_done() -> None:
    world = World()
    async with world.session() as session:
        with anyio.fail_after(60):
            await session.call_all([Call(f"{n}", "change", doing(n % 2)) for n in range(500)])
    assert world.order == [f"{n}" for n in range(500)]
