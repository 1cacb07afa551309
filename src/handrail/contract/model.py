"""A Model: reads messages, answers with text and calls."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from handrail.contract.call import Call
from handrail.contract.result import Result

Stop = Literal["end", "tool_use", "max_tokens"]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the conversation. An assistant's calls are answered by the next message's results, in order."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted by the provider."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True)
class Turn:
    """A model's complete answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text, while it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's reasoning, while it is written."""

    text: str


ModelEvent = TextDelta | ThinkingDelta | Turn


class ModelFailed(Exception):
    """The model could not answer. `transient` errors (429, 5xx, connection) may be tried again."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class Model(Protocol):
    """Any language model. Provider-specific types stay behind this interface."""

    def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str
    ) -> AsyncIterator[ModelEvent]:
        """Stream deltas, then exactly one Turn with the whole answer. Raises ModelFailed.

        `tools` are the MCP-shaped schemas of the session; a model translates them to its provider's form.
        """
