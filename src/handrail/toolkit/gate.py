"""The shape of the pipeline: a Step walks through Gates, and a Result walks back."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from handrail.contract.call import Call
from handrail.contract.event import EventType
from handrail.contract.result import Failure, Result
from handrail.toolkit.clock import CallClock
from handrail.toolkit.context import Context, Desk
from handrail.toolkit.policy import Budget, Policy
from handrail.toolkit.tool import Tool


class Counts:
    """What the gates count in one run. It lives on the session, and a new user turn brings a new one."""

    __slots__ = ("calls", "clock", "refusals", "scripts")

    def __init__(self) -> None:
        self.calls = 0
        self.refusals = 0
        self.scripts: dict[str, int] = {}
        self.clock = CallClock()


class Rules:
    """What a session lays down for its gates."""

    __slots__ = ("budget", "counts", "policy")

    def __init__(self, policy: Policy, budget: Budget) -> None:
        self.policy = policy
        self.budget = budget
        self.counts = Counts()


class Step:
    """One call on its way. Gates read it, and fill in what the later ones need."""

    __slots__ = (
        "_desk", "arguments", "arguments_hash", "call", "clock", "context", "converted", "repairs", "rules",
        "still_running", "tool", "warnings",
    )  # fmt: skip

    def __init__(self, call: Call, tool: Tool, desk: Desk, clock: CallClock, rules: Rules) -> None:
        self.call = call
        self.tool = tool
        self.context = Context(call, clock, desk)
        self.clock = clock
        self.rules = rules
        self._desk = desk
        self.arguments_hash = ""
        """Of the arguments as they were sent."""
        self.arguments: Mapping[str, Any] = {}
        """What preflight let through: plain JSON that fits the schema."""
        self.converted: Mapping[str, Any] = {}
        """The same in the function's own types."""
        self.repairs: tuple[Any, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.still_running = False
        """The body could not be stopped and may still be at work."""

    def emit(self, type: EventType, data: Mapping[str, Any]) -> None:
        """Write an event of this call."""
        self._desk.emit(type, self.call.id, self.call.parent, data)


Next = Callable[[Step], Awaitable[Result]]
Gate = Callable[[Step, Next], Awaitable[Result]]


def fold(gates: Sequence[Gate]) -> Next:
    """One function that walks the whole list; the last gate has nobody behind it."""
    chain: Next = _end
    for gate in reversed(gates):
        chain = _link(gate, chain)
    return chain


def _link(gate: Gate, proceed: Next) -> Next:
    return lambda step: gate(step, proceed)


async def _end(step: Step) -> Result:
    return Failure("execution_error", f"No gate ran {step.tool.name}: the last gate of the list must be `invoke`.")
