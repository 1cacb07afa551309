"""A call that was begun runs once, asks whoever looks, holds nobody up meanwhile, and ends with its session."""

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    ApprovalRequest,
    Call,
    Context,
    Decision,
    HandrailError,
    Pending,
    Policy,
    Session,
    builtin_tools,
    open_sandbox,
    tool,
)
from handrail.testing import HeldApprovals, approve_all
from tests.gates.asked import ASK, ran, save, settled, until
from tests.journeys.evidence import endings, events_of, only_ending

pytestmark = pytest.mark.anyio
order: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()
    order.clear()


@tool(effects=["writes"], lane="book")
async def note(text: str) -> str:
    """Write a line into the book."""
    order.append(text)
    return text


@tool
async def saves_inside(context: Context, path: str) -> Any:
    """Call another tool."""
    result = await context.use("save", {"path": path})
    return result.value if result.ok else result.kind


async def asked(pending: Pending) -> ApprovalRequest:
    with anyio.fail_after(60):
        request = await pending.next()
    assert isinstance(request, ApprovalRequest)
    return request


async def result_of(pending: Pending) -> Any:
    with anyio.fail_after(60):
        result = await pending.next()
    assert not isinstance(result, ApprovalRequest)
    return result


async def test_everybody_who_waits_gets_the_one_result_as_often_as_they_ask() -> None:
    got: list[Any] = []

    async def wait(pending: Pending) -> None:
        got.append(await result_of(pending))

    async with Session([save], policy=Policy(mode="open")) as session:
        pending = session.begin("save", '{"path": "a"}', id="first")
        assert pending.id == "first"
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(wait, pending)
        got += [await result_of(pending), await result_of(pending)]
    got.append(await result_of(pending))
    assert [result.value for result in got] == ["saved a"] * 8
    assert len(ran) == 1
    assert only_ending(session).call_id == "first"


async def test_an_approval_comes_out_of_next_and_never_from_the_approver_of_the_session() -> None:
    async with Session([save], policy=ASK, approver=approve_all) as session:
        pending = session.begin("save", {"path": "a"})
        request = await asked(pending)
        assert (request.call_id, request.arguments) == (pending.id, {"path": "a"})
        assert await asked(pending) == request  # it comes until it is answered
        assert ran == []
        assert pending.answer(request.id, Decision.approve())
        assert (await result_of(pending)).value == "saved a"
        assert (await session.call("save", {"path": "b"})).ok, "the session's own calls still ask its approver"
    assert [each["path"] for each in ran] == ["a", "b"]
    assert settled(session) == ["approve", "approve"]


async def test_approvals_of_calls_inside_it_come_out_of_next() -> None:
    async with Session([save, saves_inside], policy=ASK, approver=approve_all) as session:
        pending = session.begin("saves_inside", {"path": "a"})
        request = await asked(pending)
        assert request.tool == "save"
        pending.answer(request.id, Decision.deny())
        assert (await result_of(pending)).value == "user_denied"
    assert ran == []


async def test_nobody_can_be_asked_where_asks_is_false() -> None:
    async with Session([save, saves_inside], policy=ASK, approver=approve_all) as session:
        result = await result_of(session.begin("save", {"path": "a"}, asks=False))
        inside = await result_of(session.begin("saves_inside", {"path": "a"}, asks=False))
    assert (result.kind, "no approver" in result.message) == ("rejected", True)
    assert inside.value == "rejected"
    assert events_of(session, "approval_asked") == []


async def test_an_answer_counts_once_and_only_for_its_own_request() -> None:
    async with Session([save], policy=ASK) as session:
        pending, other = session.begin("save", {"path": "a"}), session.begin("save", {"path": "b"})
        request, theirs = await asked(pending), await asked(other)
        assert not pending.answer(theirs.id, Decision.approve())
        assert not pending.answer("forged", Decision.approve())
        with pytest.raises(HandrailError, match=r"Decision\.approve"):
            pending.answer(request.id, "yes")  # type: ignore[arg-type]
        request.arguments["path"] = "/etc/passwd"  # type: ignore[index]
        assert pending.answer(request.id, Decision.approve())
        assert not pending.answer(request.id, Decision.approve())
        assert (await result_of(pending)).value == "saved a"
        assert not pending.answer(request.id, Decision.approve())
        assert other.answer(theirs.id, Decision.edit({"path": "c"}))
        assert (await result_of(other)).value == "saved c"
    assert [each["path"] for each in ran] == ["a", "c"]


async def test_an_answer_after_the_wait_does_not_count() -> None:
    async with Session([save], policy=ASK) as session:
        pending = session.begin("save", {"path": "a"}, wait=0.02)
        request = await asked(pending)
        result = request
        while isinstance(result, ApprovalRequest):
            await anyio.sleep(0.01)
            result = await pending.next()  # type: ignore[assignment]
        assert not pending.answer(request.id, Decision.approve())
        assert result.kind == "approval_timeout"
    assert ran == []
    assert settled(session) == ["approval_timeout"]


async def test_a_parked_call_holds_nobody_up_and_goes_to_the_end_of_its_lane_when_answered() -> None:
    async with Session([note], policy=Policy(ask=["note(parked*)"], mode="open")) as session:
        first, second = session.begin("note", {"text": "parked 1"}), session.begin("note", {"text": "parked 2"})
        requests = [await asked(first), await asked(second)]
        with anyio.fail_after(60):
            assert (await session.call("note", {"text": "free"})).ok
        second.answer(requests[1].id, Decision.approve())
        first.answer(requests[0].id, Decision.approve())
        await session.call("note", {"text": "last"})
        assert [(await result_of(each)).ok for each in (first, second)] == [True, True]
    assert order == ["free", "parked 2", "parked 1", "last"]


async def test_a_call_that_was_not_begun_keeps_its_place_while_a_person_is_asked() -> None:
    held = HeldApprovals()
    policy = Policy(ask=["note(asks)"], mode="open")
    async with Session([note], policy=policy, approver=held) as session, anyio.create_task_group() as group:
        group.start_soon(session.call_all, [Call("1", "note", {"text": "asks"}), Call("2", "note", {"text": "b"})])
        request = await held.next()
        await until(lambda: bool(events_of(session, "call_waiting")))
        assert order == []
        held.answer(request.id, Decision.approve())
    assert order == ["asks", "b"]


async def test_a_call_that_is_cancelled_while_it_is_parked_leaves_nothing_behind() -> None:
    async with Session([note], policy=Policy(ask=["note(parked)"], mode="open")) as session:
        pending = session.begin("note", {"text": "parked"})
        request = await asked(pending)
        pending.cancel()
        pending.cancel()
        assert (await result_of(pending)).kind == "cancelled"
        assert not pending.answer(request.id, Decision.approve())
        assert (await session.call("note", {"text": "free"})).ok
    assert order == ["free"]
    assert settled(session) == ["cancelled"]
    assert endings(session)[pending.id].data["kind"] == "cancelled"


async def test_a_call_that_is_cancelled_before_its_task_began_ends_once_and_gives_its_place_back() -> None:
    async with Session([note], policy=Policy(mode="open")) as session:
        pending = session.begin("note", {"text": "never"})
        pending.cancel()
        assert (await result_of(pending)).kind == "cancelled"
        with anyio.fail_after(60):
            assert (await session.call("note", {"text": "free"})).ok
        assert order == ["free"]
    assert endings(session)[pending.id].data["kind"] == "cancelled"


@pytest.mark.parametrize("parked", [True, False])
async def test_a_cancelled_call_gives_the_result_that_the_transcript_has(parked: bool) -> None:
    async with Session([save], policy=ASK) as session:
        pending = session.begin("save", {"path": "x"}, origin="mcp")
        if parked:
            assert isinstance(await pending.next(), ApprovalRequest)
        pending.cancel()
        result = await result_of(pending)
    ended = endings(session)[pending.id].data
    assert (ended["kind"], ended["result"]["message"], ended["origin"]) == ("cancelled", result.message, "mcp")


async def test_the_call_goes_on_when_its_caller_is_cancelled() -> None:
    started: list[Pending] = []

    async with Session([save], policy=ASK) as session:

        async def caller() -> None:
            started.append(session.begin("save", {"path": "a"}))
            await started[0].next()
            await anyio.sleep_forever()

        with anyio.move_on_after(0.05):
            await caller()
        task = asyncio.create_task(started[0].next())
        await anyio.lowlevel.checkpoint()
        task.cancel()
        request = await asked(started[0])
        started[0].answer(request.id, Decision.approve())
        assert (await result_of(started[0])).value == "saved a"


async def test_the_end_of_the_session_ends_its_calls_parked_or_running() -> None:
    @tool
    async def hangs() -> None:
        """Never end by itself."""
        try:
            await anyio.sleep_forever()
        finally:
            order.append("cleaned up")

    async with Session([save, hangs], policy=ASK) as session:
        parked, running = session.begin("save", {"path": "a"}), session.begin("hangs")
        request = await asked(parked)
        await until(lambda: bool(events_of(session, "call_running")))
    assert order == ["cleaned up"]
    assert [(await result_of(each)).kind for each in (parked, running)] == ["cancelled", "cancelled"]
    assert not parked.answer(request.id, Decision.approve())
    assert {ended.data["kind"] for ended in endings(session).values()} == {"cancelled"}
    with pytest.raises(HandrailError, match="is closed"):
        session.begin("hangs")


async def test_a_command_that_was_begun_dies_with_the_session() -> None:
    async with open_sandbox() as sandbox:
        async with Session(builtin_tools(), sandbox=sandbox) as session:
            write = "while :; do echo x >> beats; sleep 0.02; done"
            pending = session.begin("bash", {"command": f"setsid bash -c '{write}' & echo begun; sleep 987"})
            await until(lambda: bool(events_of(session, "call_output")))
            with anyio.fail_after(60):
                while not await sandbox.exists("beats"):  # noqa: ASYNC110 - what is waited for has no event
                    await anyio.sleep(0.02)
        assert (await result_of(pending)).kind == "cancelled"
        size = (await sandbox.stat("beats")).size
        await anyio.sleep(0.2)
        assert (await sandbox.stat("beats")).size == size


async def test_a_person_can_terminate_it_at_once() -> None:
    async with Session([save], policy=ASK) as session:
        pending = session.begin("save", {"path": "a"})
        assert await session.terminate(pending.id)
        await until(lambda: bool(events_of(session, "call_ended")))
        assert (await result_of(pending)).data == {"killed_by": "user"}
        parked = session.begin("save", {"path": "a"})
        request = await asked(parked)
        assert await session.terminate(parked.id)
        assert not parked.answer(request.id, Decision.approve()), "it is over, though its task has not ended yet"
        assert (await result_of(parked)).kind == "cancelled"
        assert len(endings(session)) == 2
    assert ran == []


async def test_many_at_once_each_get_their_own_answer() -> None:
    async with Session([save], policy=ASK) as session:
        begun = [session.begin("save", {"path": str(number)}) for number in range(60)]
        for pending in reversed(begun):
            request = await asked(pending)
            pending.answer(request.id, Decision.approve() if int(request.arguments["path"]) % 2 else Decision.deny())
        results = [await result_of(pending) for pending in begun]
    assert [result.value for result in results] == [f"saved {n}" if n % 2 else None for n in range(60)]
    assert len(ran) == 30
    assert len(endings(session)) == 60


@pytest.mark.parametrize("wait", [0, -1, None, "55"])
async def test_a_wait_that_is_no_number_of_seconds_begins_no_call(wait: Any) -> None:
    async with Session([save]) as session:
        with pytest.raises(HandrailError, match="wait"):
            session.begin("save", {"path": "a"}, wait=wait)
    assert session.call_count == 0
