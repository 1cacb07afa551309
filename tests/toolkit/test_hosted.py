"""Tools that a provider runs itself stand beside local ones, and nobody else calls them."""

from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, HandrailError, HostedTool, Policy, Session, Toolbox, builtin_tools, open_sandbox, tool
from handrail.testing import ScriptedModel, Turn

pytestmark = pytest.mark.anyio

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
GOOGLE = {"google_search": {}}


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def box() -> Toolbox:
    return Toolbox([HostedTool("web_search", {"anthropic": SEARCH, "gemini": GOOGLE}), add])


def test_each_provider_is_offered_it_in_its_own_words_and_others_are_not() -> None:
    assert box().schemas("anthropic")[1] == SEARCH
    assert box().schemas("gemini")[1] == GOOGLE
    for provider in ("openai", "openai-responses", "mcp"):
        assert len(box().schemas(provider)) == 1, provider
    assert box().names() == ["add", "web_search"]
    assert box().schema_for("web_search", "anthropic") == SEARCH
    with pytest.raises(HandrailError, match="web_search is run by the provider itself, and openai has no definition"):
        box().schema_for("web_search", "openai")


async def test_a_session_offers_it_and_refuses_to_call_it() -> None:
    async with Session(box(), policy=Policy(mode="strict")) as session:
        assert session.schemas("anthropic")[1] == SEARCH
        assert len(session.schemas("mcp")) == 1
        for origin in ("model", "user"):
            result = await session.call("web_search", {"query": "x"}, origin=origin)  # type: ignore[arg-type]
            assert not result.ok
            assert result.kind == "rejected"
            assert (
                result.message
                == "web_search is run by the model's provider itself, and cannot be called here. Use another tool."
            )
        assert not [event for event in session.trace if event.type == "approval_asked"]


async def test_a_script_cannot_call_it_either(tmp_path: Path) -> None:
    tools = [*builtin_tools("all"), *box()]
    async with (
        open_sandbox("jail", workspace=str(tmp_path)) as sandbox,
        Session(tools, sandbox=sandbox, policy=Policy(mode="open")) as session,
    ):
        result = await session.call("script", {"code": "tools.add(a=1, b=2)\ntools.web_search(query='x')"})
        assert not result.ok
        assert "line 2: web_search is run by the model's provider itself" in result.message
        hidden = await session.call("script", {"code": "getattr(tools, 'web_search')(query='x')"})
        assert "web_search is run by the model's provider itself" in hidden.message
        assert "web_search" not in str(session.toolbox.schema_for("script")["description"])


async def test_a_model_is_given_the_definitions_for_all_providers() -> None:
    given: list[Any] = []

    class Model(ScriptedModel):
        def ask(self, messages: Any, tools: Any, *, system: str = "") -> Any:
            given.append(tools)
            return super().ask(messages, tools, system=system)

    async with Agent(Model([Turn("done")]), tools=box()) as agent:
        await agent.run("go")
    assert [each["_meta"]["handrail/hosted"] for each in given[0] if "_meta" in each] == [
        {"anthropic": SEARCH, "gemini": GOOGLE}
    ]


@pytest.mark.parametrize(
    ("definitions", "said"),
    [
        ({}, "definitions"),
        ({"antropic": SEARCH}, "did you mean 'anthropic'"),
        ({"gemini": 5}, "gemini"),
        (5, "definitions"),
    ],
)
def test_wrong_definitions_are_refused_where_they_are_written(definitions: Any, said: str) -> None:
    with pytest.raises(HandrailError, match=said):
        HostedTool("web_search", definitions)
