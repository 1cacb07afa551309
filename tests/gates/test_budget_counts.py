"""Places are reserved before anything is waited for and given back for refusals, however calls come and end."""

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Budget, Call, Decision, Failure, Policy, Session, ToolFailed, tool
from handrail.contract.result import FAILURE_KINDS, REFUSALS
from handrail.session.session import core_of
from handrail.testing import HeldApprovals
from tests.gates.asked import until
from tests.journeys.evidence import endings

pytestmark = pytest.mark.anyio
ran: list[str] = []


@tool
async def acts(how: str, naps: int = 0) -> str:
    """Be what it is told to be: `ok`, or a kind of failure."""
    ran.append(how)
    for _ in range(naps):
        await anyio.sleep(0)  # noqa: ASYNC115
    if how == "ok":
        return "ok"
    raise ToolFailed(Failure(how, "as told"))  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.sampled_from(["ok", *sorted(FAILURE_KINDS)]), st.integers(0, 3)), max_size=25),
    st.integers(0, 12),
    st.integers(0, 8),
)
@settings(max_examples=80, deadline=None)
def test_calls_together_never_spend_more_than_there_is(asked: list[tuple[str, int]], calls: int, refusals: int) -> None:
    async def story() -> None:
        ran.clear()
        async with Session([acts], budget=Budget(calls=calls, refusals=refusals)) as session:
            batch = [Call(f"{n}", "acts", {"how": how, "naps": naps}) for n, (how, naps) in enumerate(asked)]
            results = await session.call_all(batch)
            counts = core_of(session).shared.counts
        exhausted = [r for r in results if not r.ok and r.kind == "budget_exhausted" and "as told" not in r.message]
        broken = [r for r in results if not r.ok and "was not run again" in r.message]
        refused = [r for r in results if not r.ok and r.kind in REFUSALS]
        assert counts.calls == len(results) - len(exhausted) - len(refused)
        assert counts.refusals == len(refused)
        assert counts.calls <= calls
        assert len(ran) == len(results) - len(exhausted) - len(broken)
        if len(asked) <= min(calls, refusals):
            assert exhausted == []

    anyio.run(story)


async def test_a_place_is_taken_before_anything_is_waited_for() -> None:
    inside: list[int] = []
    go = anyio.Event()

    async def waits(n: int) -> int:
        inside.append(n)
        await go.wait()
        return n

    async with Session([waits], budget=Budget(calls=3)) as session, anyio.create_task_group() as group:
        results: dict[int, Any] = {}

        async def batch() -> None:
            await session.call_all([Call(f"{n}", "waits", {"n": n}) for n in range(5)], into=results)

        group.start_soon(batch)
        await until(lambda: len(results) == 2 and len(inside) == 3)
        assert [results[n].kind for n in (3, 4)] == ["budget_exhausted"] * 2
        go.set()
    assert sorted(inside) == [0, 1, 2]


async def test_a_place_held_by_a_call_that_waits_for_a_person_comes_back_when_they_say_no() -> None:
    held = HeldApprovals()

    @tool(effects=["writes"])
    async def save(n: int) -> int:
        return n

    budget = Budget(calls=1)
    async with Session([save], policy=Policy(mode="ask"), approver=held, budget=budget) as session:
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "save", {"n": 1})
            request = await held.next()
            full = await session.call("save", {"n": 2})
            assert not full.ok
            assert full.kind == "budget_exhausted"
            held.answer(request.id, Decision.deny())
        counts = core_of(session).shared.counts
        assert (counts.calls, counts.refusals) == (0, 1)
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "save", {"n": 3})
            held.answer((await held.next()).id, Decision.approve())
        assert (counts.calls, counts.refusals) == (1, 1)
    assert [event.data["kind"] for event in endings(session).values()] == ["budget_exhausted", "user_denied", None]


async def test_what_was_cancelled_or_ended_stays_spent() -> None:
    async def naps() -> None:
        scope.cancel()
        await anyio.sleep(30)

    async with Session([naps], budget=Budget(calls=2)) as session:
        with anyio.CancelScope() as scope:
            await session.call("naps")
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "naps")
            await until(lambda: [event.type for event in session.trace].count("call_running") == 2)
            await session.terminate(str(session.trace[-1].call_id))
        assert core_of(session).shared.counts.calls == 2
        last = await session.call("naps")
        assert not last.ok
        assert last.kind == "budget_exhausted"


async def test_the_501st_call_and_the_51st_refusal_are_answered_by_default() -> None:
    async def add(n: int) -> int:
        return n

    async with Session([add]) as session:
        results = [await session.call("add", {"n": n}) for n in range(501)]
        assert all(result.ok for result in results[:500])
        assert results[500].kind == "budget_exhausted"  # type: ignore[union-attr]
        session.begin_run()
        refused = [await session.call("add", {"m": n}) for n in range(51)]
        assert {result.kind for result in refused[:50]} == {"invalid_args"}  # type: ignore[union-attr]
        assert refused[50].kind == "budget_exhausted"  # type: ignore[union-attr]
        assert not (await session.call("add", {"n": 1})).ok


async def test_a_call_of_the_old_run_spends_and_refunds_there() -> None:
    go = anyio.Event()

    async def waits() -> None:
        await go.wait()
        raise ToolFailed(Failure("rejected", "no"))

    async with Session([waits]) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "waits")
        await until(lambda: bool(session.trace) and session.trace[-1].type == "call_running")
        old = core_of(session).shared.counts
        session.begin_run()
        go.set()
        await until(lambda: session.trace[-1].type == "call_ended")
        assert (old.calls, old.refusals) == (0, 1)
        assert (core_of(session).shared.counts.calls, core_of(session).shared.counts.refusals) == (0, 0)


async def test_the_seconds_of_a_run_stand_still_while_a_person_is_asked_and_only_then() -> None:
    held = HeldApprovals()

    @tool(effects=["writes"])
    async def save(n: int) -> int:
        return n

    budget = Budget(seconds=0.5)
    async with Session([save, acts], policy=Policy(mode="ask"), approver=held, budget=budget) as session:
        async with anyio.create_task_group() as group:
            for n in range(3):
                group.start_soon(session.call, "save", {"n": n})
            await until(lambda: len(held.pending) == 3)
            for request in list(held.pending.values()):
                await anyio.sleep(0.25)
                held.answer(request.id, Decision.approve())
        assert (await session.call("acts", {"how": "ok"})).ok
        await anyio.sleep(0.6)
        late = await session.call("acts", {"how": "ok"})
        assert not late.ok
        assert late.kind == "budget_exhausted"
        assert "0.5 s" in late.message


async def test_two_scripts_have_a_budget_each() -> None:
    async with Session([acts], budget=Budget(script_calls=2)) as session:

        async def called(script: str, how: str = "ok") -> str | None:
            result = await session.call("acts", {"how": how}, origin="script", parent=script)
            return None if result.ok else result.kind

        assert [await called("a") for _ in range(3)] == [None, None, "budget_exhausted"]
        assert [await called("b", "rejected"), *[await called("b") for _ in range(3)]] == [
            "rejected", None, None, "budget_exhausted",
        ]  # fmt: skip
        assert (await session.call("acts", {"how": "ok"})).ok
