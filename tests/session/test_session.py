"""The only door: order, ids, nesting, memory, state and what is refused at construction."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from handrail import (
    ApprovalRequest,
    Budget,
    Call,
    Context,
    Decision,
    HandrailError,
    Policy,
    Result,
    Sandbox,
    Session,
    Tool,
    Toolbox,
    tool,
)  # fmt: skip
from handrail.contract.driver import Feature
from handrail.session.session import core_of
from handrail.session.standard import STANDARD
from handrail.testing import MemoryDriver
from handrail.toolkit.gate import Next, Step
from tests.gates.asked import until
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio


async def trivial(n: int) -> int:
    return n


def test_the_gates_are_one_list_in_this_order() -> None:
    assert [gate.__name__ for gate in STANDARD] == [
        "record", "shape", "budget", "breaker", "preflight", "permit", "lane", "references", "deadline", "invoke",
    ]  # fmt: skip


async def test_the_list_can_be_replaced_and_a_gate_of_ones_own_put_anywhere() -> None:
    seen: list[tuple[str, Any]] = []

    async def watch(step: Step, proceed: Next) -> Result:
        seen.append((step.tool.name, dict(step.arguments)))
        result = await proceed(step)
        seen.append(("after", result.ok))
        return result

    async with Session([trivial], gates=[*STANDARD[:5], watch, *STANDARD[5:]]) as session:
        assert (await session.call("trivial", '{"n": 4}')).value == 4
        assert not (await session.call("trivial", "{}")).ok  # bounced before it came to `watch`
    assert seen == [("trivial", {"n": 4}), ("after", True)]


async def test_a_list_without_invoke_says_so_and_a_gate_with_a_bug_still_answers() -> None:
    async def broken(step: Step, proceed: Next) -> Result:
        raise ZeroDivisionError("a bug in a gate")

    async def forgetful(step: Step, proceed: Next) -> Any:
        await proceed(step)

    for gates, said in (
        (STANDARD[:1], "write gates=[my_gate, *STANDARD], whose last gate runs the tool"),
        ([*STANDARD[:1], broken], "ZeroDivisionError: a bug in a gate"),
        ([*STANDARD[:1], forgetful, STANDARD[-1]], "A gate failed"),
    ):
        async with Session([tool(name="t")(lambda: None)], gates=gates) as session:
            result = await session.call("t")
        assert not result.ok
        assert result.kind == "execution_error"
        assert said in result.message
        assert len(endings(session)) == 1


async def test_answers_come_in_the_order_asked_though_the_work_ends_in_another() -> None:
    ended: list[int] = []

    async def waits(n: int) -> int:
        await until(lambda: len(ended) == 3 - n)
        ended.append(n)
        return n

    calls = [Call(f"c{n}", "waits", {"n": n}) for n in range(4)]
    async with Session([waits]) as session:
        results = await session.call_all([*calls, Call("x", "missing", "{}")])
        assert await session.call_all([]) == []
    assert [result.value for result in results[:4]] == [0, 1, 2, 3]
    assert results[4].kind == "tool_not_found"
    assert ended == [3, 2, 1, 0]  # the control: they did run together


@pytest.mark.parametrize(
    "wrong",
    [Call("2", trivial, {}), Call(2, "trivial", {}), Call("2", "trivial", {}, parent=2)],  # type: ignore[arg-type]
)
async def test_where_one_call_of_many_is_refused_none_keeps_its_place_in_a_lane(wrong: Call) -> None:
    async with Session([tool(lane="one")(trivial)]) as session:
        with pytest.raises(HandrailError):
            await session.call_all([Call("1", "trivial", {"n": 1}), wrong])
        with anyio.fail_after(30):
            assert (await session.call("trivial", {"n": 2})).value == 2
        assert len(endings(session)) == 1


async def test_calls_with_one_id_stay_apart() -> None:
    calls = [Call("same", "trivial", {"n": n}) for n in range(3)]
    calls += [Call("same#1", "trivial", {"n": 3}), Call("same#2", "trivial", '{"n": 4}')]
    async with Session([trivial]) as session:
        results = await session.call_all(calls)
        await session.call("trivial", {"n": 5}, id="same")
        await session.call("trivial", {"n": 6}, id="call_9")
        for n in range(7, 12):
            await session.call("trivial", {"n": n})
    assert [result.value for result in results] == [0, 1, 2, 3, 4]
    found = endings(session)  # which fails when two calls share an id
    assert len(found) == session.call_count == 12
    assert "same" in found


async def test_a_call_inside_a_call_carries_its_parent_all_the_way_down() -> None:
    async def down(context: Context, depth: int) -> int:
        if depth == 0:
            return 0
        below = await context.use("down", {"depth": depth - 1})
        return below.value + 1

    async with Session([down]) as session:
        assert (await session.call("down", {"depth": 5}, id="top")).value == 5
    started = events_of(session, "call_started")
    assert [event.parent for event in started] == [None, *(event.call_id for event in started[:-1])]
    assert all(event.parent == started[n].parent for n, event in enumerate(reversed(endings(session).values())))


async def test_a_tool_has_the_callers_state_and_a_memory_that_lasts_for_the_session() -> None:
    def counts(context: Context) -> list[Any]:
        memory = context.memory("counts")
        memory["n"] = memory.get("n", 0) + 1
        return [memory["n"], context.state["who"], context.session_id, context.call.name]

    async with Session([counts], state={"who": "me"}, id="s1") as session:
        await session.call("counts")
        assert (await session.call("counts")).value == [2, "me", "s1", "counts"]
    async with Session([counts], state={"who": "you"}, id="s2") as other:
        assert (await other.call("counts")).value == [1, "you", "s2", "counts"]


async def test_what_is_not_there_is_unavailable_and_a_retry_cannot_help() -> None:
    async def asks(context: Context) -> str:
        return await context.host.ask("which?")

    async def reads(context: Context) -> Any:
        return await context.sandbox.read_text("x")

    async with Session([asks, reads]) as session:
        for name in ("asks", "reads"):
            result = await session.call(name)
            assert not result.ok
            assert (result.kind, result.retryable) == ("unavailable", False)


async def test_a_closed_session_takes_no_call() -> None:
    async with Session([trivial]) as session:
        await session.call("trivial", {"n": 1})
    with pytest.raises(HandrailError, match="closed"):
        await session.call("trivial", {"n": 1})
    with pytest.raises(HandrailError, match="closed"):
        await session.call_all([Call("a", "trivial", {"n": 1})])
    assert session.call_count == 1
    assert [event.type for event in session.trace].count("call_started") == 1


def test_what_cannot_be_served_is_refused_when_the_session_is_made() -> None:
    with pytest.raises(HandrailError, match=r"tool x needs a sandbox that enforces files"):
        Session([Tool("x", {"type": "object"}, lambda context, arguments: 1, needs=["files"])])
    with pytest.raises(HandrailError, match="mode 'lenient'"):
        Policy(mode="lenient")  # type: ignore[arg-type]
    for wrong in (-1, True, float("nan")):
        with pytest.raises(HandrailError, match=r"Budget\.calls"):
            Budget(calls=wrong)
    with pytest.raises(TypeError, match="colour"):
        Session(colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("sandboxed", [True, False])
async def test_a_tool_added_later_that_the_sandbox_cannot_serve_is_unavailable_at_its_call(sandboxed: bool) -> None:
    ran: list[str] = []

    async def approver(request: ApprovalRequest) -> Decision:
        ran.append("asked")
        return Decision.approve()

    def made(name: str, needs: Sequence[Feature]) -> Tool:
        return Tool(name, {"type": "object"}, lambda context, arguments: ran.append(name), needs=needs, risk="critical")

    sandbox = Sandbox(MemoryDriver()) if sandboxed else None
    async with Session([trivial], sandbox=sandbox, approver=approver) as session:
        session.toolbox.add(made("shell", ["exec", "files"]))
        result = await session.call("shell")
        assert not result.ok
        assert (result.kind, result.retryable, ran) == ("unavailable", False, [])
        assert "shell needs" in result.message
        assert "exec" in result.message
        session.toolbox.replace(made("shell", ["files"] if sandboxed else []))
        assert (await session.call("shell")).ok, "the control"
        assert ran == ["asked", "shell"]


async def test_one_toolbox_serves_many_sessions_and_each_loads_its_own_deferred_tools() -> None:
    shelf = Toolbox([trivial, tool(name="rare", deferred=True, description="Seldom used.")(lambda: 1)])
    one, two = Session(shelf), Session(shelf)
    assert core_of(one).tools.deferred() == {"rare": "Seldom used."}
    core_of(one).tools.load(["rare"])
    assert [schema["name"] for schema in one.schemas("mcp")] == ["rare", "trivial"]
    assert [schema["name"] for schema in two.schemas("mcp")] == ["trivial"]
    assert (core_of(one).tools.deferred(), list(core_of(two).tools.deferred())) == ({}, ["rare"])
    with pytest.raises(HandrailError, match="no tool 'none'"):
        core_of(one).tools.load(["none"])
    shelf.add(tool(name="new")(lambda: 2))
    assert [schema["name"] for schema in two.schemas("mcp")] == ["new", "trivial"]
    async with one, two:
        assert (await two.call("rare")).value == 1  # it is hidden, not forbidden


async def test_a_tool_that_a_provider_refuses_is_left_out_with_one_warning() -> None:
    bad = Tool("bad", {"type": "object", "properties": {"a[b]": {}}}, lambda context, arguments: 1)
    async with Session([trivial, bad]) as session:
        for _ in range(2):
            assert [schema["name"] for schema in session.schemas("anthropic")] == ["trivial"]
        assert [schema["name"] for schema in session.schemas("mcp")] == ["bad", "trivial"]
        warnings = [event.data["message"] for event in session.trace if event.type == "warning"]
        assert (await session.call("bad")).ok
        with pytest.raises(HandrailError, match="no provider 'acme'"):
            session.schemas("acme")
    (warning,) = warnings
    assert "tool bad" in warning
    assert "'a[b]'" in warning
    with pytest.raises(HandrailError, match="tool bad"):
        session.toolbox.schemas("anthropic")
