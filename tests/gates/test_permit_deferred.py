"""An approval that is put off ends the call for now; what a person then approves runs once, and only that."""

from pathlib import Path
from typing import Any

import pytest

from handrail import ApprovalRequest, Budget, Decision, Policy, Session, Store, Unavailable, tool
from handrail.testing import approve_all
from tests.gates.asked import ASK, ran, save, saying, settled
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio
DEFER = Decision.defer()


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


async def defer_all(request: ApprovalRequest) -> Decision:
    return DEFER


async def deferred(session: Session, arguments: Any, **more: Any) -> dict[str, Any]:
    result = await session.call("save", arguments, **more)
    assert not result.ok
    assert result.kind == "rejected"
    return dict(result.data["approval"])


async def test_a_deferred_call_ends_rejected_and_tells_what_is_to_be_approved() -> None:
    approver = saying(DEFER)
    async with Session([save], policy=ASK, approver=approver) as session:
        approval = await deferred(session, '{"path": "a", "mode": "7"}')
    (request,) = approver.asked
    assert approval == {
        "id": request.id,
        "tool": "save",
        "arguments": {"path": "a", "mode": 7},
        "arguments_hash": request.arguments_hash,
        "text": request.text,
        "reason": request.reason,
    }
    assert settled(session) == ["deferred"]
    assert ran == []


async def test_what_was_approved_since_runs_once_and_then_asks_again() -> None:
    async with Session([save], policy=ASK, approver=defer_all) as session:
        approval = await deferred(session, {"path": "a", "mode": "7"})
        hash = approval["arguments_hash"]
        assert (await session.call("save", {"path": "a", "mode": "7"}, approved=hash)).ok
        again = await deferred(session, {"path": "a", "mode": "7"}, approved=hash)
        assert again["id"] != approval["id"]
        assert len(ran) == 1
        assert (await session.call("save", {"path": "a", "mode": 7}, approved=hash)).ok, "it was approved again"
    assert len(ran) == 2
    assert [event.data.get("approved") for event in events_of(session, "call_started")] == [None, hash, hash, hash]


async def test_other_arguments_than_the_approved_ones_ask() -> None:
    async with Session([save], policy=ASK, approver=defer_all) as session:
        hash = (await deferred(session, {"path": "a"}))["arguments_hash"]
        other = await deferred(session, {"path": "b"}, approved=hash)
        assert other["arguments_hash"] != hash
        await deferred(session, {"path": "a"}, approved="forged")
        assert ran == []
        assert (await session.call("save", {"path": "a"}, approved=hash)).ok, "what was not let through is not used up"


async def test_without_an_approver_the_approved_call_runs_and_any_other_is_refused() -> None:
    async with Session([save], policy=ASK, approver=defer_all) as session:
        hash = (await deferred(session, {"path": "a"}))["arguments_hash"]
    async with Session([save], policy=ASK) as session:
        assert not (await session.call("save", {"path": "b"}, approved=hash)).ok
        assert (await session.call("save", {"path": "a"}, approved=hash)).ok
        assert not (await session.call("save", {"path": "a"}, approved=hash)).ok
    assert len(ran) == 1


async def test_a_deny_rule_refuses_what_a_person_approved() -> None:
    async with Session([save], policy=ASK, approver=defer_all) as session:
        hash = (await deferred(session, {"path": "a"}))["arguments_hash"]
    async with Session([save], policy=Policy(deny=["save"], mode="open"), approver=approve_all) as session:
        result = await session.call("save", {"path": "a"}, approved=hash)
    assert not result.ok
    assert result.kind == "rejected"
    assert ran == []


async def test_an_approval_is_for_one_tool() -> None:
    @tool(effects=["writes"])
    async def erase(path: str) -> str:
        """Remove it."""
        return "gone"

    async with Session([save, erase], policy=ASK, approver=defer_all) as session:
        hash = (await deferred(session, {"path": "a"}))["arguments_hash"]
        assert (await session.call("save", {"path": "a"}, approved=hash)).ok
        assert (await session.call("erase", {"path": "a"}, approved=hash)).ok, "the program says it was approved"
        assert not (await session.call("erase", {"path": "a"}, approved=hash)).ok


async def test_a_deferred_call_counts_nowhere() -> None:
    budget = Budget(calls=1, refusals=1)
    async with Session([save], policy=ASK, approver=defer_all, budget=budget) as session:
        for number in range(5):
            approval = await deferred(session, {"path": str(number)})
        assert (await session.call("save", {"path": "4"}, approved=approval["arguments_hash"])).ok
        over = await session.call("save", {"path": "5"})
        assert not over.ok
        assert over.kind == "budget_exhausted"
    async with Session([save], policy=ASK, approver=saying(Decision.deny()), budget=budget) as session:
        await session.call("save", {"path": "0"})
        denied = await session.call("save", {"path": "0"})
        assert not denied.ok
        assert denied.kind == "budget_exhausted", "a control: what is denied does count"


async def test_what_was_edited_and_then_deferred_is_what_is_approved() -> None:
    approver = saying(Decision.edit({"path": "b", "mode": "7"}), DEFER)
    async with Session([save], policy=Policy(ask=["save(b)"], mode="ask"), approver=approver) as session:
        approval = await deferred(session, {"path": "a"})
        assert approval["arguments"] == {"path": "b", "mode": 7}
        assert (await session.call("save", approval["arguments"], approved=approval["arguments_hash"])).ok
    assert [each["path"] for each in ran] == ["b"]


async def test_a_resumed_session_knows_which_approvals_were_used(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        async with Session([save], policy=ASK, approver=defer_all, store=store, id="one") as session:
            used = (await deferred(session, {"path": "used"}))["arguments_hash"]
            kept = (await deferred(session, {"path": "kept"}))["arguments_hash"]
            assert (await session.call("save", {"path": "used"}, approved=used)).ok
        async with Session.resume(store, "one", tools=[save], policy=ASK, approver=defer_all) as session:
            await deferred(session, {"path": "used"}, approved=used)
            assert (await session.call("save", {"path": "kept"}, approved=kept)).ok
    assert [each["path"] for each in ran] == ["used", "kept"]


@pytest.mark.parametrize("plain", [False, True])
async def test_an_approver_that_can_ask_nobody_is_the_same_as_none(plain: bool) -> None:
    async def approver(request: ApprovalRequest) -> Decision:
        raise Unavailable("the channel is gone")

    def threaded(request: ApprovalRequest) -> Decision:
        raise Unavailable("the channel is gone")

    async with Session([save], policy=ASK) as session:
        without = await session.call("save", {"path": "a"})
    async with Session([save], policy=ASK, approver=threaded if plain else approver) as session:
        result = await session.call("save", {"path": "a"})
    assert result == without
    assert settled(session) == ["unavailable"]
    assert "traceback" not in events_of(session, "approval_settled")[0].data
    assert len(endings(session)) == 1
