"""Function tools of other frameworks run through the gates; those that need the framework's run are refused by name."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from pydantic_ai import BinaryContent, ModelRetry, RunContext, ToolReturn
from pydantic_ai import Tool as TheirTool

from handrail import HandrailError, Image, Session, Tool, tool
from handrail.adapters import tools_from
from handrail.testing import deny_all
from tests.installing import ROOT, must, wheel, with_extras  # noqa: F401 - a fixture


class Place(BaseModel):
    city: str

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("nobody has found it")
        return city


async def weather(place: Place, days: int = 1) -> str:
    """Tell the weather.

    Args:
        place: where
        days: how many days
    """
    return f"{place.city}: {days}"


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


def picture() -> Any:
    """Draw."""
    return ToolReturn(return_value=["drawn", BinaryContent(b"png", media_type="image/png")])


def retries() -> str:
    """Give up."""
    raise ModelRetry("ask for something else")


def needs_run(ctx: RunContext[None], word: str) -> str:
    """Needs the run."""
    return word


@pytest.mark.anyio
async def test_tools_of_pydantic_ai_run_through_the_gates() -> None:
    theirs = [TheirTool(each) for each in (weather, add, picture, retries)]
    ours = tools_from([*theirs, TheirTool(add, name="asks", requires_approval=True)])
    assert [each.name for each in ours] == ["weather", "add", "picture", "retries", "asks"]
    async with Session(ours, approver=deny_all) as session:
        assert (await session.call("weather", '{"place": {"city": "Oslo"}, "days": "2"}')).value == "Oslo: 2"
        lost = await session.call("weather", '{"place": {"city": "Atlantis"}}')
        assert (lost.kind, "nobody has found it" in lost.message) == ("invalid_args", True)
        assert (await session.call("add", '{"a": "41"}')).value == 42
        assert (await session.call("add", '{"a": "many"}')).kind == "invalid_args"
        assert (await session.call("picture")).value == ["drawn", Image(b"png")]
        told = await session.call("retries")
        assert (told.kind, told.message) == ("execution_error", "ask for something else")
        assert (await session.call("asks", '{"a": 1}')).kind == "user_denied"
        described = session.schemas("openai")[-1]["function"]
        assert described["parameters"]["properties"]["days"]["description"] == "how many days"


def test_a_tool_that_needs_the_run_context_is_refused_by_name() -> None:
    with pytest.raises(HandrailError, match="tool needs_run needs the RunContext of pydantic-ai"):
        tools_from([TheirTool(add), TheirTool(needs_run)])


def test_other_tools_are_taken_as_a_session_takes_them() -> None:
    made = tools_from([add, tool(picture), TheirTool(add, name="plus")])
    assert [type(each) for each in made] == [Tool, Tool, Tool]
    for wrong in (7, {"add": add}, "add", [7]):
        with pytest.raises(HandrailError):
            tools_from(wrong)  # type: ignore[arg-type]


@pytest.mark.long
def test_tools_of_langchain_and_openai_agents_run_through_the_gates(wheel: Path, tmp_path: Path) -> None:  # noqa: F811
    python = with_extras(wheel, tmp_path / "both", "langchain,openai-agents")
    assert "all of it holds" in must(python, "-m", "tests.adapters.foreign", cwd=ROOT)
