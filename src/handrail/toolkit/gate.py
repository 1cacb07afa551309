"""The pipeline: a Step passes through Gates, and a Result comes back."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from inspect import isawaitable
from typing import Any, Final

import anyio

from handrail.contract.approval import Approver
from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.event import EventType
from handrail.contract.limits import Budget, Caps
from handrail.contract.result import Failure, Result, Success
from handrail.log import report
from handrail.misuse import shown
from handrail.policy.policy import Policy, RuleLists
from handrail.policy.rule import Rule
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.clock import CallClock
from handrail.toolkit.context import Context, SessionView
from handrail.toolkit.isolated import OpenGuard
from handrail.toolkit.requests import Requests
from handrail.toolkit.tool import Tool

MAX_TOOLS_COUNT: Final = 1_000
"""Tools of which a session remembers what their rules and needs are."""


class Counts:
    """What is counted in one run, against its budget. A new user turn starts with new counts."""

    __slots__ = ("_tasks", "calls", "clock", "refusals", "requests", "scripts")

    def __init__(self, budget: Budget) -> None:
        self.calls = 0
        self.refusals = 0
        self.scripts: dict[str, int] = {}
        """The number of calls by each script."""
        self._tasks: dict[str, Repeats] = {}
        self.clock = CallClock(seconds=budget.seconds)
        self.requests = Requests(budget)

    def repeats(self, task: str) -> "Repeats":
        """The repetitions in a task; "" is the session itself. Others work in other directories."""
        known = self._tasks.get(task)
        if known is None:
            known = self._tasks[task] = Repeats()
        return known


class Repeats:
    """The failures of one task, and its last success: what gates/breaker.py compares the next call with."""

    __slots__ = ("arguments", "count", "digest", "failures", "key", "tool")

    def __init__(self) -> None:
        self.failures: dict[str, dict[str, tuple[str, int]]] = {}
        """By tool, then by arguments: how a call last failed, and how many times in a row."""
        self.begin(None, {})

    def begin(self, tool: Tool | None, arguments: Mapping[str, Any]) -> None:
        """Note a success that is not like the one before it; a failure is no tool's."""
        self.tool = tool
        self.arguments = arguments
        self.count = 1
        """Equal results in a row."""
        self.digest = ""
        """Of the result; empty after the first, which need not be compared unless the call comes again."""
        self.key = ""
        """Of the call as it was sent; empty until it came once too often."""


class SessionState:
    """What the calls of a session share: its policy, budget, approver and sandbox, and the gates' own state."""

    __slots__ = (
        "_lacks", "_rules", "_smallest_cap", "_tokens_left", "approver", "budget", "call_timeout", "caps", "counts",
        "covered", "lanes", "open_guard", "policy", "remembered", "sandbox", "task", "tasks_ended", "used_approvals",
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
        self.remembered: list[Rule] = []
        """Rules that a person accepted for the rest of the session."""
        self.covered: dict[str, frozenset[str]] = {}
        """By running script: the tools that its approval covers."""
        self.used_approvals: set[tuple[str, str]] = set()
        """Tools and hashes of arguments that were let through because a person had approved them before the call."""
        self.lanes: dict[str, Any] = {}
        """Named lanes; managed by gates/lane.py."""
        self.open_guard: OpenGuard
        """For isolated tools."""
        self.counts = Counts(budget)
        self._rules: dict[Tool, RuleLists] = {}
        self._lacks: dict[Tool, str] = {}

    @property
    def tokens_left(self) -> int | None:
        """Tokens left in the model's context; answers shrink with it."""
        return self._tokens_left

    @tokens_left.setter
    def tokens_left(self, count: int | None) -> None:
        self._tokens_left = count
        self._smallest_cap: int | None = None

    @property
    def smallest_cap(self) -> int:
        """The smallest of the caps with what is left; reckoned when a result asks for it, as most are short."""
        if self._smallest_cap is None:
            self._smallest_cap = self.caps.fitting(self._tokens_left).smallest
        return self._smallest_cap

    def rules_about(self, tool: Tool) -> RuleLists:
        """The policy's rules that may apply to a call of this tool."""
        rules = self._rules.get(tool)
        if rules is None:
            _make_room(self._rules)
            rules = self._rules[tool] = self.policy.rules.about(tool)
        return rules

    def lacks(self, tool: Tool) -> str:
        """Which needs of the tool the sandbox does not enforce, as a sentence without a full stop; "" if none."""
        if tool not in self._lacks:
            _make_room(self._lacks)
            self._lacks[tool] = _lacks(tool, self.sandbox)
        return self._lacks[tool]


def _make_room(known: dict[Tool, Any]) -> None:
    """Forget what is known of tools, where each call may bring a new one: of a source, or for an unknown name."""
    if len(known) >= MAX_TOOLS_COUNT:
        known.clear()


def _lacks(tool: Tool, sandbox: Sandbox | None) -> str:
    missing = ", ".join(sorted(set(tool.needs) - (sandbox.features if sandbox is not None else frozenset())))
    if not missing:
        return ""
    if sandbox is None:
        return f"{tool.name} needs a sandbox that enforces {missing}, and this session has none"
    return f"{tool.name} needs {missing}, which the {sandbox.report.driver} sandbox does not enforce"


class Step:
    """One call on its way through the gates. They read it, and fill in what later gates need."""

    __slots__ = (
        "_session",
        "approved",
        "approver",
        "arguments",
        "arguments_hash",
        "by_script",
        "call",
        "clock",
        "context",
        "converted",
        "counts",
        "deferred",
        "depth",
        "images",
        "parent",
        "repairs",
        "scope",
        "shared",
        "slot",
        "still_running",
        "terminated",
        "tool",
        "traceback",
        "warnings",
    )  # fmt: skip

    def __init__(
        self, call: Call, tool: Tool, session: SessionView, clock: CallClock, shared: SessionState,
        parent: "Step | None" = None,
    ) -> None:  # fmt: skip
        self.call = call
        self.tool = tool
        self.parent = parent  # the running call that made this one
        self.by_script: bool = call.origin == "script" and (parent is None or parent.call.origin != "script")
        """Whether a script itself made the call, and not a tool that it called."""
        self.context = Context(call, clock, session, tool.output_cap, is_uncut=self.by_script)
        self.clock = clock
        self.shared = shared
        self.counts = shared.counts  # of the run in which the call began
        self.approver: Approver | None = shared.approver if parent is None else parent.approver
        """Who is asked about this call, and about those that it makes."""
        self.approved: str | None = None
        """The hash of the arguments that a person approved before the call."""
        self.depth: int = 1 if parent is None else parent.depth + 1
        """How many calls are inside one another here, with this one."""
        self._session = session
        self.arguments_hash = ""
        """The hash of the arguments as they were sent."""
        self.arguments: Mapping[str, Any] = {}
        """The arguments after preflight: plain JSON that fits the schema."""
        self.converted: Mapping[str, Any] = {}
        """The same arguments in the function's own types."""
        self.repairs: tuple[Any, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.images: list[dict[str, Any]] = []  # where the result has pictures, and the references to them
        self.slot: Any = None
        """The Slot that gates/lane.py reserved when the call was accepted; None without a lane."""
        self.still_running = False  # whether the body could not be stopped and may still be running
        self.scope: anyio.CancelScope | None = None
        """The scope to cancel when a person ends the call."""
        self.terminated = self.deferred = False
        """Whether a person ended the call; whether its approver put the answer off, so that it counts nowhere."""
        self.traceback = ""
        """Of what the body or a gate raised, for the event."""

    def emit(self, type: EventType, data: Mapping[str, Any]) -> None:
        """Write an event of this call."""
        self._session.emit(type, self.call.id, self.call.parent, data)

    def report(self, who: str, error: BaseException, level: int = logging.ERROR) -> str:
        """Log what somebody raised during this call. Returns the traceback, for an event."""
        return report(f"{who} (call {self.call.id!r} of session {self.context.session_id!r})", error, level)

    def begin(self) -> str:
        """Record that the body begins. Returns why it must not, where that cannot be stored; else nothing."""
        return self._session.begin_body(self.call.id, self.call.parent)

    async def begin_when_free(self) -> str:
        """Record it after `begin` could not, once no other process has the store locked. Returns what `begin` does."""
        with self.clock.pause(run=False):
            return await self._session.begin_when_free(self.call.id, self.call.parent)

    async def unstored(self) -> Failure | None:
        """The answer to a call while its session cannot be stored: it is not run, and nobody is asked about it."""
        if self._session.store_error:
            with self.clock.pause(run=False):
                await self._session.settle()
        return self.not_stored(why) if (why := self._session.store_error) else None

    def not_stored(self, why: str) -> Failure:
        """The answer to a call that cannot be stored, for this reason."""
        message = f"{self.tool.name} was not run: {why}. Tell the user, and try again later."
        return Failure("unavailable", message, data={"started": False})

    def memory_changes(self) -> dict[str, dict[str, Any]]:
        """What tools changed, since the last call ended, of what they keep for the session."""
        return self._session.memory_changes()

    def repairs_as_data(self) -> list[dict[str, Any]]:
        """What preflight changed, as plain data for an event."""
        return [asdict(repair) for repair in self.repairs]

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
OWN: Final = "handrail."
"""The package whose gates are known to return a Result."""
Gate = Callable[[Step, Next], Awaitable[Result]]


def fold(gates: Sequence[Gate]) -> Next:
    """Combine the gates into one function. The last gate must not call `proceed`."""
    chain: Next = _end
    for gate in reversed(gates):
        chain = _link(gate, chain)
    return chain


def _link(gate: Gate, proceed: Next) -> Next:
    if str(getattr(gate, "__module__", "")).startswith(OWN):
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
