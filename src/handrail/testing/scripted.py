"""A model that follows a script, so that tests need no network."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handrail.contract.model import SUMMARISE, Message, ModelEvent, ModelFailed, TextDelta, Turn
from handrail.misuse import refuse

Line = Turn | str | Exception | Callable[[Sequence[Message]], Turn | str]


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a ScriptedModel was sent; the conversation is referred to, not copied.

    Example:
        ```python
        model = ScriptedModel(["Hello."])
        async with Agent(model) as agent:
            await agent.run("Greet me.")
        request: Request = model.requests[0]
        print(request.messages[0].text)
        #> Greet me.
        ```
    """

    conversation: Sequence[Message]
    length: int
    tools: Sequence[Mapping[str, Any]]
    system: str

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as it was at the request."""
        return self.conversation[: self.length]


class ScriptedModel:
    """Each line answers one request: a Turn, a text, an exception to raise, or a function of the messages.

    A request for a summary, which the loop makes when the context is nearly full, takes no line: `summary` answers it.

    Example:
        ```python
        model = ScriptedModel(["Hello."])
        async with Agent(model) as agent:
            print((await agent.run("Greet me.")).text)
        #> Hello.
        ```
    """

    summary = "The work went as the script says."

    def __init__(self, lines: Iterable[Line]) -> None:
        self.requests: list[Request] = []
        if isinstance(lines, str | Turn) or callable(lines):
            refuse("ScriptedModel's script", lines, "a list, even of one answer: ScriptedModel(['Hello.'])")
        self._lines = iter(lines)

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        if system == SUMMARISE:
            yield Turn(self.summary)
            return
        self.requests.append(Request(messages, len(messages), tools, system))
        try:
            line = next(self._lines)
        except StopIteration:
            raise ModelFailed(f"the script has ended after {len(self.requests) - 1} answers") from None
        if isinstance(line, Exception):
            raise line
        answer = line(messages) if callable(line) else line
        turn = Turn(answer) if isinstance(answer, str) else answer
        if turn.text:
            yield TextDelta(turn.text)
        yield turn
