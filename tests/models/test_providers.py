"""Every provider's protocol through its official SDK, against a server that is not ours; what goes over the wire."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from handrail import CallDelta, Failure, Message, ModelFailed, Success, TextDelta, ThinkingDelta, Turn
from handrail.contract.result import Image
from handrail.schema.export import export
from tests.models.asking import (
    KEY,
    LOOK,
    NAMES,
    PICTURE,
    PROVIDERS,
    answered,
    ask,
    called_and_answered,
    everything,
    model_at,
)
from tests.models.wire import Wire

pytestmark = pytest.mark.anyio
BASE64 = PICTURE.base64()
SEEN = Success({"text": "a", "picture": PICTURE})
MISSING = Failure("not_found", "There is no b.txt.")
every_provider = pytest.mark.parametrize("provider", PROVIDERS)


def without_caching(definition: Any) -> Any:
    return {key: value for key, value in definition.items() if key != "cache_control"}


async def two_requests(wire: Wire, provider: str) -> Any:
    """The body of the request that carries two results."""
    model = model_at(wire, provider)
    prompt = Message("user", "Look at two files.")
    turn = await ask(model, prompt)
    last = await ask(model, prompt, *answered(turn, SEEN, MISSING))
    assert last.text == "Both were seen."
    assert last.stop == "end"
    assert len(wire.seen) == 2
    return wire.seen[1].body


@every_provider
async def test_text_thinking_and_arguments_come_while_they_are_written(wire: Wire, provider: str) -> None:
    *pieces, turn = await everything(model_at(wire, provider), Message("user", "Look at two files."))
    assert isinstance(turn, Turn)
    text = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
    assert len(text) > 1
    assert "".join(text) == turn.text == "I look at both of them."
    assert "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta)) == "Two files, so two calls."
    for number, call in enumerate(turn.calls):
        written = [piece for piece in pieces if isinstance(piece, CallDelta) and piece.index == number]
        assert {piece.name for piece in written} == {"look"}
        assert "".join(piece.text for piece in written) == call.arguments


@every_provider
async def test_calls_made_together_keep_their_order_and_their_arguments(wire: Wire, provider: str) -> None:
    turn = await ask(model_at(wire, provider), Message("user", "Look at two files."))
    assert [(call.name, json.loads(str(call.arguments))) for call in turn.calls] == [
        ("look", {"path": "a.txt"}),
        ("look", {"path": "b.txt"}),
    ]
    assert turn.stop == "tool_use"
    assert len({call.id for call in turn.calls}) == 2


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "ollama"])
async def test_arguments_stay_as_the_model_wrote_them(wire: Wire, provider: str) -> None:
    turn = await ask(model_at(wire, provider), Message("user", "Look at two files."))
    assert turn.calls[0].arguments == '{"path": "a.txt"}', "with its space"


@every_provider
async def test_every_call_goes_back_with_its_result_under_the_id_of_the_transcript(wire: Wire, provider: str) -> None:
    called, results = called_and_answered(provider, await two_requests(wire, provider))
    assert called == results == ["call-1", "call-2"]


@every_provider
async def test_a_result_is_sent_as_its_envelope(wire: Wire, provider: str) -> None:
    body = await two_requests(wire, provider)
    for result in (SEEN, MISSING):
        text = json.dumps(result.to_envelope("look"), ensure_ascii=False, separators=(",", ":"))
        assert json.dumps(text)[1:-1] in json.dumps(body), "as text, whole"


@every_provider
async def test_only_anthropic_is_told_beside_the_envelope_that_a_call_failed(wire: Wire, provider: str) -> None:
    body = await two_requests(wire, provider)
    if provider == "anthropic":
        assert [block["is_error"] for block in body["messages"][-1]["content"]] == [False, True]
    else:
        assert "is_error" not in json.dumps(body)
        assert '"error"' not in json.dumps(body)


def picture_of_a_result(provider: str, body: Any) -> Any:
    if provider == "anthropic":
        return body["messages"][2]["content"][0]["content"][1]["source"]["data"]
    if provider == "openai":
        output = next(item for item in body["input"] if item.get("call_id") == "call-1" and "output" in item)
        return output["output"][1]["image_url"].partition(",")[2]
    if provider == "google":
        return body["contents"][2]["parts"][0]["functionResponse"]["parts"][0]["inline_data"]["data"]
    assert [message["role"] for message in body["messages"][-3:]] == ["tool", "tool", "user"], "in the next message"
    return body["messages"][-1]["content"][1]["image_url"]["url"].partition(",")[2]


@every_provider
async def test_a_picture_in_a_result_reaches_the_model_in_the_provider_s_form(wire: Wire, provider: str) -> None:
    body = await two_requests(wire, provider)
    assert picture_of_a_result(provider, body).replace("-", "+").replace("_", "/") == BASE64


@every_provider
async def test_a_picture_in_a_prompt_reaches_the_model(wire: Wire, provider: str) -> None:
    await ask(model_at(wire, provider), Message("user", "hello", images=(PICTURE,)))
    assert BASE64 in json.dumps(wire.seen[0].body).replace("-", "+").replace("_", "/")


@every_provider
async def test_a_picture_that_no_provider_takes_is_named_instead_of_sent(wire: Wire, provider: str) -> None:
    await ask(model_at(wire, provider), Message("user", "hello", images=(Image(b"<svg/>", "image/svg+xml"),)))
    text = json.dumps(wire.seen[0].body)
    assert "image/svg+xml cannot be shown" in text
    assert "PHN2Zy8+" not in text


async def test_a_signature_of_thinking_goes_back_unchanged(wire: Wire) -> None:
    body = await two_requests(wire, "anthropic")
    assert body["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "Two files, so two calls.",
        "signature": "c2lnbmVkIGJ5IHRoZSBwcm92aWRlcg==",
    }


async def test_encrypted_reasoning_goes_back_unchanged(wire: Wire) -> None:
    model = model_at(wire, "openai")
    turn = await ask(model, Message("user", "Look at two files."))
    assert wire.seen[0].body["include"] == ["reasoning.encrypted_content"]
    given = json.dumps(turn.keep)
    await ask(model, Message("user", "Look at two files."), *answered(turn, SEEN, MISSING))
    items = wire.seen[1].body["input"]
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == ["user", "reasoning", "message", *["function_call"] * 2, *["function_call_output"] * 2]
    assert items[1]["encrypted_content"] in given
    assert items[1]["encrypted_content"]


@every_provider
async def test_a_model_that_takes_over_is_sent_the_words_and_calls_alone(wire: Wire, provider: str) -> None:
    """The loop drops `keep` when another model takes over."""
    turn = await ask(model_at(wire, provider), Message("user", "Look at two files."))
    said, results = answered(turn, SEEN, MISSING)
    plain = Message("assistant", said.text, said.calls)
    await ask(model_at(wire, provider), Message("user", "Look at two files."), plain, results)
    body = wire.seen[1].body
    assert called_and_answered(provider, body) == (["call-1", "call-2"],) * 2
    assert "Two files, so two calls." not in json.dumps(body)


@every_provider
async def test_half_of_a_character_pair_anywhere_is_replaced(wire: Wire, provider: str) -> None:
    half = "\ud83d"
    with pytest.raises(UnicodeEncodeError):  # the control: as it is, it cannot be sent
        half.encode()
    turn = await ask(model_at(wire, provider), Message("user", "Look at two files."))
    said, _ = answered(turn, ids=(f"call-{half}", "call-2"))
    said = Message("assistant", said.text + half, said.calls)
    results = Message("tool", results=(Success({half: half}), Failure("not_found", half)))
    prompt = Message("user", f"{half} Look at two files. \U0001f600")
    await ask(model_at(wire, provider), prompt, said, results, system=half)
    text = json.dumps(wire.seen[1].body, ensure_ascii=False)
    assert text.encode().decode().count("\ufffd") >= 7
    assert "\U0001f600" in text, "a whole pair stays"


@every_provider
async def test_an_empty_answer_is_not_sent_back(wire: Wire, provider: str) -> None:
    hello = Message("user", "hello")
    await ask(model_at(wire, provider), hello, Message("assistant", " \n"), hello)
    assert called_and_answered(provider, wire.seen[0].body) == ([], [])


@every_provider
async def test_arguments_that_are_no_json_go_back_as_an_object(wire: Wire, provider: str) -> None:
    turn = await ask(model_at(wire, provider), Message("user", "Look at two files."))
    said, results = answered(turn, SEEN, MISSING)
    broken = tuple(type(call)(call.id, call.name, '{"path": "a') for call in said.calls)
    await ask(
        model_at(wire, provider), Message("user", "Look at two files."), Message("assistant", "", broken), results
    )
    assert called_and_answered(provider, wire.seen[1].body) == (["call-1", "call-2"],) * 2


RICH = {
    "type": "object",
    "title": "Rich",
    "properties": {
        "path": {"type": "string", "minLength": 1, "pattern": "^a", "title": "Path", "format": "path"},
        "mode": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}], "default": None},
        "many": {"type": "array", "items": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}, "minItems": 1},
        "kind": {"const": "one"},
    },
    "required": ["path"],
    "$defs": {"Mode": {"enum": ["r", "w"], "type": "string"}},
}


@every_provider
async def test_tools_are_sent_as_a_session_exports_them(wire: Wire, provider: str) -> None:
    tool = {"name": "rich", "description": "Much.", "inputSchema": RICH}
    async for _ in model_at(wire, provider).ask([Message("user", "hello")], [tool], system=""):
        pass
    kinds = {"openai": "openai-responses", "google": "gemini", "anthropic": "anthropic"}
    wanted = export(kinds.get(provider, "openai"), "rich", "Much.", RICH)
    [sent] = wire.seen[0].body["tools"]
    if provider == "google":
        [sent] = sent["functionDeclarations"]
        sent["parametersJsonSchema"] = sent.pop("parameters_json_schema")
    assert without_caching(sent) == wanted


async def test_a_tool_that_the_provider_would_refuse_is_left_out_and_the_rest_is_sent(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": {"ä ö": {}}}}
    model = model_at(wire, "anthropic")
    for _ in range(2):
        async for _ in model.ask([Message("user", "hello")], [bad, LOOK], system=""):
            pass
    assert [tool["name"] for tool in wire.seen[0].body["tools"]] == ["look"]
    said = [record.getMessage() for record in caplog.records if record.name == "handrail"]
    assert len(said) == 1, "once, not at every request"
    assert said[0].startswith(f"bad is not offered to {NAMES['anthropic']}")


async def test_prompts_are_cached_unless_it_is_turned_off(wire: Wire) -> None:
    await ask(model_at(wire, "anthropic"), Message("user", "hello"))
    await ask(model_at(wire, "anthropic", cache=False), Message("user", "hello"))
    assert ["cache_control" in json.dumps(seen.body) for seen in wire.seen] == [True, False]


@every_provider
@pytest.mark.parametrize("prompt", ["fail at once", "write nonsense", "hang up", "stop in between"])
async def test_chaos_is_one_request_and_one_failure_that_may_pass(wire: Wire, provider: str, prompt: str) -> None:
    with pytest.raises(ModelFailed) as failed:
        await ask(model_at(wire, provider), Message("user", prompt))
    assert failed.value.transient
    assert len(wire.seen) == 1, "the loop retries, not the SDK"
    if prompt == "stop in between":
        assert failed.value.kind == "cut"


@every_provider
async def test_the_key_is_sent_where_it_belongs_and_nowhere_else(wire: Wire, provider: str) -> None:
    await ask(model_at(wire, provider), Message("user", "hello"))
    [seen] = wire.seen
    assert KEY not in seen.path
    assert KEY not in seen.raw.decode()
    assert sum(KEY in value for value in seen.headers.values()) == 1


@every_provider
async def test_what_is_said_after_results_is_in_one_message_with_them(wire: Wire, provider: str) -> None:
    model = model_at(wire, provider)
    prompt = Message("user", "Look at two files.")
    answer, results = answered(await ask(model, prompt), SEEN, MISSING)
    with suppress(ModelFailed):  # the server knows no answer to this
        await ask(model, prompt, answer, replace(results, text="Look behind you.", images=(PICTURE,)))
    body = wire.seen[1].body
    assert called_and_answered(provider, body) == (["call-1", "call-2"], ["call-1", "call-2"])
    written = json.dumps(body)
    assert written.count("Look behind you.") == 1
    assert written.index("call-2") < written.index("Look behind you.")
    if provider == "anthropic":
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
        kinds = [block["type"] for block in body["messages"][-1]["content"]]
        assert kinds == ["tool_result", "tool_result", "text", "image"]
    elif provider in ("openai-chat", "ollama"):
        assert [message["role"] for message in body["messages"][-4:]] == ["assistant", "tool", "tool", "user"]
