"""Calls are read from each provider's answers, and results written as it takes them, by the types of its own SDK."""

import json
from typing import Any

import pytest
from anthropic.types import Message, MessageParam
from google.genai.types import Content, GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.responses import Response, ResponseInputItemParam
from pydantic import TypeAdapter

from handrail import Call, Failure, HandrailError, Image, Result, Session, Success, tool
from handrail.adapters import answers_for, calls_from

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c62600100000005"
    "0001a5f645400000000049454e44ae426082"
)
ARGUMENTS = '{"path": "a", "deep": {"n": 1}}'
PROVIDERS = ("openai", "openai-responses", "anthropic", "gemini")
SDK: dict[str, Any] = {
    "openai": ChatCompletion,
    "openai-responses": Response,
    "anthropic": Message,
    "gemini": GenerateContentResponse,
}


def answer(provider: str, reason: str | None = None) -> dict[str, Any]:
    """An answer with a text and two calls, as the provider's server sends it; it ended for this reason."""
    if provider == "openai":
        calls = [
            {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}} for n in "12"
        ]
        message = {"role": "assistant", "content": "I look.", "tool_calls": calls}
        choice = {"index": 0, "finish_reason": reason or "tool_calls", "message": message}
        return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    if provider == "openai-responses":
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}
        calls = [{"type": "function_call", "call_id": f"c{n}", "name": "look", "arguments": ARGUMENTS} for n in "12"]
        head = {"id": "x", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True}
        rest = {"tool_choice": "auto", "tools": [], "status": reason or "completed"}
        return {**head, **rest, "output": [said, *calls]}
    parsed = json.loads(ARGUMENTS)
    if provider == "anthropic":
        uses = [{"type": "tool_use", "id": f"c{n}", "name": "look", "input": parsed} for n in "12"]
        head = {"id": "x", "type": "message", "role": "assistant", "model": "m"}
        usage = {"usage": {"input_tokens": 0, "output_tokens": 0}, "stop_reason": reason or "tool_use"}
        return {**head, **usage, "content": [{"type": "text", "text": "I look."}, *uses]}
    parts = [{"functionCall": {"id": f"c{n}", "name": "look", "args": parsed}} for n in "12"]
    content = {"role": "model", "parts": [{"text": "I look."}, *parts]}
    return {"candidates": [{"content": content, "finishReason": reason or "STOP"}]}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("as_dict", [False, True])
def test_calls_are_read_from_the_objects_of_the_sdk_and_from_dicts(provider: str, as_dict: bool) -> None:
    given = answer(provider)
    calls = calls_from(provider, given if as_dict else SDK[provider].model_validate(given))
    assert [(call.id, call.name, call.cut, call.origin) for call in calls] == [
        ("c1", "look", False, "model"),
        ("c2", "look", False, "model"),
    ]
    for call in calls:
        assert call.arguments == (ARGUMENTS if provider.startswith("openai") else json.loads(ARGUMENTS))


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        ("openai", "length"),
        ("openai", "content_filter"),
        ("openai-responses", "incomplete"),
        ("anthropic", "max_tokens"),
        ("anthropic", "model_context_window_exceeded"),
        ("gemini", "MAX_TOKENS"),
        ("gemini", "SAFETY"),
    ],
)
def test_the_last_call_of_an_answer_that_was_cut_off_is_marked_and_no_other(provider: str, reason: str) -> None:
    for given in (answer(provider, reason), SDK[provider].model_validate(answer(provider, reason))):
        assert [call.cut for call in calls_from(provider, given)] == [False, True]


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "openai-responses"])
def test_a_call_is_whole_where_a_text_after_it_was_cut(provider: str) -> None:
    reasons = {"anthropic": "max_tokens", "gemini": "MAX_TOKENS", "openai-responses": "incomplete"}
    given = answer(provider, reasons[provider])
    parts = {
        "anthropic": lambda: given["content"],
        "openai-responses": lambda: given["output"],
        "gemini": lambda: given["candidates"][0]["content"]["parts"],
    }[provider]()
    parts.append(parts.pop(0))
    assert [call.cut for call in calls_from(provider, SDK[provider].model_validate(given))] == [False, False]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_an_answer_whose_connection_ended_before_its_reason_came_is_cut(provider: str) -> None:
    given = answer(provider)
    (given["choices"][0] if "choices" in given else given.get("candidates", [given])[0]).update(
        {"finish_reason": None, "finishReason": None, "stop_reason": None}
    )
    assert [call.cut for call in calls_from(provider, given)] == [False, True]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_no_answer_of_the_provider_is_refused_with_what_to_give(provider: str) -> None:
    others = [answer(each) for each in PROVIDERS if each != provider]
    for wrong in (*others, None, "text", 7, object()):
        with pytest.raises(HandrailError, match=f"not an answer of {provider}"):
            calls_from(provider, wrong)
    with pytest.raises(HandrailError, match="the providers are openai, openai-responses, anthropic, gemini"):
        calls_from("opneai", answer(provider))
    with pytest.raises(HandrailError, match="the providers are"):
        answers_for("mcp", [], [])


def test_a_piece_of_a_stream_is_no_answer() -> None:
    piece = {"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look"}}]}}
    with pytest.raises(HandrailError, match="read a stream to its end first"):
        calls_from("openai", {"object": "chat.completion.chunk", "choices": [piece]})


def test_an_answer_without_calls_has_none() -> None:
    assert calls_from("openai", {"choices": []}) == []
    assert calls_from("openai", {"choices": [{"message": {"content": "hi"}, "finish_reason": "length"}]}) == []
    assert calls_from("anthropic", {"content": [], "stop_reason": None}) == []
    assert calls_from("gemini", {"candidates": [{"finishReason": "STOP"}]}) == []
    assert calls_from("openai-responses", {"output": [], "status": "incomplete"}) == []
    for provider in PROVIDERS:
        assert answers_for(provider, [], []) == []


RESULTS: list[Result] = [
    Success(["seen", Image(PNG), Image(b"GIF89a", "image/gif"), Image(b"<svg/>", "image/svg+xml")]),
    Failure("timeout", "It took too long \ud83d."),
]
CALLS = [Call("c1", "look", ARGUMENTS), Call("c2", "look", ARGUMENTS)]
TYPES: dict[str, Any] = {
    "openai": ChatCompletionMessageParam,
    "openai-responses": ResponseInputItemParam,
    "anthropic": MessageParam,
    "gemini": Content,
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_results_with_pictures_and_errors_have_the_form_that_the_sdk_declares(provider: str) -> None:
    messages = answers_for(provider, CALLS, RESULTS)
    adapter = TypeAdapter(TYPES[provider])
    for message in messages:
        adapter.validate_python(message)
    text = json.dumps(messages, default=lambda data: data.decode("latin-1"), ensure_ascii=False)
    text.encode()  # no lone surrogate is left
    assert text.count('"timeout"') + text.count('\\"timeout\\"') == 1
    assert text.count("image/svg+xml") == 1, "it is named, and not shown"


def test_each_provider_gets_pictures_where_it_takes_them() -> None:
    chat = answers_for("openai", CALLS, RESULTS)
    assert [message["role"] for message in chat] == ["tool", "tool", "user"]
    assert [part["type"] for part in chat[2]["content"]] == ["text", "image_url", "image_url"]
    responses = answers_for("openai-responses", CALLS, RESULTS)
    assert [part["type"] for part in responses[0]["output"]] == ["input_text", "input_image", "input_image"]
    (message,) = answers_for("anthropic", CALLS, RESULTS)
    assert [part["type"] for part in message["content"][0]["content"]] == ["text", "image", "image"]
    assert [block.get("is_error", False) for block in message["content"]] == [False, True]
    (content,) = answers_for("gemini", CALLS, RESULTS)
    assert [next(iter(part)) for part in content["parts"]] == [
        "function_response",
        "function_response",
        "text",
        "inline_data",
    ]
    picture = Content.model_validate(content).parts[3].inline_data  # type: ignore[index]
    assert picture is not None
    assert picture.data == PNG


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_call_with_free_text_has_the_answer_that_the_responses_api_takes_for_it(status: str) -> None:
    given = answer("openai-responses", status)
    given["output"][2] = {"type": "custom_tool_call", "call_id": "c2", "name": "look", "input": "not JSON"}
    calls = calls_from("openai-responses", Response.model_validate(given))
    assert (calls[1].arguments, calls[1].cut) == ("not JSON", status == "incomplete")
    answers = answers_for("openai-responses", calls, RESULTS)
    assert [each["type"] for each in answers] == ["function_call_output", "custom_tool_call_output"]
    TypeAdapter(ResponseInputItemParam).validate_python(answers[1])


def test_a_call_to_which_gemini_gave_no_id_is_answered_without_one() -> None:
    given = answer("gemini")
    for part in given["candidates"][0]["content"]["parts"][1:]:
        del part["functionCall"]["id"]
    calls = calls_from("gemini", GenerateContentResponse.model_validate(given))
    assert len({call.id for call in calls}) == 2
    (content,) = answers_for("gemini", calls, RESULTS)
    assert ["id" in part["function_response"] for part in content["parts"][:2]] == [False, False]


@pytest.mark.anyio
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_call_of_an_answer_gets_its_own_result_and_a_cut_one_is_not_run(provider: str) -> None:
    seen = []

    @tool
    def look(path: str, deep: dict[str, int]) -> str:
        """Look at it."""
        seen.append(path)
        return path

    reasons = {"openai": "length", "openai-responses": "incomplete", "anthropic": "max_tokens", "gemini": "MAX_TOKENS"}
    async with Session([look]) as session:
        for reason in (None, reasons[provider]):
            calls = calls_from(provider, SDK[provider].model_validate(answer(provider, reason)))
            results = await session.call_all(calls)
            assert [result.ok for result in results] == [True, reason is None]
            assert len(answers_for(provider, calls, results)) in (1, 2)
    assert len(seen) == 3


def test_what_is_no_list_of_results_is_refused() -> None:
    for calls, results in ((None, RESULTS), (CALLS, None)):
        with pytest.raises(HandrailError, match="the list that"):
            answers_for("openai", calls, results)  # type: ignore[arg-type]


def test_a_result_too_few_is_refused() -> None:
    with pytest.raises(HandrailError, match="2 calls have 1 results"):
        answers_for("openai", CALLS, RESULTS[:1])
    with pytest.raises(HandrailError, match="call_all"):
        answers_for("openai", CALLS, ["seen", "seen"])  # type: ignore[list-item]
