"""Deferred and hosted tools go to the model that knows them, in its own form, and to no other."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handrail import Message, Success, Turn
from handrail.contract.model import ModelEvent
from handrail.models import open_model
from handrail.models.text import TextCalls
from handrail.testing import ScriptedModel
from tests.models.asking import KEY, LOOK, NAMES, PROVIDERS, answered, called_and_answered
from tests.models.shapes import END, SHAPES
from tests.models.wire import Wire, always, serving, stream

pytestmark = pytest.mark.anyio
DEEP = {
    "name": "dig",
    "description": "Dig.",
    "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    "_meta": {"handrail/deferred": True},
}
DEFINITIONS = {
    "anthropic": {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    "openai-responses": {"type": "web_search", "search_context_size": "low"},
    "openai": {"type": "custom", "custom": {"name": "web"}},
    "gemini": {"googleSearch": {}},
}
WEB = {
    "name": "web_search",
    "description": "Search the web.",
    "inputSchema": {"type": "object"},
    "_meta": {"handrail/hosted": DEFINITIONS},
}
KINDS = {"openai": "openai-responses", "google": "gemini", "anthropic": "anthropic"}

DEFER = {"anthropic": "anthropic:claude-opus-5", "openai": "openai:gpt-5.4"}


def at(wire: Wire, name: str) -> Any:
    version = "/v1" if name.startswith("openai") else ""
    return open_model(f"{name}@{wire.url}{version}", api_key=KEY)


async def tools_sent(provider: str, name: str, *tools: Any) -> list[Any]:
    whole = SHAPES[provider](text="Hello.")
    with serving(always(stream(*whole, end=END.get(provider, "data: [DONE]\n\n")))) as wire:
        async for _ in at(wire, name).ask([Message("user", "hello")], tools, system=""):
            pass
        [seen] = wire.seen
    assert int(seen.headers["content-length"]) == len(seen.raw)
    return list(seen.body.get("tools", ()))


def names(sent: list[Any]) -> list[str]:
    """Of function tools, in any provider's form."""
    flat = [each for tool in sent for each in tool.get("functionDeclarations", [tool])]
    return [str((each.get("function") or each)["name"]) for each in flat]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_hosted_tool_is_sent_as_its_provider_defines_it(provider: str) -> None:
    sent = await tools_sent(provider, NAMES[provider], LOOK, WEB)
    assert names(sent[:1]) == ["look"]
    assert sent[1:] == [DEFINITIONS[KINDS.get(provider, "openai")]]
    assert await tools_sent(provider, NAMES[provider], WEB) == sent[1:], "also without any other"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_tool_that_another_provider_hosts_is_left_out(provider: str) -> None:
    other = {**WEB, "_meta": {"handrail/hosted": {"somebody": {"type": "x"}}}}
    assert names(await tools_sent(provider, NAMES[provider], LOOK, other)) == ["look"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_deferred_tool_is_left_out_where_the_model_cannot_search_for_it(provider: str) -> None:
    name = {"anthropic": "anthropic:claude-opus-4-1"}.get(provider, NAMES[provider])
    assert names(await tools_sent(provider, name, LOOK, DEEP)) == ["look"]
    loaded = {**DEEP, "_meta": {"handrail/deferred": False}}
    assert names(await tools_sent(provider, name, LOOK, loaded)) == ["look", "dig"]


@pytest.mark.parametrize("provider", DEFER)
async def test_a_deferred_tool_is_sent_with_the_provider_s_own_search(provider: str) -> None:
    sent = await tools_sent(provider, DEFER[provider], LOOK, DEEP)
    by_name = {tool.get("name"): tool for tool in sent}
    assert by_name["dig"]["defer_loading"] is True
    assert "defer_loading" not in by_name["look"]
    [search] = [tool for tool in sent if "tool_search" in tool.get("type", "")]
    assert not search.get("defer_loading")


async def test_what_the_provider_searched_goes_back_and_a_tool_that_it_found_is_called() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {}}
    reference = {"type": "tool_search_tool_search_result", "tool_references": [
        {"type": "tool_reference", "tool_name": "dig"}
    ]}  # fmt: skip
    result = {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": reference}
    call = {"type": "tool_use", "id": "toolu_1", "name": "dig", "input": {}}
    written = {"type": "input_json_delta", "partial_json": '{"query": "dig"}'}
    whole = SHAPES["anthropic"](text="Hello.", finish="tool_use")
    blocks: list[Any] = []
    for index, (block, delta) in enumerate([(use, written), (result, None), (call, None)]):
        blocks.append({"type": "content_block_start", "index": index, "content_block": block})
        blocks += [{"type": "content_block_delta", "index": index, "delta": delta}] if delta else []
        blocks.append({"type": "content_block_stop", "index": index})
    with serving(always(stream(whole[0], *blocks, *whole[-2:], end=""))) as wire:
        model = at(wire, DEFER["anthropic"])
        [turn] = [event async for event in model.ask([Message("user", "x")], [LOOK, DEEP], system="")][-1:]
        assert [(each.name, each.arguments) for each in turn.calls] == [("dig", "{}")]
        talk = [Message("user", "x"), *answered(turn, Success("dug"))]
        async for _ in model.ask(talk, [LOOK, DEEP], system=""):
            pass
    body = wire.seen[1].body
    assert called_and_answered("anthropic", body) == (["call-1"], ["call-1"])
    assert "srvtoolu_1" in json.dumps(body)


async def test_models_that_know_neither_leave_both_out() -> None:
    asked: list[str] = []

    class Hears(ScriptedModel):
        async def ask(self, messages: Any, tools: Any, *, system: str = "") -> AsyncIterator[ModelEvent]:
            asked.append(system)
            async for event in super().ask(messages, tools, system=system):
                yield event

    written = Hears(['<tool_call>{"name": "dig", "arguments": {}}</tool_call>'])
    [turn] = [event async for event in TextCalls(written).ask([Message("user", "x")], [LOOK, DEEP, WEB])][-1:]
    assert '"look"' in asked[0]
    assert "dig" not in asked[0]
    assert "web_search" not in asked[0]
    assert isinstance(turn, Turn)
    assert not turn.calls
    lines = iter(["dig", "bye"])
    shown: list[str] = []
    person = open_model("person", ask_line=lambda text: (shown.append(text), next(lines))[1])
    [turn] = [event async for event in person.ask([Message("user", "x")], [LOOK, DEEP, WEB], system="")]
    assert "dig" not in shown[0]
    assert turn.text == "dig"  # type: ignore[union-attr]
