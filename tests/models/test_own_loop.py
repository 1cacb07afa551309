"""The agents in the README and the guide, on OpenAI's and Anthropic's SDKs, against a server that is not ours."""

import json
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from handrail import Image, Session, tool
from handrail.adapters import answers_for, calls_from
from tests.models.asking import KEY, PNG
from tests.models.wire import Wire
from tests.test_readme import block

pytestmark = pytest.mark.anyio
ANTHROPIC = ("from anthropic", "docs/framework.md")
MODEL = "claude-opus-5"


@tool
def look(path: str) -> list[Any]:
    """Look at a file."""
    return [path, Image(PNG)] if path == "a.txt" else [path]


def pasted(beginning: str, page: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(compile(block(beginning, page), page, "exec"), scope)
    return scope


def notes(directory: Path) -> str:
    """A workspace with one file."""
    (directory / "notes.txt").write_text("milk\nbread\n")
    return str(directory)


def check(results: list[dict[str, Any]]) -> None:
    """The built-in tools have answered in the jail: what the file contains, and what the command printed."""
    assert [(each["ok"], each["tool"]) for each in results] == [(True, "read"), (True, "bash")]
    assert "milk" in results[0]["result"]["text"]
    assert "bread" in results[0]["result"]["text"]
    assert (results[1]["result"]["stdout"], results[1]["result"]["exit_code"]) == ("2\n", 0)


async def test_the_openai_agent_of_the_readme_works_in_a_jail_and_answers(wire: Wire, tmp_path: Path) -> None:
    async with AsyncOpenAI(api_key=KEY, base_url=f"{wire.url}/v1") as client:
        text = await pasted("from typing", "README.md")["openai_agent"](
            client, "gpt-5", "what is in notes.txt", notes(tmp_path)
        )
    assert text == "It was read."
    asked, *answers = wire.seen[1].body["messages"][1:]
    assert [call["id"] for call in asked["tool_calls"]] == [answer["tool_call_id"] for answer in answers]
    check([json.loads(answer["content"]) for answer in answers])
    assert "bash" in [each["function"]["name"] for each in wire.seen[0].body["tools"]]


async def test_the_anthropic_agent_of_the_guide_works_in_a_jail_and_answers(wire: Wire, tmp_path: Path) -> None:
    async with AsyncAnthropic(api_key=KEY, base_url=wire.url) as client:
        text = await pasted(*ANTHROPIC)["anthropic_agent"](client, MODEL, "what is in notes.txt", notes(tmp_path))
    assert text == "It was read."
    asked, answer = wire.seen[1].body["messages"][1:]
    uses = [each["id"] for each in asked["content"] if each["type"] == "tool_use"]
    assert uses == [each["tool_use_id"] for each in answer["content"]]
    assert not any(each.get("is_error") for each in answer["content"])
    check([json.loads(each["content"][0]["text"]) for each in answer["content"]])


async def test_the_anthropic_agent_of_the_guide_goes_on_after_failures(wire: Wire, tmp_path: Path) -> None:
    async with AsyncAnthropic(api_key=KEY, base_url=wire.url) as client:
        text = await pasted(*ANTHROPIC)["anthropic_agent"](client, MODEL, "two files", str(tmp_path))
    assert text == "Both were seen."
    answer = wire.seen[1].body["messages"][2]
    assert [each["is_error"] for each in answer["content"]] == [True, True]
    kinds = [json.loads(each["content"][0]["text"])["kind"] for each in answer["content"]]
    assert kinds == ["tool_not_found"] * 2


async def test_the_responses_api_takes_results_and_their_pictures(wire: Wire) -> None:
    items: list[Any] = [{"role": "user", "content": "two files"}]
    async with AsyncOpenAI(api_key=KEY, base_url=f"{wire.url}/v1") as client, Session([look]) as session:
        tools: Any = session.schemas("openai-responses")
        response = await client.responses.create(model="gpt-5", input=items, tools=tools)
        items += response.output
        calls = calls_from("openai-responses", response)
        assert [(call.name, json.loads(str(call.arguments)), call.cut) for call in calls] == [
            ("look", {"path": "a.txt"}, False),
            ("look", {"path": "b.txt"}, False),
        ]
        items += answers_for("openai-responses", calls, await session.call_all(calls))
        response = await client.responses.create(model="gpt-5", input=items, tools=tools)
    assert response.output_text == "Both were seen."
    outputs = [each for each in wire.seen[1].body["input"] if each.get("type") == "function_call_output"]
    assert [part["type"] for part in outputs[0]["output"]] == ["input_text", "input_image"]
    assert isinstance(outputs[1]["output"], str)
