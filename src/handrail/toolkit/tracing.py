"""Tracing: opens a span around each call, run and request to a model. handrail.otel has one for OpenTelemetry."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from handrail.contract.errors import HandrailError
from handrail.contract.model import Message, Model, Turn, Usage
from handrail.contract.result import Result
from handrail.toolkit.gate import Next, Step


class TracedSession(Protocol):
    """The part of a Session that a span describes."""

    @property
    def id(self) -> str: ...


class TracedAgent(Protocol):
    """The part of an Agent that a span describes."""

    @property
    def session(self) -> TracedSession: ...
    @property
    def model(self) -> Model: ...
    @property
    def name(self) -> str: ...
    @property
    def system(self) -> str: ...
    @property
    def messages(self) -> Sequence[Message]: ...
    @property
    def usage(self) -> Usage: ...


class Ended(Protocol):
    """How a run ended."""

    @property
    def reason(self) -> str: ...
    @property
    def text(self) -> str: ...


E = TypeVar("E", bound=Ended)


class Tracing(Protocol):
    """Each method awaits `proceed` inside a span, and returns or raises what it does."""

    async def call(self, step: Step, proceed: Next) -> Result:
        """A Gate that comes before all others."""

    async def run(self, agent: TracedAgent, prompt: str, proceed: Callable[[], Awaitable[E]]) -> E:
        """One run of an agent."""

    async def ask(self, agent: TracedAgent, proceed: Callable[[], Awaitable[Turn]]) -> Turn:
        """One request to its model."""


def checked_tracing(tracing: Tracing | None) -> Tracing | None:
    """The given object. Raises HandrailError for anything else."""
    if tracing is not None and (isinstance(tracing, type) or not hasattr(tracing, "ask")):
        given = tracing.__name__ if isinstance(tracing, type) else type(tracing).__name__
        raise HandrailError(f"tracing is {given}; write tracing=Tracing(), with `from handrail.otel import Tracing`")
    return tracing
