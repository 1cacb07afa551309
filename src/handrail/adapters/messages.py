"""A provider's own messages: the calls in an answer of its SDK, and their results in the form that it takes back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from handrail.adapters._calls import text_of
from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.result import IMAGE_TYPES, Failure, Image, Result, Success, images_in
from handrail.contract.wire import sendable, sendable_data
from handrail.misuse import expect, refuse, shown

GEMINI_IMAGE_TYPES: Final = IMAGE_TYPES - {"image/gif"}
CUT: Final[Mapping[str, frozenset[str | None]]] = {
    "openai": frozenset({"length", "content_filter", None}),
    "openai-responses": frozenset({"incomplete", "failed", "cancelled", "in_progress", "queued"}),
    "anthropic": frozenset({"max_tokens", "model_context_window_exceeded", "refusal", None}),
}
"""Stop reasons after which the last call may lack a part. None: the connection ended before the provider gave one."""
OWN_ID: Final = "gemini_call_"
"""The beginning of the id of a call to which Gemini gave none."""
Ended = tuple[list[Call], bool]
"""Calls of an answer, and whether the last call may lack a part."""


def calls_from(provider: str, response: object) -> list[Call]:
    """The calls that a model asks for, with their arguments as they came; one that was cut off is never run.

    Args:
        provider: openai (chat completions), openai-responses, anthropic or gemini.
        response: what the provider's SDK returned, or the same as a dict.

    Example:
        ```python
        from handrail.adapters import calls_from

        response = {"choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": [
            {"id": "c1", "function": {"name": "add", "arguments": '{"a": "41"}'}}]}}]}
        print(calls_from("openai", response)[0].arguments)
        #> {"a": "41"}
        ```
    """
    calls: list[Call]
    calls, cut = _of(provider, _READERS)(response)
    if cut and calls:
        calls[-1] = replace(calls[-1], cut=True)
    return calls


def answers_for(provider: str, calls: Sequence[Call], results: Sequence[Result]) -> list[dict[str, Any]]:
    """The results as messages to append to the conversation, after the model's own: each call has its answer.

    Pictures are in the result where the provider takes them there, and otherwise in a message after it.

    Example:
        ```python
        from handrail.adapters import answers_for

        print(answers_for("openai", [Call("c1", "add", "{}")], [Success(42)]))
        #> [{'role': 'tool', 'tool_call_id': 'c1', 'content': '{"ok":true,"tool":"add","result":42}'}]
        ```
    """
    write = _of(provider, _WRITERS)
    expect("calls", calls, Sequence, "the list that calls_from returned")
    expect("results", results, Sequence, "the list that call_all returned")
    if len(calls) != len(results):
        raise HandrailError(f"{len(calls)} calls have {len(results)} results; give the list that call_all returned")
    for call, result in zip(calls, results, strict=True):
        expect("one of the calls", call, Call, "what calls_from returned")
        if not isinstance(result, Success | Failure):
            refuse("one of the results", result, "the list that call_all returned")
    made: list[dict[str, Any]] = write(list(zip(calls, results, strict=True))) if calls else []
    return made


def _of(provider: str, table: Mapping[str, Any]) -> Callable[..., Any]:
    if provider not in table:
        raise HandrailError(f"there is no provider {provider!r} here; the providers are {', '.join(table)}")
    found: Callable[..., Any] = table[provider]
    return found


def _field(value: object, *names: str) -> Any:
    """A field of an SDK's object or of a dict, which may write its name in two ways; None where there is none."""
    for name in names:
        found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if found is not None:
            return found
    return None


def _list(provider: str, response: object, *names: str) -> list[Any]:
    found = _field(response, *names)
    if not isinstance(found, list | tuple):
        raise _no_answer(provider, response, names[0])
    return list(found)


def _no_answer(provider: str, response: object, lacks: str) -> HandrailError:
    write = f"what its SDK returned, which has `{lacks}`; read a stream to its end first"
    return HandrailError(f"{shown(response)} is not an answer of {provider}: give {write}")


class _FreeTextCall(Call):
    """A call of a tool whose input is free text, and whose answer has a type of its own in the Responses API."""


RESPONSES_CALLS: Final[Mapping[Any, type[Call]]] = {"function_call": Call, "custom_tool_call": _FreeTextCall}


def _call(id: Any, name: Any, arguments: Any, kind: type[Call] = Call) -> Call:
    given = arguments if isinstance(arguments, str | Mapping) else ""
    return kind(str(id or ""), str(name or ""), given)


def _from_openai(response: object) -> Ended:
    choices = _list("openai", response, "choices")
    if not choices:
        return [], False
    if (message := _field(choices[0], "message")) is None:
        raise _no_answer("openai", response, "choices[0].message")
    calls = []
    for each in _field(message, "tool_calls") or ():
        made = _field(each, "function", "custom")
        calls.append(_call(_field(each, "id"), _field(made, "name"), _field(made, "arguments", "input")))
    return calls, _field(choices[0], "finish_reason") in CUT["openai"]


def _from_responses(response: object) -> Ended:
    items = _list("openai-responses", response, "output")
    calls = [
        _call(_field(item, "call_id"), _field(item, "name"), _field(item, "arguments", "input"), kind)
        for item in items
        if (kind := RESPONSES_CALLS.get(_field(item, "type"))) is not None
    ]
    last = items[-1] if items else None
    is_call = _field(last, "type") in RESPONSES_CALLS
    ended = {_field(last, "status"), _field(response, "status")}
    return calls, is_call and bool(ended & CUT["openai-responses"])


def _from_anthropic(response: object) -> Ended:
    blocks = _list("anthropic", response, "content")
    uses = [block for block in blocks if _field(block, "type") == "tool_use"]
    calls = [_call(_field(use, "id"), _field(use, "name"), _field(use, "input")) for use in uses]
    return calls, bool(uses) and uses[-1] is blocks[-1] and _field(response, "stop_reason") in CUT["anthropic"]


def _from_gemini(response: object) -> Ended:
    candidates = _list("gemini", response, "candidates")
    if not candidates:
        return [], False
    parts = list(_field(_field(candidates[0], "content"), "parts") or ())
    made = [(part, _field(part, "function_call", "functionCall")) for part in parts]
    calls = [
        _call(_field(call, "id") or f"{OWN_ID}{number}", _field(call, "name"), _field(call, "args"))
        for number, (_, call) in enumerate(made)
        if call is not None
    ]
    reason = _field(candidates[0], "finish_reason", "finishReason")
    stopped = str(getattr(reason, "value", reason)).upper() == "STOP"
    return calls, bool(made) and made[-1][1] is not None and not stopped


Answered = list[tuple[Call, Result]]


def _pictures(result: Result, types: frozenset[str] = IMAGE_TYPES) -> list[Image]:
    return [image for _, image in images_in(result.value) if image.media_type in types]


def _url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.base64()}"


def _what(call: Call) -> str:
    return sendable(f"What {call.name} (call {call.id}) shows:")


def _to_openai(answered: Answered) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": call.id, "content": text_of(result, call.name)} for call, result in answered
    ]
    later: list[dict[str, Any]] = []
    for call, result in answered:
        if pictures := _pictures(result):
            later.append({"type": "text", "text": _what(call)})
            later += [{"type": "image_url", "image_url": {"url": _url(image)}} for image in pictures]
    return [*made, {"role": "user", "content": later}] if later else made


def _to_responses(answered: Answered) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for call, result in answered:
        text, pictures = text_of(result, call.name), _pictures(result)
        shown = [{"type": "input_image", "image_url": _url(image), "detail": "auto"} for image in pictures]
        output = [{"type": "input_text", "text": text}, *shown] if shown else text
        kind = "custom_tool_call_output" if isinstance(call, _FreeTextCall) else "function_call_output"
        made.append({"type": kind, "call_id": call.id, "output": output})
    return made


def _to_anthropic(answered: Answered) -> list[dict[str, Any]]:
    """All results of an answer as one message: Anthropic wants them in the message that follows."""
    blocks: list[dict[str, Any]] = []
    for call, result in answered:
        content: list[dict[str, Any]] = [{"type": "text", "text": text_of(result, call.name)}]
        for image in _pictures(result):
            source = {"type": "base64", "media_type": image.media_type, "data": image.base64()}
            content.append({"type": "image", "source": source})
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": content}
        blocks.append(block if result.ok else {**block, "is_error": True})
    return [{"role": "user", "content": blocks}]


def _to_gemini(answered: Answered) -> list[dict[str, Any]]:
    """All results as one content. Picture data are bytes, as the SDK takes them."""
    parts: list[dict[str, Any]] = []
    for call, result in answered:
        response: dict[str, Any] = {"name": call.name, "response": sendable_data(result.to_envelope(call.name))}
        if not call.id.startswith(OWN_ID):
            response["id"] = call.id
        parts.append({"function_response": response})
    for call, result in answered:
        if pictures := _pictures(result, GEMINI_IMAGE_TYPES):
            parts.append({"text": _what(call)})
            parts += [{"inline_data": {"mime_type": image.media_type, "data": image.data}} for image in pictures]
    return [{"role": "user", "parts": parts}]


_READERS: Final[Mapping[str, Callable[[object], Ended]]] = {
    "openai": _from_openai,
    "openai-responses": _from_responses,
    "anthropic": _from_anthropic,
    "gemini": _from_gemini,
}
_WRITERS: Final[Mapping[str, Callable[[Answered], list[dict[str, Any]]]]] = {
    "openai": _to_openai,
    "openai-responses": _to_responses,
    "anthropic": _to_anthropic,
    "gemini": _to_gemini,
}
