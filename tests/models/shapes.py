"""Answers as each provider streams them, piece by piece, so that a test can break them anywhere."""

from typing import Any

CALL = '{"path": "a.txt"}'


def chat(text: str = "", call: str = "", finish: str | None = "stop", usage: Any = None) -> list[Any]:
    def chunk(delta: Any, reason: str | None = None) -> Any:
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    made = [chunk({"role": "assistant", "content": ""})]
    made += [chunk({"content": text})] if text else []
    if call:
        function = {"name": "look", "arguments": call}
        made.append(chunk({"tool_calls": [{"index": 0, "id": "call_a", "type": "function", "function": function}]}))
    made += [chunk({}, finish)] if finish else []
    made += [{**made[0], "choices": [], "usage": usage}] if usage else []
    return made


def anthropic(text: str = "", call: str = "", finish: str | None = "end_turn", usage: Any = None) -> list[Any]:
    counts = usage or {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m1", "type": "message", "role": "assistant", "model": "claude-opus-5", "content": []}
    made: list[Any] = [
        {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None, "usage": counts}}
    ]
    blocks = [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})] if text else []
    if call:
        use = {"type": "tool_use", "id": "call_a", "name": "look", "input": {}}
        blocks.append((use, {"type": "input_json_delta", "partial_json": call}))  # type: ignore[arg-type]
    for index, (block, delta) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made.append({"type": "content_block_delta", "index": index, "delta": delta})
        made.append({"type": "content_block_stop", "index": index})
    if finish:
        delta = {"stop_reason": finish, "stop_sequence": None}
        made.append({"type": "message_delta", "delta": delta, "usage": counts})
        made.append({"type": "message_stop"})
    return made


def responses(text: str = "", call: str = "", finish: str | None = "completed", usage: Any = None) -> list[Any]:
    head = {"id": "r1", "object": "response", "created_at": 1, "model": "gpt-5", "output": [], "tools": []}
    head |= {"parallel_tool_calls": True, "tool_choice": "auto"}
    made: list[Any] = [{"type": "response.created", "response": {**head, "status": "in_progress"}}]
    if text:
        item = {"id": "m1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        at = {"item_id": "m1", "output_index": 0, "content_index": 0}
        made.append({"type": "response.output_item.added", "output_index": 0, "item": item})
        made.append({"type": "response.output_text.delta", **at, "delta": text, "logprobs": []})
    if call:
        item = {"id": "f1", "type": "function_call", "call_id": "call_a", "name": "look", "arguments": ""}
        made.append({"type": "response.output_item.added", "output_index": 1, "item": item})
        at = {"item_id": "f1", "output_index": 1}
        made.append({"type": "response.function_call_arguments.delta", **at, "delta": call})
    if finish:
        incomplete = finish != "completed"
        whole = {**head, "status": "incomplete" if incomplete else "completed", "usage": usage}
        whole |= {"incomplete_details": {"reason": finish}} if incomplete else {}
        made.append({"type": "response.incomplete" if incomplete else "response.completed", "response": whole})
    for number, event in enumerate(made):
        event["sequence_number"] = number
    return made


def google(text: str = "", call: str = "", finish: str | None = "STOP", usage: Any = None) -> list[Any]:
    parts: list[Any] = [{"text": text}] if text else []
    if call:
        parts.append({"functionCall": {"name": "look", "args": {"path": "a.txt"}}, "thoughtSignature": "c2lnbmVk"})
    made: list[Any] = [{"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]}]
    if finish:
        made.append({"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": finish, "index": 0}]})
        made[-1] |= {"usageMetadata": usage} if usage else {}
    return made


SHAPES = {"anthropic": anthropic, "openai": responses, "openai-chat": chat, "google": google, "ollama": chat}
CUT_AT_MAX_TOKENS = {
    "anthropic": "max_tokens",
    "openai": "max_output_tokens",
    "openai-chat": "length",
    "google": "MAX_TOKENS",
    "ollama": "length",
}
REFUSED = {
    "anthropic": "refusal",
    "openai": "content_filter",
    "openai-chat": "content_filter",
    "google": "SAFETY",
    "ollama": "content_filter",
}
END = {"anthropic": "", "openai": "", "google": ""}
"""What follows the last event; the others end with a line that says so."""
