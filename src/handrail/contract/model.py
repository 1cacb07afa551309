"""A Model: reads messages, answers with text and calls."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from handrail.contract.call import Call
from handrail.contract.result import Image, Result
from handrail.misuse import refuse

Stop = Literal["end", "tool_use", "max_tokens", "refused", "paused", "other"]
"""Why an answer ended. The last call of an answer that ended by neither `end` nor `tool_use` is not run."""
FailedKind = Literal["busy", "key", "quota", "context", "no_such_model", "cut", "error"]

SUMMARISE: Final = "You summarise the work of an assistant so that it can go on without the original messages."
"""The system text of a request for a summary, which is not part of the conversation and has no tools."""


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the conversation. An assistant's calls are answered by the next message's results, in order.

    Two messages of the user's never follow each other, nor one of them results: what the user says then is the text
    of the message with the results, after them.
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    images: tuple[Image, ...] = ()
    """Pictures that the user shows; those of a result are inside its value."""
    keep: Any = None
    """What the model that wrote this message wants back unchanged: JSON that only it understands."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted by the provider, and what they cost, in US dollars, where that is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None

    def as_data(self) -> dict[str, float | None]:
        """For an event. `dataclasses.asdict` copies each number as if it were a tree, which is slow."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __add__(self, other: "Usage") -> "Usage":
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            self.input_tokens + (other.input_tokens or 0),  # a model may be anybody's, and count nothing
            self.output_tokens + (other.output_tokens or 0),
            self.cache_read + (other.cache_read or 0),
            self.cache_write + (other.cache_write or 0),
            self.reasoning + (other.reasoning or 0),
            sum(known) if known else None,
        )


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of an answer as the provider sampled them; a field that the provider does not give is empty."""

    prompt: tuple[int, ...] = ()
    """Ids of the tokens of the request."""
    output: tuple[int, ...] = ()
    """Ids of the sampled tokens."""
    logprobs: tuple[float, ...] = ()
    """Log probability of each sampled token."""

    def as_data(self) -> dict[str, list[float]]:
        """The lists for an event."""
        return {name: list(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Turn:
    """A model's complete answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = Usage()
    keep: Any = None
    """Goes back to the same model, unchanged, with this answer's message."""
    tokens: Tokens | None = None
    """The sampled tokens, from a model that was opened with `tokens=True`."""

    def __post_init__(self) -> None:
        listed = isinstance(self.calls, tuple | list)
        for call in self.calls if listed else (self.calls,):
            if not listed or not isinstance(call, Call):
                refuse("one of Turn.calls", call, "a tuple of Calls: (Call('1', 'bash', {'command': 'ls'}),)")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text, while it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's reasoning, while it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the arguments of call number `index` of the answer, while they are written."""

    index: int
    name: str
    text: str


ModelEvent = TextDelta | ThinkingDelta | CallDelta | Turn


class ModelFailed(Exception):
    """The model could not answer. `transient` errors (429, 5xx, connection) may be tried again.

    `retry_after` is the number of seconds that the provider asks to wait.
    """

    def __init__(
        self, message: str, *, transient: bool = False, retry_after: float | None = None, kind: FailedKind = "error"
    ) -> None:
        super().__init__(message)
        self.transient = transient
        known = type(retry_after) in (int, float) and retry_after is not None and retry_after >= 0  # NaN is not
        self.retry_after = retry_after if known else None
        self.kind = kind


class Model(Protocol):
    """Any language model. Provider-specific types stay behind this interface.

    It may have `searches`: True if its provider searches by itself for tools that are deferred, which it is then given
    too, marked by `_meta["handrail/deferred"]`.

    It may have `name`, `window` (tokens, 128,000 where it is absent) and `max_tokens` (of an answer: 8,192, and never
    more than a quarter of the window). One that writes down what it is asked may have `scrub`, a method that is
    called with the Scrubber of a session that has secrets.
    """

    def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str
    ) -> AsyncIterator[ModelEvent]:
        """Stream deltas, then exactly one Turn with the whole answer. Raises ModelFailed.

        `tools` are the MCP-shaped schemas of the session; a model translates them to its provider's form.
        """
