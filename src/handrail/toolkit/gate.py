"""The pipeline: a Step passes through Gates, and a Result comes back."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Final, Protocol

import anyio

from handrail.clock import CallClock
from handrail.contract.approval import Approver
from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.event import EventType
from handrail.contract.limits import Budget, Caps
from handrail.contract.result import Failure, Result, Success
from handrail.log import report
from handrail.misuse import shown
from handrail.policy.policy import Policy, RuleLists
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context, SessionView
from handrail.toolkit.isolated import OpenGuard
from handrail.toolkit.requests import Requests
from handrail.toolkit.tool import Tool

MAX_TOOLS_COUNT: Final = 1_000
"""Number of tools whose rules and needs a session remembers."""


class Counts:
    """Counts of one run, compared with its budget. A new user turn starts with new counts."""

    __slots__ = ("calls", "clock", "kept", "refusals", "requests", "scripts")

    def __init__(self, budget: Budget) -> None:
        self.calls = 0
        self.refusals = 0
        self.scripts: dict[str, int] = {}
        """The number of calls by each script."""
        self.kept: dict[type, Any] = {}
        """State that a gate keeps for one run, by its class."""
        self.clock = CallClock(seconds=budget.seconds)
        self.requests = Requests(budget)


class SessionState:
    """State that the calls of a session share: its policy, budget, approver and sandbox, and what gates keep."""

    __slots__ = (
        "_caps_now", "_lacks", "_rules", "_tokens_left", "approver", "budget", "call_timeout", "caps", "counts", "kept",
        "open_guard", "policy", "sandbox", "task", "tasks_ended",
    )  # fmt: skip

    def __init__(
        self, policy: Policy, budget: Budget, approver: Approver | None, sandbox: Sandbox | None, caps: Caps
    ) -> None:
        self.policy = policy
        self.budget = budget
        self.approver = approver
        self.sandbox = sandbox
        self.caps = caps
        """The session's caps; a call uses `context.caps`."""
        self.call_timeout: float | None = None
        """Seconds after which any call is ended; None leaves it to the tools."""
        self.tokens_left = None
        self.task = ""
        """The id of the task, in a child session."""
        self.tasks_ended = False
        """Whether a task that this session gave in its run was ended, or not begun, because the budget is used up."""
        self.kept: dict[type, Any] = {}
        """State that a gate keeps for the session and its tasks, by its class."""
        self.open_guard: OpenGuard
        """Opens the guard of an isolated tool."""
        self.counts = Counts(budget)
        self._rules: dict[Tool, RuleLists] = {}
        self._lacks: dict[Tool, str] = {}

    def for_task(self, task: str, counts: Counts) -> "SessionState":
        """The state of a child session: all is shared but the model's context. `counts` are those of its run."""
        made = SessionState(self.policy, self.budget, self.approver, self.sandbox, self.caps)
        made.task, made.counts, made.kept = task, counts, self.kept
        made.open_guard, made.call_timeout = self.open_guard, self.call_timeout
        return made

    @property
    def tokens_left(self) -> int | None:
        """Tokens left in the model's context; answers shrink with it."""
        return self._tokens_left

    @tokens_left.setter
    def tokens_left(self, count: int | None) -> None:
        self._tokens_left = count
        self._caps_now: Caps | None = None

    @property
    def caps_now(self) -> Caps:
        """The caps that fit the tokens left; computed when a result asks for them, since most results are short."""
        if self._caps_now is None:
            self._caps_now = self.caps.fitting(self._tokens_left)
        return self._caps_now

    def rules_about(self, tool: Tool) -> RuleLists:
        """The policy's rules that may apply to a call of this tool."""
        rules = self._rules.get(tool)
        if rules is None:
            _make_room(self._rules)
            rules = self._rules[tool] = self.policy.rules.about(tool)
        return rules

    def lacks(self, tool: Tool) -> str:
        """The tool's needs that the sandbox does not enforce, as a sentence without a full stop; "" if none."""
        if tool not in self._lacks:
            _make_room(self._lacks)
            self._lacks[tool] = _lacks(tool, self.sandbox)
        return self._lacks[tool]


def _make_room(known: dict[Tool, Any]) -> None:
    """Forget old tools when there are too many: each call may bring a new one, from a source or by an unknown name."""
    if len(known) >= MAX_TOOLS_COUNT:
        known.clear()


def _lacks(tool: Tool, sandbox: Sandbox | None) -> str:
    missing = ", ".join(sorted(set(tool.needs) - (sandbox.features if sandbox is not None else frozenset())))
    if not missing:
        return ""
    if sandbox is None:
        return f"{tool.name} needs a sandbox that enforces {missing}, and this session has none"
    return f"{tool.name} needs {missing}, which the {sandbox.report.driver} sandbox does not enforce"


class GateSession(SessionView, Protocol):
    """The part of a Session that gates use."""

    def emit(self, type: EventType, call_id: str | None, parent: str | None, data: Mapping[str, Any]) -> None: ...
    def begin_body(self, call_id: str, parent: str | None) -> str: ...
    async def begin_when_free(self, call_id: str, parent: str | None) -> str: ...
    async def settle(self) -> bool: ...
    @property
    def store_error(self) -> str: ...
    def memory_changes(self) -> dict[str, dict[str, Any]]: ...


class Step:
    """One call on its way through the gates. They read it, and fill in what later gates need.

    Example:
        ```python
        async def audit(step: Step, proceed: Next) -> Result:
            print(step.tool.name, dict(step.arguments))
            return await proceed(step)

        def add(a: int, b: int = 1) -> int:
            "Add two numbers."
            return a + b

        async with Session([add], gates=(*STANDARD[:-1], audit, STANDARD[-1])) as session:
            await session.call("add", '{"a": "41"}')
        #> add {'a': 41}
        ```
    """

    __slots__ = (
        "approved", "approver", "arguments", "arguments_hash", "by_script", "call", "clock", "context", "converted",
        "counts", "deferred", "images", "parent", "repairs", "scope", "session", "shared", "slot", "still_running",
        "terminated", "tool", "traceback", "warnings",
    )  # fmt: skip

    def __init__(
        self, call: Call, tool: Tool, session: GateSession, clock: CallClock, shared: SessionState,
        parent: "Step | None" = None,
    ) -> None:  # fmt: skip
        self.call = call
        self.tool = tool
        self.parent = parent
        """The running call that made this one."""
        self.by_script: bool = call.origin == "script" and (parent is None or parent.call.origin != "script")
        """Whether a script itself made the call, and not a tool that it called."""
        self.context = Context(call, clock, session, tool.output_cap, is_uncut=self.by_script)
        self.clock = clock
        self.session = session
        self.shared = shared
        self.counts = shared.counts
        """Counts of the run in which the call began."""
        self.approver: Approver | None = shared.approver if parent is None else parent.approver
        """Asked about this call, and about those that it makes."""
        self.approved: str | None = None
        """The hash of the arguments that a person approved before the call."""
        self.arguments_hash = ""
        """The hash of the arguments as they were sent."""
        self.arguments: Mapping[str, Any] = {}
        self.converted: Mapping[str, Any] = {}
        """The arguments after preflight: as plain JSON that fits the schema, and in the function's own types."""
        self.repairs: tuple[Any, ...] = ()
        self.warnings: tuple[str, ...] = ()
        """Changes that preflight made to the arguments, and its notes on them for the model."""
        self.images: list[dict[str, Any]] = []
        """Paths of the pictures in the result, and the references to them."""
        self.slot: Any = None
        """The Slot that gates/lane.py reserved when the call was accepted; None without a lane."""
        self.still_running = False
        """Whether the body could not be stopped and may still be running."""
        self.scope: anyio.CancelScope | None = None
        """The scope to cancel when a person ends the call."""
        self.terminated = self.deferred = False
        """Whether a person ended the call; whether its approver put the answer off, so that it counts nowhere."""
        self.traceback = ""
        """Traceback of an exception of the body or a gate, for the event."""

    def emit(self, type: EventType, data: Mapping[str, Any]) -> None:
        """Write an event of this call."""
        self.session.emit(type, self.call.id, self.call.parent, data)

    def report(self, who: str, error: BaseException, level: int = logging.ERROR) -> str:
        """Log what somebody raised during this call. Returns the traceback, for an event."""
        return report(f"{who} (call {self.call.id!r} of session {self.context.session_id!r})", error, level)

    def watch(self, scope: anyio.CancelScope) -> None:
        """Set the scope that is cancelled when a person ends the call; cancel it now if they already have."""
        self.scope = scope
        if self.terminated:
            scope.cancel()

    @property
    def how_it_ended(self) -> str:
        """A sentence for the model: what happened to the body of a call that was ended."""
        return "Its thread cannot be stopped and may still be running." if self.still_running else "It was ended."

    def terminate(self) -> None:
        """End the call, at any gate, for a person."""
        self.terminated = True
        if self.scope is not None:
            self.scope.cancel()


Next = Callable[[Step], Awaitable[Result]]
"""The rest of the pipeline, as a gate gets it: awaiting it runs the later gates and the tool's body.

Example:
    ```python
    async def shout(step: Step, proceed: Next) -> Result:
        result = await proceed(step)
        return Success(result.value.upper()) if result.ok else result

    def greet(name: str) -> str:
        "Greet somebody."
        return f"hello {name}"

    async with Session([greet], gates=(*STANDARD[:-1], shout, STANDARD[-1])) as session:
        print((await session.call("greet", {"name": "Ada"})).value)
    #> HELLO ADA
    ```
"""
Gate = Callable[[Step, Next], Awaitable[Result]]
"""An async function around a tool's body: it passes the call on, answers it, or changes the result.

Example:
    ```python
    async def closed(step: Step, proceed: Next) -> Result:
        return Failure("rejected", "The shop is closed. Come back tomorrow.")

    gate: Gate = closed
    def buy(thing: str) -> str:
        "Buy something."
        return thing

    async with Session([buy], gates=(*STANDARD[:-1], gate, STANDARD[-1])) as session:
        print((await session.call("buy", {"thing": "tea"})).message)
    #> The shop is closed. Come back tomorrow.
    ```
"""


def fold(gates: Sequence[Gate], trusted: Collection[Gate] = ()) -> Next:
    """Combine the gates into one function. The last gate must not call `proceed`.

    The result of a gate is checked unless the gate is `trusted` to return one: a check costs a coroutine more a call.
    """
    chain: Next = _end
    for gate in reversed(gates):
        chain = _link(gate, chain, gate in trusted)
    return chain


def _link(gate: Gate, proceed: Next, trusted: bool) -> Next:
    if trusted:
        return lambda step: gate(step, proceed)

    async def checked(step: Step) -> Result:
        made: Any = gate(step, proceed)
        result = await made if isawaitable(made) else made
        if not isinstance(result, Success | Failure):
            name = getattr(gate, "__name__", type(gate).__name__)
            raise HandrailError(f"the gate {name} returned {shown(result)}; write `return await proceed(step)` in it")
        return result

    return checked


async def _end(step: Step) -> Result:
    message = f"No gate ran {step.tool.name}: write gates=[my_gate, *STANDARD], whose last gate runs the tool."
    return Failure("execution_error", message)
