"""A repair that changed a value on a tool with effects is a guess: a person sees it, or it bounces."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from handrail import Decision, Policy, Session, tool
from handrail.contract.approval import Effect
from handrail.toolkit.tool import Tool
from tests.gates.asked import saying

pytestmark = pytest.mark.anyio
MODES = ("contained", "ask", "strict", "open")


def a_tool(effects: list[Effect]) -> tuple[Tool, list[Any]]:
    ran: list[Any] = []

    @tool(effects=effects, name="keep")
    async def keep(
        path: str,
        paths: list[str] | None = None,
        amount: int = 0,
        label: str = "",
        dry: bool = False,
        colour: Annotated[str, Field(json_schema_extra={"consequential": False})] = "",
        rows: list[dict[str, int]] | None = None,
    ) -> None:
        ran.append((path, paths, amount, label, dry, colour, rows))

    return keep, ran


GUESSES = [
    ('{"path": 123}', "path"),
    ('{"path": ["only"]}', "path"),
    ('{"path": "x", "paths": "one"}', "paths"),
    ("{'path': 'x \"y\"'}", "path"),
    ("{'path': 'it is \"x\"'}", "path"),
    ('{"path": "x", "label": 7}', "label"),
    ('{"path": "x", "rows": {"a": 1}}', "rows"),
]
NO_GUESSES = [
    '```json\n{"path": "x"}\n```',
    '{"path": "x",}',
    '{"Path": "x"}',
    '{"path": "x", "amount": "15"}',
    '{"path": "x", "colour": 7}',
    '{"path": "x", "dry": "yes"}',
    "{'path': 'x', 'dry': True}",
    '{"path": "x", "dry": True}',
    '{"path": "x", "paths": None}',
    '{"path": "x"}',
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("sent", "field"), GUESSES)
async def test_a_guess_is_asked_about_showing_the_difference(mode: Any, sent: str, field: str) -> None:
    for answer, runs in ((Decision.approve(), True), (Decision.deny(), False)):
        keep, ran = a_tool(["writes"])
        person = saying(answer)
        async with Session([keep], policy=Policy(mode=mode, allow=["keep"]), approver=person) as session:
            result = await session.call("keep", sent)
        if mode == "open":
            assert person.asked == []
            assert not result.ok
            assert (result.kind, result.field) == ("invalid_args", field)
            assert ran == []
        else:
            (request,) = person.asked
            assert "changed what they mean" in request.reason
            assert any(field in repair and "became" in repair for repair in request.repairs)
            assert len(ran) == int(runs)


@pytest.mark.parametrize(("sent", "field"), GUESSES)
async def test_a_guess_bounces_where_nobody_can_be_asked(sent: str, field: str) -> None:
    keep, ran = a_tool(["executes"])
    async with Session([keep], policy=Policy(allow=["keep"])) as session:
        result = await session.call("keep", sent)
        assert (await session.call("keep", '{"path": "x"}')).ok  # the control
    assert not result.ok
    assert (result.kind, result.field) == ("invalid_args", field)
    assert "exactly as you mean" in result.message
    assert result.data is not None
    assert result.data["arguments"] == sent
    assert len(ran) == 1


@pytest.mark.parametrize("sent", NO_GUESSES)
async def test_what_is_no_guess_or_does_not_matter_runs(sent: str) -> None:
    keep, ran = a_tool(["writes"])
    async with Session([keep], policy=Policy(mode="open")) as session:
        assert (await session.call("keep", sent)).ok
    assert len(ran) == 1


@pytest.mark.parametrize(("sent", "field"), GUESSES)
async def test_a_tool_that_only_reads_runs_on_a_guess(sent: str, field: str) -> None:
    for effects in ([], ["reads"]):
        keep, ran = a_tool(effects)  # type: ignore[arg-type]
        async with Session([keep]) as session:
            assert (await session.call("keep", sent)).ok
        assert len(ran) == 1


async def test_a_denied_guess_is_denied_and_an_edit_that_had_to_be_guessed_at_is_shown_again() -> None:
    keep, ran = a_tool(["writes"])
    async with Session([keep], policy=Policy(deny=["keep"])) as session:
        assert "forbids" in getattr(await session.call("keep", '{"path": 123}'), "message", "")
    person = saying(Decision.edit({"path": 456}), Decision.approve())
    async with Session([keep], policy=Policy(allow=["keep"]), approver=person) as session:
        assert (await session.call("keep", '{"path": 123}')).ok
    assert [dict(request.arguments)["path"] for request in person.asked] == ["123", "456"]
    assert "456 became '456'" in person.asked[1].repairs[0]
    assert [each[0] for each in ran] == ["456"]
