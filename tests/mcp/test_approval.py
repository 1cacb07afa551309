"""A person at the client approves: asked over either protocol, once, and never without a clear yes."""

import json
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from handrail import Policy, Session, builtin_tools, open_sandbox, tool
from tests.mcp.served import NEW, OLD, PROTOCOLS, approving, client_of, envelope, server_of

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("protocol", PROTOCOLS)
ASK = Policy(ask=["pay*", "tip*"])
paid: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


@tool(risk="high", effects=["spends"])
def pay(amount: int) -> str:
    """Pay an amount."""
    paid.append(amount)
    return f"paid {amount}"


@tool
def free() -> str:
    """Cost nothing."""
    return "free"


@both
async def test_what_a_person_approves_runs_once(protocol: str) -> None:
    asked: list[str] = []
    async with client_of(server_of(pay, policy=ASK), protocol, elicitation_callback=approving(asked=asked)) as client:
        result = envelope(await client.call_tool("pay", {"amount": 5}))
    assert result["result"] == {"text": "paid 5"}
    assert paid == [5]
    assert len(asked) == 1
    assert "pay\n  amount: 5" in asked[0]


@both
async def test_a_rule_that_is_remembered_is_not_asked_again(protocol: str) -> None:
    asked: list[str] = []
    remember = approving("approve and remember", asked)
    async with client_of(server_of(pay, policy=ASK), protocol, elicitation_callback=remember) as client:
        for amount in (5, 5, 6):
            await client.call_tool("pay", {"amount": amount})
    assert (paid, len(asked)) == ([5, 5, 6], 2)
    assert "pay(5)" in asked[0]


@both
@pytest.mark.parametrize(
    ("action", "decision"),
    [("decline", ""), ("cancel", ""), ("accept", "deny"), ("accept", "yes"), ("accept", "")],
)
async def test_everything_but_a_clear_yes_is_a_no(protocol: str, action: str, decision: str) -> None:
    answer = approving(decision, action=action)
    async with client_of(server_of(pay, policy=ASK), protocol, elicitation_callback=answer) as client:
        result = await client.call_tool("pay", {"amount": 5})
    assert (result.is_error, envelope(result)["kind"], paid) == (True, "user_denied", [])


@both
async def test_a_client_that_cannot_ask_is_refused(protocol: str) -> None:
    async with client_of(server_of(pay, policy=ASK), protocol) as client:
        result = envelope(await client.call_tool("pay", {"amount": 5}))
    assert (result["kind"], paid) == ("rejected", [])


async def test_a_client_that_fails_to_ask_is_refused() -> None:
    async def broken(context: Any, params: Any) -> types.ErrorData:
        return types.ErrorData(code=-32603, message="no screen")

    async with client_of(server_of(pay, policy=ASK), OLD, elicitation_callback=broken) as client:
        result = envelope(await client.call_tool("pay", {"amount": 5}))
    assert (result["kind"], paid) == ("user_denied", [])


async def first_round(client: Client, amount: int = 5) -> types.InputRequiredResult:
    """Call `pay`, and get the question instead of an answer."""
    result = await call(client, amount)
    assert isinstance(result, types.InputRequiredResult)
    return result


async def call(
    client: Client, amount: int, asked: types.InputRequiredResult | None = None, decision: str | None = "approve",
    **changed: Any,
) -> types.CallToolResult | types.InputRequiredResult:  # fmt: skip
    """Call `pay`, or come back with the answer to its question; `changed` is what a hostile client changes."""
    again: dict[str, Any] = {}
    if asked is not None:
        [question] = asked.input_requests or {}
        answer = types.ElicitResult(action="accept", content={"decision": decision})
        again["request_state"] = asked.request_state
        again["input_responses"] = {question: answer} if decision is not None else {}
    params = types.CallToolRequestParams(name="pay", arguments={"amount": amount}, **again)
    params = params.model_copy(update=changed)
    return await client.session.send_request(types.CallToolRequest(params=params), EITHER)


class _Either:
    """Reads a result that is one of two kinds, where the SDK's client wants one class."""

    @staticmethod
    def model_validate(data: Any, **options: Any) -> types.CallToolResult | types.InputRequiredResult:
        kind = types.InputRequiredResult if data.get("resultType") == "input_required" else types.CallToolResult
        return kind.model_validate(data, **options)


EITHER: Any = _Either


async def test_a_call_replayed_three_times_with_one_approval_runs_once() -> None:
    async with client_of(server_of(pay, policy=ASK), NEW, elicitation_callback=approving()) as client:
        asked = await first_round(client)
        answers = [await call(client, 5, asked) for _ in range(3)]
    assert [envelope(each)["result"] for each in answers] == [{"text": "paid 5"}] * 3
    assert paid == [5]


async def test_a_later_answer_does_not_change_the_first() -> None:
    async with client_of(server_of(pay, policy=ASK), NEW, elicitation_callback=approving()) as client:
        asked = await first_round(client)
        first = envelope(await call(client, 5, asked, "deny"))
        second = envelope(await call(client, 5, asked, "approve"))
    assert (first["kind"], second, paid) == ("user_denied", first, [])


async def test_a_replay_without_an_answer_is_asked_again_and_does_not_run() -> None:
    async with client_of(server_of(pay, policy=ASK), NEW, elicitation_callback=approving()) as client:
        asked = await first_round(client)
        again = await call(client, 5, asked, None)
        assert isinstance(again, types.InputRequiredResult)
        assert (again.input_requests or {}).keys() == (asked.input_requests or {}).keys()
        assert paid == []
        assert envelope(await call(client, 5, again))["ok"]
    assert paid == [5]


async def test_forged_state_changed_arguments_and_another_tool_are_refused() -> None:
    async with client_of(server_of(pay, free, policy=ASK), NEW, elicitation_callback=approving()) as client:
        asked = await first_round(client)
        state = asked.request_state or ""
        forged = [
            {"request_state": json.dumps({"call": "x", "request": "y"})},
            {"request_state": state[:-4] + "AAAA"},
            {"request_state": "v1." + "A" * 80},
            {"request_state": ""},
            {"arguments": {"amount": 5000}},
            {"name": "free"},
        ]
        for changed in forged:
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await call(client, 5, asked, **changed)
        assert paid == []
        assert envelope(await call(client, 5, asked))["ok"], "the real one still counts"
    assert paid == [5]


async def test_a_state_of_another_server_is_refused() -> None:
    async with client_of(server_of(pay, policy=ASK), NEW, elicitation_callback=approving()) as one:
        asked = await first_round(one)
        async with client_of(server_of(pay, policy=ASK), NEW, elicitation_callback=approving()) as other:
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await call(other, 5, asked)
    assert paid == []


async def test_a_parked_call_does_not_hold_its_lane() -> None:
    @tool(lane="till", risk="high", effects=["spends"])
    def tip(amount: int) -> str:
        """Give a tip."""
        paid.append(amount)
        return "thanks"

    @tool(lane="till")
    def count() -> int:
        """Count what was paid."""
        return len(paid)

    async with client_of(server_of(tip, count, policy=ASK), NEW, elicitation_callback=approving()) as client:
        asked = await call(client, 5, name="tip")
        assert isinstance(asked, types.InputRequiredResult)
        with anyio.fail_after(30):
            assert envelope(await client.call_tool("count", {}))["result"] == 0
        assert envelope(await call(client, 5, asked, name="tip"))["ok"]
    assert paid == [5]


async def test_a_call_that_nobody_comes_back_for_never_runs() -> None:
    seen: list[Session] = []
    async with client_of(server_of(pay, policy=ASK, seen=seen), NEW, elicitation_callback=approving()) as client:
        await first_round(client)
    kinds = [event.data["kind"] for event in seen[0].trace if event.type == "call_ended"]
    assert (kinds, paid) == (["cancelled"], [])


async def test_a_state_outlives_its_session_but_its_call_does_not() -> None:
    server = server_of(pay, policy=ASK, idle=0.2)
    async with client_of(server, NEW, elicitation_callback=approving()) as client:
        asked = await first_round(client)
        with anyio.fail_after(60):
            while True:  # the session is closed when it is idle
                answer = await call(client, 5, asked, None)
                if isinstance(answer, types.CallToolResult):
                    break
                await anyio.sleep(0.3)
    assert envelope(answer)["kind"] in ("unknown_outcome", "cancelled")
    assert paid == []


@pytest.mark.long
@both
async def test_a_person_who_does_not_answer_in_time_has_not_approved(protocol: str) -> None:
    async def silent(context: Any, params: Any) -> types.ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError

    async with client_of(server_of(pay, policy=ASK), protocol, elicitation_callback=silent) as client:
        if protocol == OLD:
            answer = await client.call_tool("pay", {"amount": 5})
        else:
            asked = await first_round(client)
            await anyio.sleep(60)
            answer = await call(client, 5, asked)
    assert (envelope(answer)["kind"], paid) == ("approval_timeout", [])


@both
async def test_a_change_is_asked_about_as_a_difference(protocol: str) -> None:
    asked: list[str] = []
    async with open_sandbox() as sandbox:
        await sandbox.write_text("f", "one\ntwo\n")
        server = server_of(*builtin_tools(), policy=Policy(mode="ask"), sandbox=sandbox)
        async with client_of(server, protocol, elicitation_callback=approving(asked=asked)) as client:
            await client.call_tool("read", {"path": "f"})
            await client.call_tool("write", {"path": "f", "content": "one\nthree\n"})
    assert "-two\n+three" in asked[0]
