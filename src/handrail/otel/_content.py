"""Message contents as attribute values: JSON in the form of the conventions, encodable and of limited size."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from handrail.contract.call import Arguments, Call
from handrail.contract.model import Message, Stop, Turn
from handrail.contract.result import Result
from handrail.contract.truncated import cut
from handrail.contract.wire import to_wire

TEXT_LIMIT: Final = 16_000
"""Length of one text, in characters: of a message, of arguments, of a result."""
MESSAGES_LIMIT: Final = 256_000
"""Length of all messages of one request, in characters; the oldest are left out first."""
FINISH: Final[dict[Stop, str]] = {"end": "stop", "tool_use": "tool_call", "max_tokens": "length"}


def text(value: str, limit: int = TEXT_LIMIT) -> str:
    """The text within the limit, without lone surrogates, which no exporter can encode."""
    return str(cut(value, limit)).encode("utf-8", "replace").decode()


def as_json(value: Any) -> str:
    return json.dumps(to_wire(value), ensure_ascii=False, default=str)


def arguments_text(arguments: Arguments) -> str:
    return text(arguments if isinstance(arguments, str) else as_json(arguments))


def result_text(tool: str, result: Result) -> str:
    return text(as_json(result.to_envelope(tool)))


def system_text(system: str) -> str:
    return as_json([_said(system)])


def input_text(messages: Sequence[Message]) -> str:
    """The newest messages that fit."""
    shown: list[str] = []
    size = 0
    for number in range(len(messages) - 1, -1, -1):
        shown.append(as_json(_message(messages, number)))
        size += len(shown[-1])
        if size > MESSAGES_LIMIT:
            left_out = f"[… {number + 1} earlier messages left out]"
            shown[-1] = as_json({"role": "user", "parts": [_said(left_out)]})
            break
    return text(f"[{', '.join(reversed(shown))}]", 2 * MESSAGES_LIMIT)


def output_text(turn: Turn) -> str:
    parts = [*([_said(turn.text)] if turn.text else []), *map(_called, turn.calls)]
    return text(as_json([{"role": "assistant", "parts": parts, "finish_reason": FINISH[turn.stop]}]), MESSAGES_LIMIT)


def spoken(role: str, said: str) -> str:
    """One message that is only text."""
    return as_json([{"role": role, "parts": [_said(said)]}])


def _message(messages: Sequence[Message], number: int) -> dict[str, Any]:
    message = messages[number]
    return {"role": message.role, "parts": list(_parts(message, messages[number - 1] if number else None))}


def _parts(message: Message, before: Message | None) -> Iterator[dict[str, Any]]:
    calls = before.calls if before is not None else ()
    for call, result in zip(calls, message.results, strict=False):
        yield {"type": "tool_call_response", "id": call.id, "response": result_text(call.name, result)}
    if message.text:
        yield _said(message.text)
    yield from map(_called, message.calls)


def _said(content: str) -> dict[str, Any]:
    return {"type": "text", "content": text(content)}


def _called(call: Call) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments_text(call.arguments)}
