"""An answer counts once, in time, for what was shown; whatever else happens, nothing has been approved."""

import asyncio
from typing import Any

import anyio
import pytest

from handrail import ApprovalRequest, Call, Context, Decision, Session, tool
from handrail.testing import HeldApprovals, never_answers
from tests.gates.asked import ASK, ran, save, saying, settled, until
from tests.journeys.evidence import endings, events_of, only_ending

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


async def test_no_answer_is_not_a_no() -> None:
    async with Session([save], policy=ASK, approver=never_answers.within(0.02)) as session:
        result = await session.call("save", {"path": "a"})
        inside = await session.call("save", {"path": "a"}, origin="script")
    assert not result.ok
    assert not inside.ok
    assert (result.kind, inside.kind) == ("approval_timeout", "approval_timeout")
    assert "Call save directly" in inside.message
    assert "directly" not in result.message
    assert settled(session) == ["approval_timeout", "approval_timeout"]


async def test_a_yes_after_the_time_counts_for_nothing() -> None:
    async def shields(request: ApprovalRequest) -> Decision:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.06)
        return Decision.approve()

    async def swallows(request: ApprovalRequest) -> Decision:
        try:
            await anyio.sleep(10)
        except BaseException:  # noqa: BLE001
            return Decision.approve()
        return Decision.deny()

    for late in (shields, swallows):
        late.wait = 0.02
        async with Session([save], policy=ASK, approver=late) as session:
            result = await session.call("save", {"path": "a"})
        assert not result.ok
        assert result.kind == "approval_timeout"
        assert settled(session) == ["approval_timeout"]
    assert ran == []


async def test_an_answer_counts_once_for_its_own_request_and_arguments() -> None:
    held = HeldApprovals()
    async with Session([save], policy=ASK, approver=held) as session, anyio.create_task_group() as group:
        given = {"path": "a", "content": "shown"}
        group.start_soon(session.call, "save", given)
        request = await held.next()
        given["content"] = "changed behind the back"
        request.arguments["content"] = "changed in the copy"  # type: ignore[index]
        assert not held.answer(request.id, Decision.approve(), arguments_hash="another")
        assert not held.answer("unknown", Decision.approve())
        assert held.answer(request.id, Decision.approve(), arguments_hash=request.arguments_hash)
        assert not held.answer(request.id, Decision.deny())
    assert ran == [{"path": "a", "content": "shown", "mode": 0}]
    assert settled(session) == ["approve"]
    assert held.pending == {}


async def test_an_answer_after_expiry_does_not_count_where_answers_are_held() -> None:
    held = HeldApprovals(wait=0.02)
    async with Session([save], policy=ASK, approver=held) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "save", {"path": "a"})
        request = await held.next()
        await anyio.sleep(0.06)
        assert not held.answer(request.id, Decision.approve())
        again = HeldApprovals()
        group.start_soon(again, request)  # asked a second time, but it has expired
        await again.next()
        assert not again.answer(request.id, Decision.approve())
        group.cancel_scope.cancel()
    assert only_ending(session).data["kind"] == "approval_timeout"
    assert ran == []


async def test_a_cancelled_call_is_asked_about_no_more_and_does_not_run() -> None:
    async def swallows(request: ApprovalRequest) -> Decision:
        try:
            await anyio.sleep(10)
        except BaseException:  # noqa: BLE001
            pass
        return Decision.approve()

    held = HeldApprovals()
    for approver in (held, swallows):
        async with Session([save], policy=ASK, approver=approver) as session:
            async with anyio.create_task_group() as group:
                group.start_soon(session.call, "save", {"path": "a"})
                await until(lambda: len(events_of(session, "approval_asked")) == 1)
                group.cancel_scope.cancel()
            task = asyncio.ensure_future(session.call("save", {"path": "b"}))
            await until(lambda: len(events_of(session, "approval_asked")) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert [event.data["kind"] for event in endings(session).values()] == ["cancelled", "cancelled"]
        assert settled(session) == ["cancelled", "cancelled"]
    assert held.pending == {}
    assert ran == []


@pytest.mark.parametrize(
    "rubbish",
    [None, True, "yes", "approve", {"verdict": "approve"}, Decision.approve, ValueError("gone"),  # type: ignore[arg-type]
     TimeoutError(), asyncio.CancelledError()],
)  # fmt: skip
async def test_what_is_no_decision_has_not_approved(rubbish: Any) -> None:
    async with Session([save], policy=ASK, approver=saying(rubbish)) as session:
        result = await session.call("save", {"path": "a"})
    assert not result.ok
    assert result.kind == "rejected"
    assert ran == []
    assert settled(session) == ["failed" if isinstance(rubbish, BaseException) else "rejected"]


async def test_three_waiting_at_once_hold_the_deadline_around_them_and_then_it_bites() -> None:
    held = HeldApprovals()
    seen: list[str] = []

    @tool(timeout=0.5)
    async def outer(context: Context) -> str:
        async with anyio.create_task_group() as group:
            for path in "abc":
                group.start_soon(context.use, "save", {"path": path})
        seen.append("answered")
        await anyio.sleep(30)
        return "never"

    async with Session([outer, save], policy=ASK, approver=held) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "outer")
        await until(lambda: len(held.pending) == 3)
        for request in list(held.pending.values()):
            await anyio.sleep(0.25)
            assert held.answer(request.id, Decision.approve())
        await until(lambda: len(events_of(session, "call_ended")) == 4)
    assert seen == ["answered"]
    assert sorted(each["path"] for each in ran) == ["a", "b", "c"]
    ended = {event.data["tool"]: event.data["kind"] for event in endings(session).values()}
    assert ended == {"outer": "timeout", "save": None}


async def test_calls_together_are_asked_about_together() -> None:
    held = HeldApprovals()
    async with Session([save], policy=ASK, approver=held) as session, anyio.create_task_group() as group:
        results: dict[int, Any] = {}

        async def all_three() -> None:
            await session.call_all([Call(f"c{n}", "save", {"path": str(n)}) for n in range(3)], into=results)

        group.start_soon(all_three)
        await until(lambda: len(held.pending) == 3)
        by_path = {request.arguments["path"]: request.id for request in held.pending.values()}
        held.answer(by_path["2"], Decision.approve())
        held.answer(by_path["0"], Decision.deny())
        held.answer(by_path["1"], Decision.approve())
    assert [results[n].ok for n in range(3)] == [False, True, True]
    assert [each["path"] for each in ran] == ["2", "1"]


async def test_waiting_for_the_person_is_no_part_of_the_duration() -> None:
    async def slow(request: ApprovalRequest) -> Decision:
        await anyio.sleep(1)
        return Decision.approve()

    async with Session([save], policy=ASK, approver=slow) as session:
        assert (await session.call("save", {"path": "a"})).ok
        asked, settled = events_of(session, "approval_asked")[0], events_of(session, "approval_settled")[0]
        whole = events_of(session, "call_ended")[0].time - events_of(session, "call_started")[0].time
    waited = settled.time - asked.time
    assert waited >= 0.9, "the control"
    assert only_ending(session).data["duration_ms"] / 1000 <= whole - waited + 0.1
