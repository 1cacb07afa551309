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

    Example:
        ```python
        model = ScriptedModel(["It is 42."])
        async with Agent(model) as agent:
            await agent.run("What is 41 + 1?")
            print(agent.messages[0] == Message("user", "What is 41 + 1?"), agent.messages[1].text)
        #> True It is 42.
        ```
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    images: tuple[Image, ...] = ()
    """Pictures that the user shows; those of a result are inside its value."""
    keep: Any = None
    """Data that the model which wrote this message wants back unchanged: JSON that only this model understands."""

    # Every round makes two: filled in by the slots' own setters, as a Call is.
    def __init__(
        self, role: Literal["user", "assistant", "tool"], text: str = "", calls: tuple[Call, ...] = (),
        results: tuple[Result, ...] = (), images: tuple[Image, ...] = (), keep: Any = None,
    ) -> None:  # fmt: skip
        _set_role(self, role)
        _set_text(self, text)
        _set_calls(self, calls)
        _set_results(self, results)
        _set_images(self, images)
        _set_keep(self, keep)


_set_role, _set_text, _set_calls, _set_results, _set_images, _set_keep = (
    vars(Message)[each].__set__ for each in Message.__slots__
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted by the provider, and what they cost, in US dollars, where that is known.

    Example:
        ```python
        print(Usage(input_tokens=900, output_tokens=30) + Usage(input_tokens=1000, cost=0.01))
        #> Usage(input_tokens=1900, output_tokens=30, cache_read=0, cache_write=0, reasoning=0, cost=0.01)
        ```
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None

    def as_data(self) -> dict[str, float | None]:
        """For an event. `dataclasses.asdict` copies each number as if it were a tree, which is slow."""
        return {
            "input_tokens": self.input_tokens, "output_tokens": self.output_tokens, "cache_read": self.cache_read,
            "cache_write": self.cache_write, "reasoning": self.reasoning, "cost": self.cost,
        }  # fmt: skip

    def __add__(self, other: "Usage") -> "Usage":
        cost = self.cost if other.cost is None else other.cost + (self.cost or 0.0)
        return Usage(
            self.input_tokens + (other.input_tokens or 0),  # a model may be anybody's, and count nothing
            self.output_tokens + (other.output_tokens or 0),
            self.cache_read + (other.cache_read or 0),
            self.cache_write + (other.cache_write or 0),
            self.reasoning + (other.reasoning or 0),
            cost,
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
    """A model's complete answer.

    Example:
        ```python
        turn = Turn("I add.", (Call("c1", "add", '{"a": 41}'),), "tool_use", usage=Usage(output_tokens=12))
        print(turn.stop, turn.calls[0].name)
        #> tool_use add
        ```
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = Usage()
    keep: Any = None
    """Data that goes back to the same model, unchanged, with this answer's message."""
    tokens: Tokens | None = None
    """The sampled tokens, from a model that was opened with `tokens=True`."""

    def __post_init__(self) -> None:
        listed = isinstance(self.calls, tuple | list)
        for call in self.calls if listed else (self.calls,):
            if not listed or not isinstance(call, Call):
                refuse("one of Turn.calls", call, "a tuple of Calls: (Call('1', 'bash', {'command': 'ls'}),)")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text, while it is written.

    Example:
        ```python
        async for piece in ScriptedModel(["Hello."]).ask([Message("user", "Hi.")], []):
            if isinstance(piece, TextDelta):
                print(piece.text)
        #> Hello.
        ```
    """

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's reasoning, while it is written.

    Example:
        ```python
        print(ThinkingDelta("The user wants a sum.").text)
        #> The user wants a sum.
        ```
    """

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the arguments of call number `index` of the answer, while they are written.

    Example:
        ```python
        piece = CallDelta(0, "add", '{"a": 4')
        print(piece.index, piece.name, piece.text)
        #> 0 add {"a": 4
        ```
    """

    index: int
    name: str
    text: str


ModelEvent = TextDelta | ThinkingDelta | CallDelta | Turn
"""A piece of a model's answer while it is written, or at the end the whole answer, a Turn.

Example:
    ```python
    async def answer(messages, tools, *, system=""):
        events: list[ModelEvent] = [TextDelta("Hel"), TextDelta("lo."), Turn("Hello.")]
        for event in events:
            yield event

    print([type(event).__name__ async for event in answer([], [])])
    #> ['TextDelta', 'TextDelta', 'Turn']
    ```
"""


class ModelFailed(Exception):
    """The model could not answer. `transient` errors (429, 5xx, connection) may be tried again.

    `retry_after` is the number of seconds that the provider asks to wait.

    Example:
        ```python
        async with Agent(ScriptedModel([ModelFailed("The key is wrong.")])) as agent:
            outcome = await agent.run("Hello?")
            print(outcome.reason, "-", outcome.text)
        #> model_error - ModelFailed: The key is wrong.
        ```
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

    Example:
        ```python
        class Parrot:
            name, window, max_tokens = "parrot", 8_000, 1_000

            async def ask(self, messages, tools, *, system=""):
                yield Turn(messages[-1].text.upper())

        model: Model = Parrot()
        async with Agent(model) as agent:
            print((await agent.run("hello")).text)
        #> HELLO
        ```
    """

    def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str
    ) -> AsyncIterator[ModelEvent]:
        """Stream deltas, then exactly one Turn with the whole answer. Raises ModelFailed.

        `tools` are the MCP-shaped schemas of the session; a model translates them to its provider's form.
        """
