"""How tests ask a model, and what a provider would say about a request: whether its calls and results are in order."""

import json
from contextlib import aclosing
from itertools import pairwise
from typing import Any

from handrail import Call, Image, Message, Turn
from handrail.contract.model import Model, ModelEvent
from handrail.contract.result import Result
from handrail.models import open_model
from tests.models.wire import Wire

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c62600100000005"
    "0001a5f645400000000049454e44ae426082"
)
PICTURE = Image(PNG)
KEY = "sk-of-nobody-0123456789"
NAMES = {
    "anthropic": "anthropic:claude-opus-5",
    "openai": "openai:gpt-5",
    "openai-chat": "openai-chat:gpt-5",
    "google": "google:gemini-3-pro-preview",
    "ollama": "ollama:qwen3",
}
PROVIDERS = tuple(NAMES)
LOOK = {
    "name": "look",
    "description": "Look at a file.",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
}


def model_at(wire: Wire, provider: str, *, by_name: bool = True, **options: Any) -> Model:
    """The provider's model, at the address of a test's server, which is part of its name or an option."""
    address = wire.url + ("/v1" if provider in ("openai", "openai-chat") else "")
    given = {"api_key": KEY, **options} | ({} if by_name else {"base_url": address})
    return open_model(f"{NAMES[provider]}@{address}" if by_name else NAMES[provider], **given)


async def everything(model: Model, *messages: Message, system: str = "Be brief.") -> list[ModelEvent]:
    got = []
    async with aclosing(model.ask(messages, [LOOK], system=system)) as answer:  # type: ignore[type-var]
        async for event in answer:
            got.append(event)
    return got


async def ask(model: Model, *messages: Message, system: str = "Be brief.") -> Turn:
    *pieces, turn = await everything(model, *messages, system=system)
    assert isinstance(turn, Turn)
    assert not any(isinstance(piece, Turn) for piece in pieces)
    return turn


def answered(turn: Turn, *results: Result, ids: tuple[str, ...] = ()) -> tuple[Message, Message]:
    """The answer and the results of its calls, as they come back from a store: through JSON, under other ids."""
    keep = json.loads(json.dumps(turn.keep))
    calls = tuple(
        Call(id, call.name, call.arguments)
        for id, call in zip(ids or [f"call-{n}" for n in range(1, 99)], turn.calls, strict=False)
    )
    return Message("assistant", turn.text, calls, keep=keep), Message("tool", results=results)


def called_and_answered(provider: str, body: Any) -> tuple[list[str], list[str]]:
    """The ids of a request's calls, and of its results. Raises AssertionError for what a provider would reject."""
    return {"anthropic": _anthropic, "openai": _responses, "google": _google}.get(provider, _chat)(body)


def _anthropic(body: Any) -> tuple[list[str], list[str]]:
    calls: list[str] = []
    results: list[str] = []
    open_calls: list[str] = []
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "user"
    assert ("assistant", "assistant") not in pairwise(roles)
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        assert message["content"]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if message["role"] == "user":
            assert answers == open_calls, "every call is answered in the next message, in order"
            assert [block["type"] for block in blocks][: len(answers)] == ["tool_result"] * len(answers)
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        thinking = [number for number, block in enumerate(blocks) if "thinking" in block["type"]]
        assert thinking == list(range(len(thinking))), "thinking comes first"
        assert all(block["signature"] for block in blocks if block["type"] == "thinking")
        calls += open_calls
        results += answers
    assert not open_calls
    return calls, results


def _chat(body: Any) -> tuple[list[str], list[str]]:
    calls: list[str] = []
    results: list[str] = []
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert isinstance(message["content"], str), "a result is text"
            results.append(message["tool_call_id"])
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "results come before any other message"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert message["content"] or waiting
        calls += waiting
        waiting = list(waiting)
    assert not waiting
    return calls, results


def _responses(body: Any) -> tuple[list[str], list[str]]:
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    results = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    return calls, results


def _google(body: Any) -> tuple[list[str], list[str]]:
    calls: list[str] = []
    results: list[str] = []
    waiting = 0
    assert body["contents"][0]["role"] == "user"
    for content in body["contents"]:
        assert content["parts"]
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert len(answers) == waiting, "every call is answered in the next content"
        assert not answers or len(answers) == len(content["parts"])
        asked = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        waiting = len(asked)
        calls += [part["id"] for part in asked]
        results += [part["id"] for part in answers]
    assert not waiting
    return calls, results
