"""Calls written as text, for a model that has no tool calls of its own: found where there is exactly one."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from handrail.contract.call import Call
from handrail.contract.model import Message, Model, ModelEvent, Turn
from handrail.contract.result import images_in
from handrail.schema.export import export, for_every_model
from handrail.schema.extract import find
from handrail.scrub import Scrubber

HOW: Final = """\
You can use tools. To use one, end your answer with exactly this, with the tool's name and arguments in it:
<tool_call>
{"name": "NAME", "arguments": {}}
</tool_call>
Write one call in an answer, then wait: its result comes with the next message. Without a call, your answer is the last.

The tools, each with the JSON Schema of its arguments:
"""
MARK: Final = "handrail/calls"
"""Key in `keep` of an answer whose text contains its calls."""


class TextCalls:
    """A model whose calls are in its text. An answer that was cut is never searched, so a cut call never runs."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = str(getattr(model, "name", "") or type(model).__name__)
        self.secrets = tuple(getattr(model, "secrets", ()))
        self.__dict__ |= {key: getattr(model, key) for key in ("window", "max_tokens") if hasattr(model, key)}

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        tools = for_every_model(tools)
        answer = self._model.ask(as_text(messages), (), system=described(system, tools))
        try:
            async for event in answer:
                yield self._found(event, tools) if isinstance(event, Turn) else event
        finally:
            if close := getattr(answer, "aclose", None):
                await close()

    def scrub(self, scrubber: Scrubber) -> None:
        """Pass the Scrubber on to a model that writes anything down."""
        if (scrub := getattr(self._model, "scrub", None)) is not None:
            scrub(scrubber)

    def _found(self, turn: Turn, tools: Sequence[Mapping[str, Any]]) -> Turn:
        keep = {MARK: "text", "keep": turn.keep}
        call = find(turn.text, [tool["name"] for tool in tools], cut=turn.stop != "end")
        if call is None or turn.calls:
            return replace(turn, keep=keep)
        return replace(turn, calls=(Call("text", call.name, call.arguments),), stop="tool_use", keep=keep)


def described(system: str, tools: Sequence[Mapping[str, Any]], how: str = HOW) -> str:
    """The system text, with the tools and how to write a call."""
    if not tools:
        return system
    listed = [export("mcp", tool["name"], tool.get("description", ""), tool["inputSchema"]) for tool in tools]
    lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in listed]
    return "\n\n".join(part for part in (system, how + "\n".join(lines)) if part.strip())


def as_text(messages: Sequence[Message]) -> list[Message]:
    """The conversation as texts only: calls and results are inside them."""
    made: list[Message] = []
    calls: tuple[Call, ...] = ()
    for message in messages:
        if message.role == "assistant":
            calls = message.calls
            made.append(_answer(message))
        elif message.role == "tool":
            pairs = list(zip(calls, message.results, strict=True))
            texts = [_tagged("tool_result", result.to_envelope(call.name)) for call, result in pairs]
            pictures = [image for _, result in pairs for _, image in images_in(result.value)]
            texts += [message.text] if message.text else []
            made.append(Message("user", "\n".join(texts), images=(*pictures, *message.images)))
        else:
            made.append(message)
    return made


def _answer(message: Message) -> Message:
    if isinstance(message.keep, dict) and MARK in message.keep:
        return Message("assistant", message.text, keep=message.keep["keep"])
    written = [_tagged("tool_call", {"name": call.name, "arguments": _read(call.arguments)}) for call in message.calls]
    return Message("assistant", "\n".join(part for part in (message.text, *written) if part))


def _read(arguments: str | Mapping[str, Any]) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments


def _tagged(tag: str, value: Any) -> str:
    return f"<{tag}>\n{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n</{tag}>"
