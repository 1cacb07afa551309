"""A Context: everything that a tool's body may use, bound to one call."""

import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from typing_extensions import TypeVar

from handrail.contract.call import Arguments, Call, Origin
from handrail.contract.clock import Clock
from handrail.contract.errors import ToolFailed
from handrail.contract.limits import Budget, Caps, uncut
from handrail.contract.result import Failure, Result
from handrail.misuse import refuse
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.views import end_call

if TYPE_CHECKING:
    from handrail.artifacts.store import Scope


State = TypeVar("State", default=Any)


class PassedOn(str):
    """An answer of a Host that only passed the question on: the person's answer comes with the next message."""


class Host(Protocol):
    """The program that runs a session, such as an agent loop. An ability it lacks raises ToolFailed(unavailable).

    Example:
        ```python
        class Program:
            async def ask(self, question, choices=()):
                return "blue"

        @tool
        async def colour(context: Context) -> str:
            "Ask for a colour."
            host: Host = context.host
            return await host.ask("Which colour?")

        async with Session([colour], host=Program()) as session:
            print((await session.call("colour")).value)
        #> blue
        ```
    """

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """Ask the person a question and wait for the answer."""

    async def spawn(
        self, prompt: str, *, role: str = "", tools: Sequence[str] | None = None, cwd: str | None = None
    ) -> Result:
        """Give a task to a child session and wait for its result: `{task, text, artifacts}`.

        It has the tools of these names, of those that the session has, and works in `cwd`, below the session's own.
        """

    def finish(self, summary: str) -> None:
        """End the loop after this round."""

    def deferred_tools(self) -> Mapping[str, str]:
        """Names and descriptions of the tools that are not loaded. The Session implements this."""

    def load_tools(self, names: Sequence[str]) -> None:
        """Include these tools in the schemas from the next request on. The Session implements this."""


_beginning = threading.Lock()
"""Guards the live output of every call: a body in a thread may begin it while its call ends."""


class LiveOutput(Protocol):
    """The live output of one call."""

    outlives: bool

    def show(self, text: str, stream: str) -> None: ...


class ToolList(Protocol):
    """The part of a Toolbox that a Context passes on; a Tool needs Context, so its type cannot be named here."""

    def all(self) -> Sequence[Any]: ...


class SessionView(Protocol):
    """The part of a Session that a Context uses."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> Any: ...
    def host_for(self, call: Call) -> Host: ...
    @property
    def artifacts(self) -> "Scope": ...
    @property
    def toolbox(self) -> ToolList: ...
    @property
    def budget(self) -> Budget: ...
    def caps_for(self, output_cap: int | None) -> Caps: ...
    def sandbox_for(self, context: "Context") -> Sandbox: ...
    def live_output(self, call: Call) -> LiveOutput: ...
    def memory(self, tool_name: str, *, lasts: bool = False) -> MutableMapping[str, Any]: ...
    async def call(
        self, name: str, arguments: Arguments = "{}", *, origin: Origin = "model", parent: str | None = None
    ) -> Result: ...


class Context(Generic[State]):
    """A tool body's view of one call. After the call, a job that it started may still `show`.

    `Context[Settings]` gives the type of the session's state.

    Example:
        ```python
        @tool
        async def count(context: Context) -> int:
            "Count the calls of this session."
            memory = context.memory("count")
            memory["n"] = memory.get("n", 0) + 1
            context.show(f"call {context.call.id}")
            return memory["n"]

        async with Session([count]) as session:
            print([(await session.call("count")).value for _ in range(2)])
        #> [1, 2]
        ```
    """

    __slots__ = ("_is_uncut", "_live", "_outlives", "_output_cap", "_sandbox", "_session", "_stopped", "call", "clock")

    def __init__(
        self, call: Call, clock: Clock, session: SessionView, output_cap: int | None = None, *, is_uncut: bool = False
    ) -> None:
        self.call = call
        self.clock = clock
        self._stopped = ""
        self._session = session
        self._output_cap = output_cap
        self._is_uncut = is_uncut
        self._live: LiveOutput | None = None
        self._outlives = False
        self._sandbox: Sandbox | None = None

    def __repr__(self) -> str:
        return f"<Context of {self.call.name}, call {self.call.id}>"

    @property
    def session_id(self) -> str:
        """The id of the session that makes this call."""
        return self._session.id

    @property
    def state(self) -> State:
        """The object given to the session as `state`."""
        state: State = self._session.state
        return state

    @property
    def host(self) -> Host:
        """The program around the session, as this call sees it.

        It asks people, starts tasks, ends the loop and loads deferred tools.
        """
        return self._session.host_for(self.call)

    @property
    def artifacts(self) -> "Scope":
        """The artifacts that this session may see."""
        return self._session.artifacts

    @property
    def caps(self) -> Caps:
        """Caps on this call's answer; smaller if the model's context is nearly full, not applied to a script."""
        if self._is_uncut:
            return uncut(self._session.caps_for(None))
        return self._session.caps_for(self._output_cap)

    @property
    def sandbox(self) -> Sandbox:
        """The Sandbox, bound to this call's clock and id. Raises ToolFailed(unavailable) without one."""
        if self._sandbox is None:
            self._sandbox = self._session.sandbox_for(self)
        return self._sandbox

    def require_sandbox(self) -> Sandbox:
        """The same as `sandbox`, as a method: for bodies that were written that way."""
        return self.sandbox

    def show(self, output: str | bytes, *, stream: str = "progress") -> None:
        """Emit live output for the event readers; pieces are joined. It is not part of the result."""
        if not isinstance(output, str | bytes):
            refuse("what context.show() was given", output, "context.show(str(…))")
        text = output if isinstance(output, str) else output.decode("utf-8", "replace")
        live = self._live
        if live is None:
            with _beginning:
                live = self._live = self._live or self._session.live_output(self.call)
                live.outlives = self._outlives
        live.show(text, stream)

    def check(self) -> None:
        """Raise if the call was cancelled or timed out: for long `def` bodies, which cannot be stopped from outside."""
        if self._stopped:
            raise ToolFailed(Failure("cancelled", self._stopped))

    async def use(self, name: str, arguments: Arguments = "{}", *, origin: Origin | None = None) -> Result:
        """Call another tool as part of this call, through every gate; `origin` is this call's own if None."""
        return await self._session.call(name, arguments, origin=origin or self.call.origin, parent=self.call.id)

    def memory(self, tool_name: str, *, lasts: bool = False) -> MutableMapping[str, Any]:
        """A dictionary that a tool keeps for the rest of the session.

        What `lasts` is stored with the session, and is there again when it is resumed; its values are plain JSON data.
        """
        return self._session.memory(tool_name, lasts=lasts)


def session_of(context: Context) -> SessionView:
    """The session of a call, for Handrail's own gates and tools; other bodies need only the Context."""
    return context._session


def tell_to_stop(context: Context, why: str) -> None:
    """Make `context.check()` raise in the body, for this reason."""
    context._stopped = why


def outlive(context: Context, goes_on: bool) -> None:
    """Note that the body goes on in its thread after its call, or that it has ended now."""
    with _beginning:
        context._outlives = goes_on
        if context._live is not None:
            context._live.outlives = goes_on


async def end_commands(context: Context) -> None:
    """End the commands that the body talks to, because the body has ended."""
    if context._sandbox is not None:
        await end_call(context._sandbox)


Body = Callable[[Context, Mapping[str, Any]], Any]
"""A tool's body: `def` or `async def`. Returns any Python object: JSON data, a pydantic model, a dataclass, an Image,
an ArtifactRef, or a Result; or raises ToolFailed. Any other exception is an execution_error."""
