"""The inside of a Session: what the gates, the agent and the adapters use of it, and its user does not."""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

from handrail.aio import OwnLoop, running_loop
from handrail.artifacts.store import Scope
from handrail.clock import CallClock
from handrail.contract.call import Arguments, Call, Origin
from handrail.contract.errors import HandrailError
from handrail.contract.event import EventType
from handrail.contract.limits import Budget, Caps
from handrail.contract.result import Result
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox
from handrail.session import _checks
from handrail.session._commands import bound_sandbox
from handrail.session._facts import facts_of
from handrail.session._ids import CallIds
from handrail.session._live import LiveOutput
from handrail.session._memory import Memory
from handrail.session._offered import OfferedTools
from handrail.session._together import CallsTogether
from handrail.session._transcript import Transcript
from handrail.session.host import LoopRun, SessionHost
from handrail.session.standard import admit
from handrail.toolkit.context import Context, Host
from handrail.toolkit.gate import Counts, Next, SessionState, Step
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox
from handrail.toolkit.tracing import Tracing

if TYPE_CHECKING:
    from handrail.scrub import Scrubber
    from handrail.session._door import Door

CALLS_PER_TURN: Final = 64
"""Calls after which other tasks on the event loop get a turn."""


@dataclass(eq=False)
class SessionCore:
    """One session, or one task in it: the child of a session shares what the constructor is given of its parent."""

    id: str
    toolbox: Toolbox
    shared: SessionState
    transcript: Transcript
    artifacts: Scope
    ids: CallIds
    walk: Next
    """The gates, folded into one function."""
    own_loop: OwnLoop
    running: dict[str, Step]
    """Calls that have begun and not ended, and tasks, by id."""
    state: Any
    person: Host | None
    """The host that the session was given."""
    scrubber: "Scrubber | None"
    """Removes the session's secrets from texts and data; None without secrets."""
    tracing: Tracing | None
    is_budgeted: bool
    """Whether the gate `budget` is among the gates, which may be anybody's."""
    loaded: Iterable[str] = ()
    """Deferred tools that the model sees from the beginning."""
    parent: "SessionCore | None" = None
    task: str | None = None
    """Id of the task that a child session works on: parent of its events, and beginning of its calls' ids."""
    depth: int = 0
    """How many tasks the session is inside of."""
    door: "Door | None" = None
    """Lets other processes in; None without one."""
    opened_by: dict[str, Any] = field(default_factory=dict)
    """Facts for the first event from the program around the session: the model's name, the system text."""

    def __post_init__(self) -> None:
        self.tools = OfferedTools(self.toolbox, self._tell, self.loaded)
        self.memories = Memory()
        self.run: LoopRun | None = None
        """The run of an agent that is under way."""
        self.task_numbers: dict[str, int] = {}
        """Tasks that each call has started, by call."""
        self.jobs: list[Job] = []
        """Background jobs of a task, which end with it."""
        self.call_count = 0
        self.closed = False
        self.idle: anyio.Event | None = None
        """Set when no call runs any more, while the session closes."""
        # Bound once: each call uses them.
        self.begin_body, self.begin_when_free = self.transcript.begin, self.transcript.begin_when_free
        self.flush, self.settle = self.transcript.flush, self.transcript.settle

    @property
    def sandbox(self) -> Sandbox | None:
        return self.shared.sandbox

    @property
    def budget(self) -> Budget:
        """Limits of one run."""
        return self.shared.budget

    @property
    def store_error(self) -> str:
        """Why the store lacks the last events; empty if it has all that anybody was shown, or there is no store."""
        return self.transcript.store_error

    @property
    def is_open(self) -> bool:
        """Whether the session takes calls."""
        return not self.closed and (self.parent is None or self.parent.is_open)

    def facts(self) -> dict[str, Any]:
        """Data of the session's first event: with what it works."""
        return facts_of(self.toolbox, self.shared, self.opened_by)

    def begin_run(self) -> None:
        """Start a new user turn with new budgets and breaker counts; a task uses those of its parent's run."""
        if self.task is None:
            self.shared.counts = Counts(self.shared.budget)
            self.shared.counts.clock.start()
            self.shared.tasks_ended = False

    def add_tool(self, tool: Tool) -> None:
        """Add or replace a tool in this session alone: its Toolbox may serve others too, and stays as it is."""
        self.toolbox = self.toolbox.having(tool)
        self.tools.use(self.toolbox)

    def emit(
        self, type: EventType, call_id: str | None = None, parent: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write an event; in a child session, under its task. Raises HandrailError for one that nobody could read."""
        if type not in _checks.UNCHECKED:
            _checks.check_event(type, call_id, parent, data or {})
        self.transcript.write(type, call_id, parent or self.task, data or {})

    def _tell(self, type: EventType, data: Mapping[str, Any]) -> None:
        self.emit(type, data=data)

    async def call(
        self, name: str, arguments: Arguments = "{}", *, origin: Origin = "model", parent: str | None = None,
        id: str | None = None, approved: str | None = None,
    ) -> Result:  # fmt: skip
        """Run one tool, on the session's own event loop, and return its result."""
        # As on_own_loop does, without a coroutine more on the way of every call:
        if self.own_loop.loop is not running_loop() and not self.own_loop.here():
            there = partial(self.call, name, arguments, origin=origin, parent=parent, id=id, approved=approved)
            return await self.own_loop.run(there)
        if self.toolbox.waits:
            await self.toolbox.look_up(name)
        step = self.admit(Call(id or self.ids.next(), name, arguments, origin=origin, parent=parent))
        step.approved = approved
        return await self.run_step(step)

    async def call_all(self, calls: Sequence[Call], into: dict[int, Result]) -> list[Result]:
        """Run checked calls on the session's own event loop, concurrently where their lanes allow."""
        for call in calls if self.toolbox.waits else ():
            await self.toolbox.look_up(call.name)
        if len(calls) == 1:
            into[0] = result = await self.run_step(self.admit(calls[0]))
            return [result]
        if calls:
            self.check_open()
            await CallsTogether(self, calls, into).run()
        return [into[number] for number in range(len(calls))]

    def check_open(self) -> None:
        """Raise HandrailError unless the session takes calls."""
        if not self.is_open:
            raise HandrailError(f"session {self.id} is closed; open a new session for further calls")

    def admit(self, call: Call) -> Step:
        """Check a call, give it an id of its own, and accept it."""
        if self.closed or self.parent is not None:
            self.check_open()
        if not (type(call.id) is type(call.name) is str and (call.parent is None or type(call.parent) is str)):
            _checks.check_call(call)
        return self.accept(self.ids.take(call))

    def accept(self, call: Call) -> Step:
        """Accept a call whose id is taken: from now on it will have exactly one call_ended event."""
        if self.task is not None and not call.parent:
            call = replace(call, parent=self.task)
        self.call_count += 1
        shared, parent = self.shared, self.running.get(call.parent) if call.parent else None
        shared.counts.clock.start()
        clock = CallClock(parent.clock if parent else shared.counts.clock)
        clock.start()
        step = Step(call, self.tools.find(call.name), self, clock, shared, parent)
        admit(step)
        return step

    async def run_step(self, step: Step) -> Result:
        """Let an accepted call pass the gates."""
        self.running[step.call.id] = step
        if self.call_count % CALLS_PER_TURN == 0:
            await cancel_shielded_checkpoint()  # readers get their turn even if no tool awaits anything
        try:
            result = await self.walk(step)
            if self.transcript.store_error:  # another process may have it locked; the caller sees what is stored
                await self.settle()
            return result
        finally:
            del self.running[step.call.id]
            if self.idle is not None and not self.running:
                self.idle.set()
            if step.slot is not None:
                step.slot.leave()

    def host_for(self, call: Call) -> Host:
        """The host as one call sees it."""
        return SessionHost(self, call)

    def sandbox_for(self, context: Context) -> Any:
        """The sandbox as one call sees it."""
        return bound_sandbox(self, context)

    def caps_for(self, output_cap: int | None) -> Caps:
        """How much a tool with this cap of its own may answer now."""
        return self.shared.caps.fitting(self.shared.tokens_left, output_cap)

    def live_output(self, call: Call) -> LiveOutput:
        """The live output of a call."""
        return LiveOutput(self.transcript, call, self.own_loop)

    def memory(self, tool_name: str, *, lasts: bool = False) -> MutableMapping[str, Any]:
        """A dictionary that a tool keeps for the rest of the session; if it lasts, also after a resume."""
        return self.memories.of(tool_name, lasts=lasts)

    def memory_changes(self) -> dict[str, dict[str, Any]]:
        """Changes of what lasts, since the last call; nothing of a task lasts, as a task is not resumed."""
        return self.memories.changes() if self.task is None else {}
