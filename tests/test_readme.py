"""The README's code is as short as it says, runs as it stands, and works with the real SDK of a provider."""

import ast
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from handrail import Call, Session, builtin_tools, open_sandbox
from tests.test_house import blocks, read

TITLES = [
    "Install",
    "Ten lines",
    "What is guaranteed, and where",
    "Inside your framework",
    "What does not hold",
    "How the calls of one turn are ordered",
    "The demo",
]


def block(beginning: str) -> str:
    """The one program of the README that begins like this."""
    (found,) = [text for text in blocks("README.md", "python") if text.startswith(beginning)]
    return found


def test_a_newcomer_reads_what_it_is_then_how_to_install_it_and_the_transcript_last() -> None:
    text = read("README.md")
    found = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert found[: len(TITLES)] == TITLES
    assert "keep\nit, and replace the layer that touches the world" in text.partition("\n## ")[0]


def test_ten_lines_are_ten() -> None:
    lines = [line for line in block("from handrail").splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) == 10


def test_seven_lines_are_seven_and_stand_on_one_line_each() -> None:
    (function,) = [node for node in ast.parse(block("import json")).body if isinstance(node, ast.AsyncFunctionDef)]
    body = function.body[1:]  # without the docstring
    assert [node.end_lineno == node.lineno for node in body] == [True] * 7


# Inside a framework: the real SDK, with answers that were recorded

CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": "41"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": '{"a": "many"}'}},
    {"id": "call_3", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
]


def completion(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "recorded", "choices": [choice]}


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.anyio
async def test_seven_lines_carry_a_turn_of_the_openai_sdk() -> None:
    scope: dict[str, Any] = {}
    exec(compile(block("import json"), "README.md", "exec"), scope)
    turn: Callable[..., Awaitable[str | None]] = scope["turn"]
    answers = [
        completion({"content": None, "tool_calls": CALLS}, "tool_calls"),
        completion({"content": "It is 42."}, "stop"),
    ]
    sent: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=answers.pop(0))

    messages: list[Any] = [{"role": "user", "content": "What is 41 + 1?"}]
    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with AsyncOpenAI(api_key="recorded", http_client=transport) as client, Session([add]) as session:
        assert await turn(client, "recorded", session, messages) is None
        assert await turn(client, "recorded", session, messages) == "It is 42."

    assert [tool["function"]["name"] for tool in sent[0]["tools"]] == ["add"]
    asked, *answered = sent[1]["messages"][1:]
    assert asked["tool_calls"] == CALLS, "the model's own message goes back unchanged"
    assert [(it["role"], it["tool_call_id"]) for it in answered] == [("tool", it["id"]) for it in CALLS]
    envelopes = [json.loads(it["content"]) for it in answered]
    assert [(it["ok"], it.get("kind"), it.get("result")) for it in envelopes] == [
        (True, None, 42), (False, "invalid_args", None), (False, "tool_not_found", None),
    ]  # fmt: skip


# The order of one turn


@pytest.mark.anyio
async def test_a_turn_of_built_in_calls_is_run_in_the_order_that_the_readme_says() -> None:
    calls = [
        Call("1", "bash", {"command": "sleep 0.3; echo one > notes"}),
        Call("2", "read", {"path": "notes"}),
        Call("3", "write", {"path": "nowhere"}),
        Call("4", "bash", {"command": "exit 3"}),
        Call("5", "bash", {"command": "sleep 0.3; echo two > notes"}),
        Call("6", "read", {"path": "notes"}),
        Call("7", "read", {"path": "notes"}),
    ]
    async with open_sandbox() as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        results = await session.call_all(calls)
    assert results[2].kind == "invalid_args"
    assert results[3].value["exit_code"] == 3
    assert [results[number].value["text"] for number in (1, 5, 6)] == ["one\n", "two\n", "two\n"]
