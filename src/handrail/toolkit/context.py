"""A Context: everything a tool's body may reach, bound to the one call it answers."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from typing_extensions import TypeVar

from handrail.contract.call import Arguments, Call, Origin
from handrail.contract.clock import Clock
from handrail.contract.errors import ToolFailed
from handrail.contract.event import EventType
from handrail.contract.limits import Caps
from handrail.contract.result import Failure, Result
from handrail.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from handrail.artifacts.store import Scope


State = TypeVar("State", default=Any)


class Host(Protocol):
    """Who stands around a session: a loop, a person, a program. What it cannot do raises ToolFailed(unavailable)."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """Put a question to the person and wait for the answer."""

    async def spawn(self, prompt: str, *, tools: Sequence[str] | None = None, cwd: str | None = None) -> Result:
        """Give a task to a child session and wait for what it found."""

    def finish(self, summary: str) -> None:
        """End the loop after this round."""

    def deferred_tools(self) -> Mapping[str, str]:
        """Names and descriptions of tools that are not loaded. The Session serves this."""

    def load_tools(self, names: Sequence[str]) -> None:
        """Put them among the schemas from the next request on. The Session serves this."""


_beginning = threading.Lock()


class LiveOutput(Protocol):
    """What one call shows while it runs."""

    def show(self, text: str, stream: str) -> None: ...


class SessionView(Protocol):
    """What a Context may see of its session."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> Any: ...
    @property
    def host(self) -> Host: ...
    @property
    def artifacts(self) -> "Scope": ...
    def caps_for(self, output_cap: int | None) -> Caps: ...
    def sandbox_for(self, context: "Context") -> Sandbox: ...
    def emit(self, type: EventType, call_id: str | None, parent: str | None, data: Mapping[str, Any]) -> None: ...
    def live_output(self, call: Call) -> LiveOutput: ...
    def memory(self, tool_name: str) -> dict[str, Any]: ...
    async def call(
        self, name: str, arguments: Arguments = "{}", *, origin: Origin = "model", parent: str | None = None
    ) -> Result: ...


class Context(Generic[State]):
    """Made for one call. After it, a job that the call started may still `show`.

    `Context[Settings]` says of what type the session's state is.
    """

    __slots__ = ("_live", "_output_cap", "_sandbox", "_session", "call", "clock", "stopped")

    def __init__(self, call: Call, clock: Clock, session: SessionView, output_cap: int | None = None) -> None:
        self.call = call
        self.clock = clock
        self.stopped = ""
        """Why the body should stop, once it should."""
        self._session = session
        self._output_cap = output_cap
        self._live: LiveOutput | None = None
        self._sandbox: Sandbox | None = None

    @property
    def session_id(self) -> str:
        return self._session.id

    @property
    def state(self) -> State:
        """The object that the caller gave to the session."""
        state: State = self._session.state
        return state

    @property
    def host(self) -> Host:
        return self._session.host

    @property
    def artifacts(self) -> "Scope":
        """What is stored beside the conversation, as this session may see it."""
        return self._session.artifacts

    @property
    def caps(self) -> Caps:
        """How much this call may answer; less where the model's context is nearly full."""
        return self._session.caps_for(self._output_cap)

    @property
    def sandbox(self) -> Sandbox:
        """The Sandbox, bound to this call's clock and id. Raises ToolFailed(unavailable) where there is none."""
        if self._sandbox is None:
            self._sandbox = self._session.sandbox_for(self)
        return self._sandbox

    def show(self, output: str | bytes, *, stream: str = "progress") -> None:
        """Let whoever watches see this now; many pieces are joined. It is not part of the result."""
        text = output if isinstance(output, str) else output.decode("utf-8", "replace")
        live = self._live
        if live is None:
            with _beginning:
                live = self._live = self._live or self._session.live_output(self.call)
        live.show(text, stream)

    def check(self) -> None:
        """Raise when the call was cancelled or its time is over: for long `def` bodies, which nobody can stop."""
        if self.stopped:
            raise ToolFailed(Failure("cancelled", self.stopped))

    async def use(self, name: str, arguments: Arguments = "{}") -> Result:
        """Call another tool, through every gate, as part of this call."""
        return await self._session.call(name, arguments, origin=self.call.origin, parent=self.call.id)

    def memory(self, tool_name: str) -> dict[str, Any]:
        """What this tool keeps for the length of the session."""
        return self._session.memory(tool_name)


Body = Callable[[Context, Mapping[str, Any]], Any]
"""A tool's body: `def` or `async def`. Returns any Python object: JSON data, a pydantic model, a dataclass, an Image,
an ArtifactRef, or a Result; or raises ToolFailed. Any other exception is an execution_error."""
