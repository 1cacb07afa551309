"""References in arguments: filled in before the body, refused before approval, and hiding nothing from the rules."""

import json
from pathlib import Path
from typing import Any

import pytest

from handrail import ApprovalRequest, Context, Decision, Policy, Session, Tool, tool
from handrail.artifacts.store import Artifacts
from handrail.gates.references import MAX_FILLED_IN
from handrail.testing import approve_all

pytestmark = pytest.mark.anyio


@tool
async def length(text: str) -> int:
    """How long it is."""
    assert type(text) is str
    return len(text)


@tool
async def first(data: bytes) -> list[int]:
    """The first bytes."""
    assert type(data) is bytes
    return list(data[:4])


@tool
async def total(numbers: list[int]) -> int:
    """Their sum."""
    return sum(numbers)


@tool
async def nested(files: list[dict[str, str | int]], options: dict[str, list[str]]) -> Any:
    """All of it back."""
    return {"files": files, "options": options}


def ref(kept: Any) -> dict[str, str]:
    return {"$artifact": kept.ref}


async def test_a_reference_is_text_where_the_schema_says_string() -> None:
    async with Session([length]) as session:
        kept = await session.artifacts.put("grün" * 1000)
        assert (await session.call("length", {"text": ref(kept)})).value == 4000
        assert (await session.call("length", json.dumps({"text": kept.to_wire()}))).value == 4000


async def test_a_reference_is_bytes_where_the_schema_says_binary() -> None:
    async with Session([first]) as session:
        kept = await session.artifacts.put(b"\xff\x00\xfe\x01")
        assert (await session.call("first", {"data": ref(kept)})).value == [255, 0, 254, 1]


async def test_a_reference_is_json_where_the_schema_takes_no_string() -> None:
    async with Session([total]) as session:
        kept = await session.artifacts.put(json.dumps(list(range(1000))))
        assert (await session.call("total", {"numbers": ref(kept)})).value == 499_500
        one = await session.artifacts.put("41")
        assert (await session.call("total", {"numbers": [1, ref(one)]})).value == 42


async def test_references_are_filled_in_at_any_depth_and_the_call_itself_is_left_as_it_is() -> None:
    async with Session([nested]) as session:
        kept = await session.artifacts.put("inside")
        arguments = {
            "files": [{"name": "a", "text": ref(kept)}, {"text": ref(kept)}],
            "options": {"x": ["b", ref(kept)]},
        }
        result = await session.call("nested", arguments)
        assert result.value == {
            "files": [{"name": "a", "text": "inside"}, {"text": "inside"}],
            "options": {"x": ["b", "inside"]},
        }
        assert arguments["files"][1] == {"text": ref(kept)}
        started = next(event for event in session.trace if event.type == "call_started")
        assert "inside" not in json.dumps(started.data)


async def test_a_hand_written_tool_gets_bytes_where_its_schema_says_nothing() -> None:
    seen: list[Any] = []
    body = Tool(
        "any", {"type": "object", "properties": {"x": {}}}, lambda context, arguments: seen.append(arguments["x"])
    )
    async with Session([body]) as session:
        for kept in (
            await session.artifacts.put(b"\0"),
            await session.artifacts.put("text"),
            await session.artifacts.put("[1]", media_type="application/json"),
        ):
            assert (await session.call("any", {"x": ref(kept)})).ok
    assert seen == [b"\0", "text", [1]]


async def test_an_unknown_reference_is_refused_before_anybody_is_asked() -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision.approve()

    async with Session([length], policy=Policy(ask=["length"]), approver=approver) as session:
        result = await session.call("length", {"text": {"$artifact": "a_" + "0" * 32}})
        assert not result.ok
        assert (result.kind, result.field, asked) == ("invalid_args", "text", [])
        kept = await session.artifacts.put("abc")
        assert (await session.call("length", {"text": ref(kept)})).value == 3, "the control: a known one is asked about"
        assert len(asked) == 1


async def test_an_incomplete_artifact_is_refused_before_anybody_is_asked() -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision.approve()

    async with Session([length, nested], policy=Policy(ask=["*"]), approver=approver) as session:
        cut = await session.artifacts.put("head tail", incomplete=True)
        for name, arguments, field in (
            ("length", {"text": ref(cut)}, "text"),
            ("length", {"text": cut.to_wire()}, "text"),
            ("nested", {"files": [], "options": {"x": ["a", ref(cut)]}}, "options.x[1]"),
        ):
            result = await session.call(name, arguments)
            assert (result.ok, result.kind, result.field, asked) == (False, "invalid_args", field, [])
            assert "incomplete" in result.message
            assert "smaller parts" in result.message
        whole = await session.artifacts.put("head and tail")
        assert (await session.call("length", {"text": ref(whole)})).value == 13, "the control"


async def test_an_artifact_that_becomes_incomplete_while_somebody_is_asked_is_refused() -> None:
    with Artifacts() as store:
        scope = store.scope("s")
        kept = await scope.put("abc")

        async def approver(request: ApprovalRequest) -> Decision:
            await scope.put("abc", incomplete=True)
            return Decision.approve()

        async with Session([length], policy=Policy(ask=["length"]), approver=approver, artifacts=scope) as session:
            result = await session.call("length", {"text": ref(kept)})
    assert (result.ok, result.kind, result.field) == (False, "invalid_args", "text")
    assert "incomplete" in result.message


async def test_a_reference_that_vanishes_while_somebody_is_asked_fails_closed() -> None:
    ran: list[str] = []

    @tool
    async def use(text: str) -> str:
        ran.append(text)
        return text

    with Artifacts() as store:
        scope = store.scope("s")
        kept = await scope.put("abc")

        async def approver(request: ApprovalRequest) -> Decision:
            scope.pin(kept)
            scope.unpin(kept)
            return Decision.approve()

        async with Session([use], policy=Policy(ask=["use"]), approver=approver, artifacts=scope) as session:
            result = await session.call("use", {"text": ref(kept)})
    assert not result.ok
    assert (result.kind, result.field, ran) == ("invalid_args", "text", [])


async def test_what_is_filled_in_is_held_to_the_schema_again() -> None:
    ran: list[Any] = []

    @tool
    async def use(word: str, choice: str = "a") -> None:
        ran.append(word)

    short = Tool(
        "short",
        {"type": "object", "properties": {"word": {"type": "string", "maxLength": 3}}, "required": ["word"]},
        lambda context, arguments: ran.append(arguments["word"]),
    )
    async with Session([use, short, total]) as session:
        long, good = await session.artifacts.put("abcd"), await session.artifacts.put("abc")
        refused = await session.call("short", {"word": ref(long)})
        assert not refused.ok
        assert (refused.kind, refused.field, ran) == ("invalid_args", "word", [])
        assert (await session.call("short", {"word": ref(good)})).ok
        assert ran == ["abc"]
        for content, field in ((b"\xff\xfe", "word"),):
            kept = await session.artifacts.put(content)
            refused = await session.call("use", {"word": ref(kept)})
            assert not refused.ok
            assert (refused.kind, refused.field) == ("invalid_args", field)
            assert "UTF-8" in refused.message
        for content in ("not json", '["x"]', '{"a": 1, "a": 2}'):
            kept = await session.artifacts.put(content)
            refused = await session.call("total", {"numbers": ref(kept)})
            assert not refused.ok
            assert refused.kind == "invalid_args"


@tool(effects=["executes"])
async def bash(command: str) -> str:
    """Say what would run."""
    return command


@tool(effects=["reaches_out"])
async def mail(to: str) -> str:
    """Say whom it would go to."""
    return to


async def test_a_denied_command_does_not_slip_through_behind_a_reference() -> None:
    policy = Policy(deny=["bash(rm *)", "mail(*@evil.example)"], mode="open")
    async with Session([bash, mail], policy=policy, approver=approve_all) as session:
        for name, field, bad, good in (
            ("bash", "command", "rm -rf build", "ls build"),
            ("mail", "to", "x@evil.example", "x@good.example"),
        ):
            hidden, fine = await session.artifacts.put(bad), await session.artifacts.put(good)
            refused = await session.call(name, {field: ref(hidden)})
            assert not refused.ok
            assert (refused.kind, "filled in" in refused.message) == ("rejected", True)
            assert (await session.call(name, {field: ref(fine)})).value == good


async def test_what_must_be_asked_about_is_not_run_behind_a_reference_where_nobody_can_be_asked() -> None:
    async with Session([mail], policy=Policy(ask=["mail(*@example.org)"], mode="open")) as session:
        kept = await session.artifacts.put("x@example.org")
        refused = await session.call("mail", {"to": ref(kept)})
        assert not refused.ok
        assert refused.kind == "rejected"
        assert (await session.call("mail", {"to": "x@good.example"})).ok, "the control: the rule means others"


async def test_edited_arguments_may_hold_a_reference_too() -> None:
    async with Session([length], policy=Policy(ask=["length"]), approver=None) as plain:
        assert not (await plain.call("length", {"text": "x"})).ok
    with Artifacts() as store:
        scope = store.scope("s")
        kept = await scope.put("abcdef")

        async def approver(request: ApprovalRequest) -> Decision:
            return Decision.edit({"text": ref(kept)}) if request.arguments["text"] == "x" else Decision.approve()

        async with Session([length], policy=Policy(ask=["length"]), approver=approver, artifacts=scope) as session:
            assert (await session.call("length", {"text": "x"})).value == 6


@pytest.mark.long
async def test_too_much_at_once_is_refused_and_not_read(tmp_path: Path) -> None:
    async with Session([length]) as session:
        for size, accepted in ((MAX_FILLED_IN, True), (MAX_FILLED_IN + 1, False)):
            with (tmp_path / "large").open("wb") as file:
                file.truncate(size)
            kept = await session.artifacts.put_file(tmp_path / "large")
            assert (await session.call("length", {"text": ref(kept)})).ok is accepted


async def test_a_tool_without_references_is_untouched() -> None:
    @tool
    async def keep(value: dict[str, str], context: Context) -> Any:
        return value

    async with Session([keep]) as session:
        value = {"$artifact_like": "a_x", "x": "$artifact"}
        assert (await session.call("keep", {"value": value})).value == value
