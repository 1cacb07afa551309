"""A person is asked about exactly this call; what they say is done, and is told."""

from typing import Any

import pytest

from handrail import ApprovalRequest, Decision, Policy, Session, tool
from handrail.gates.permit import approvals_of
from handrail.session.session import core_of
from handrail.testing import approve_all, deny_all, edit_with
from tests.gates.asked import ASK, ran, save, saying, settled
from tests.journeys.evidence import events_of

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


async def test_a_yes_runs_the_call_as_it_was_shown_and_only_this_once() -> None:
    person = saying(Decision.approve(), Decision.approve())
    async with Session([save], policy=ASK, approver=person) as session:
        for _ in range(2):
            assert (await session.call("save", {"path": "a"})).ok
    request = person.asked[0]
    assert (request.tool, request.risk, request.effects) == ("save", "safe", frozenset({"writes"}))
    assert dict(request.arguments) == {"path": "a"}
    assert request.suggested_rule == "save(a)"
    assert request.sandbox == "none"
    assert "writes" in request.reason
    assert settled(session) == ["approve", "approve"]
    assert len(ran) == 2


async def test_remember_asks_no_more_for_the_same_and_still_for_another_and_the_event_carries_the_rule() -> None:
    person = saying(Decision.remember(), Decision.deny())
    async with Session([save], policy=Policy(mode="ask", deny=["save(forbidden)"]), approver=person) as session:
        assert (await session.call("save", {"path": "a[*]"})).ok
        assert (await session.call("save", {"path": "a[*]", "content": "again"})).ok
        assert not (await session.call("save", {"path": "a*"})).ok
        assert len(person.asked) == 2
    rules = [event.data.get("rule") for event in events_of(session, "approval_settled")]
    assert rules == ["save(a[[][*]])", None]
    assert len(ran) == 2
    async with Session([save], policy=Policy(mode="ask", allow=rules[:1]), approver=deny_all) as later:  # a saved rule
        assert (await later.call("save", {"path": "a[*]"})).ok


async def test_what_is_remembered_never_beats_deny_and_makes_nothing_stricter() -> None:
    person = saying(Decision.remember(), Decision.approve())

    @tool(effects=["executes"])
    async def bash(command: str, timeout: int = 1) -> str:
        return command

    once = saying(Decision.remember())
    async with Session([bash], policy=Policy(mode="open", ask=["bash(timeout=5)"]), approver=once) as session:
        assert (await session.call("bash", {"command": "ls", "timeout": 5})).ok
        assert (await session.call("bash", {"command": "ls | wc"})).ok
        assert len(once.asked) == 1
    async with Session(
        [bash], policy=Policy(mode="open", ask=["bash(git *)"], deny=["bash(rm *)"]), approver=person
    ) as session:
        assert (await session.call("bash", {"command": "git log | wc"})).ok  # asked: it is not one simple command
        assert (await session.call("bash", {"command": "git log | wc"})).ok  # and now it is known to the letter
        assert (await session.call("bash", {"command": "ls"})).ok
        assert len(person.asked) == 1
        approvals_of(core_of(session).shared).remembered.extend(Policy(allow=["bash"]).rules.allow)
        denied = await session.call("bash", {"command": "rm x"})
    assert not denied.ok
    assert denied.kind == "rejected"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"path": "content=x"}, "save(path=content=x)"),
        ({"path": "other=x"}, "save(other=x)"),
        ({"path": "x\u202ey"}, ""),
        ({"path": "x\x1b[2J"}, ""),
        ({"path": "x" * 5_000}, ""),
        ({"path": "two\nlines"}, "save(two\nlines)"),
    ],
)
async def test_the_rule_means_this_value_alone_and_is_empty_where_it_cannot_be_shown(arguments: Any, rule: str) -> None:
    person = saying(Decision.remember(), Decision.deny(), Decision.deny())
    async with Session([save], policy=ASK, approver=person) as session:
        assert (await session.call("save", arguments)).ok
        assert person.asked[0].suggested_rule == rule
        assert (await session.call("save", arguments)).ok is bool(rule)
        assert not (await session.call("save", {"path": "another", "content": "x"})).ok
    assert bool(events_of(session, "approval_settled")[0].data.get("rule")) is bool(rule)


async def test_a_number_a_list_or_no_argument_at_all_can_be_remembered_too() -> None:
    @tool(effects=["spends"])
    async def pay(amount: int, to: str = "me") -> int:
        return amount

    @tool(effects=["writes"])
    async def tag(names: list[str]) -> int:
        return len(names)

    @tool(effects=["writes"])
    async def sync() -> int:
        return 1

    for name, first, other, rule in (
        ("pay", {"amount": 5}, {"amount": 500}, "pay(5)"),
        ("tag", {"names": ["a", "b"]}, {"names": ["a", "c"]}, 'tag([[]"a", "b"])'),
        ("sync", {}, None, "sync"),
    ):
        person = saying(Decision.remember(), Decision.deny())
        async with Session([pay, tag, sync], policy=ASK, approver=person) as session:
            assert (await session.call(name, first)).ok
            assert person.asked[0].suggested_rule == rule
            assert (await session.call(name, first)).ok
            assert other is None or not (await session.call(name, other)).ok


async def test_edited_arguments_run_instead_and_everybody_is_told() -> None:
    given = {"path": "b", "mode": "7"}
    async with Session([save], policy=ASK, approver=edit_with(given)) as session:
        result = await session.call("save", {"path": "a"})
    assert result.ok
    assert ran == [{"path": "b", "content": "", "mode": 7}]
    assert "changed the arguments" in result.warnings[0]
    (event,) = events_of(session, "approval_settled")
    assert event.data["decision"] == "edit"
    assert event.data["arguments"] == given
    given["path"] = "c"  # whoever edited still holds the mapping, and nothing else
    assert event.data["arguments"]["path"] == "b"


@pytest.mark.parametrize("wrong", [{}, {"path": 1, "colour": "red"}, {"path": None}, {"mode": 1}])
async def test_an_edit_into_something_invalid_bounces(wrong: Any) -> None:
    async with Session([save], policy=ASK, approver=edit_with(wrong)) as session:
        result = await session.call("save", {"path": "a"})
    assert not result.ok
    assert result.kind == "invalid_args"
    assert "The user changed the arguments" in result.message
    assert ran == []


async def test_an_edit_into_something_that_needs_approval_for_another_reason_is_asked_about_again() -> None:
    policy = Policy(ask=["save(a*)", "save(b*)"], deny=["save(c)"])
    for second, kind in ((Decision.approve(), None), (Decision.deny("no"), "user_denied")):
        person = saying(Decision.edit({"path": "b"}), second)
        async with Session([save], policy=policy, approver=person) as session:
            result = await session.call("save", {"path": "a"})
        assert (None if result.ok else result.kind) == kind
        assert [dict(request.arguments)["path"] for request in person.asked] == ["a", "b"]
    person = saying(Decision.edit({"path": "c"}))
    async with Session([save], policy=policy, approver=person) as session:
        denied = await session.call("save", {"path": "a"})
    assert not denied.ok
    assert denied.kind == "rejected"
    assert [each["path"] for each in ran] == ["b"]
    person = saying(Decision.edit({"path": "a2"}))  # the control: for the same reason nobody is asked twice
    async with Session([save], policy=policy, approver=person) as session:
        assert (await session.call("save", {"path": "a"})).ok


async def test_editing_for_ever_comes_to_an_end() -> None:
    async def shuffles(request: ApprovalRequest) -> Decision:
        return Decision.edit({"path": "b" if request.arguments["path"] == "a" else "a"})

    async with Session([save], policy=Policy(ask=["save(a)", "save(b)"]), approver=shuffles) as session:
        result = await session.call("save", {"path": "a"})
    assert not result.ok
    assert result.kind == "rejected"
    assert settled(session) == ["edit"] * 5


async def test_a_no_carries_its_message_and_skip_says_nothing_more() -> None:
    async with Session(
        [save], policy=ASK, approver=saying(Decision.deny("use the other file"), Decision.skip())
    ) as session:
        denied = await session.call("save", {"path": "a"})
        skipped = await session.call("save", {"path": "a"})
    assert not denied.ok
    assert not skipped.ok
    assert (denied.kind, skipped.kind) == ("user_denied", "user_denied")
    assert "use the other file" in denied.message
    assert settled(session) == ["deny", "skip"]
    assert ran == []


async def test_every_yes_of_a_test_is_a_yes() -> None:
    async with Session([save], policy=ASK, approver=approve_all) as session:
        assert (await session.call("save", {"path": "a"})).ok
    async with Session([save], policy=ASK, approver=deny_all) as session:
        assert not (await session.call("save", {"path": "a"})).ok
