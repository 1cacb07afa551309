"""A Session: every call enters here, passes the gates, and is recorded in the transcript."""

from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from os import urandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Unpack

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

from handrail.aio import OwnLoop, finish, on_own_loop, refuse_other_loops, running_loop
from handrail.artifacts.store import Artifacts, Scope, scope_for
from handrail.contract.approval import Approver
from handrail.contract.call import Arguments, Call, Origin
from handrail.contract.errors import HandrailError
from handrail.contract.event import Event, EventType, Reader
from handrail.contract.limits import CALL_END_WAIT, DEFAULT_BUDGET, DETACHED_APPROVAL_WAIT, Budget, Caps
from handrail.contract.result import Result
from handrail.drivers.open import open_own_guard
from handrail.gates.budget import budget as budget_gate
from handrail.gates.record import record
from handrail.log import clean_logs
from handrail.misuse import AsyncWith, explains_misuse
from handrail.policy.policy import Policy
from handrail.sandbox.sandbox import Sandbox
from handrail.session import _checks
from handrail.session._commands import bound_sandbox, report_late_to, sandbox_id
from handrail.session._facts import facts_of
from handrail.session._host import CallHost, SessionHost
from handrail.session._ids import CallIds
from handrail.session._live import LiveOutput
from handrail.session._memory import Memory
from handrail.session._readers import ReaderQueue
from handrail.session._resume import Past, go_on, ids_in
from handrail.session._secrets import CleanEvents, scrubber_for, with_secrets
from handrail.session._together import CallsTogether
from handrail.session._transcript import Transcript
from handrail.session.door import open_door
from handrail.session.options import SessionOptions
from handrail.session.pending import Begun, Pending
from handrail.session.standard import admit
from handrail.toolkit.clock import CallClock
from handrail.toolkit.context import Context, Host
from handrail.toolkit.gate import Counts, Gate, SessionState, Step, fold
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox, Tools, few
from handrail.toolkit.tracing import Tracing, checked_tracing

if TYPE_CHECKING:
    from handrail.store.store import Store

CALLS_PER_TURN: Final = 64
"""Calls after which other tasks on the event loop get a turn."""


@explains_misuse
class Session(AsyncWith):
    """Tools, their sandbox and their rules for one task. Use it with `async with`.

    Args:
        tools: functions, Tools, or a Toolbox that sessions may share; or a registry with `get` and `all`.
        sandbox: an open one, for tools that need files or commands.
        policy: which calls run, which ask, and which are refused.
        approver: a function that asks a person. Without one, what asks is refused.
        budget: how many calls, requests, tokens, dollars and seconds one run may use.
        caps: how much of an answer the model is shown.
        artifacts: where long answers and files are kept; a store that goes with the session if None.
        readers: functions of an Event, `def` or `async def`, that receive every event.
        state: any object of yours; bodies get it as `context.state`.
        host: the program around the session, which answers a tool's questions and starts its tasks.
        gates: the gates of every call, if not STANDARD.
        tracing: handrail.otel.Tracing, for spans.
        store: keeps the session in a file, so that `Session.resume` can go on with it.
        secrets: texts that no event, result, artifact, log or span may contain; `[secret]` takes their place.
        call_timeout: seconds after which any call is ended, also of a tool that keeps its own clock.
        id: the session's own, which artifacts and a store know it by; a random one if None.
        door: whether other processes of this user may watch, answer and end the session (`Store.attach`).
    """

    _idle: anyio.Event | None
    depth = 0
    """How many tasks it is inside of."""
    task: str | None = None
    """The id of the task that it works on, in a child session."""

    def __init__(
        self, tools: Tools = (), *, sandbox: Sandbox | None = None, policy: Policy = Policy(),
        approver: Approver | None = None, budget: Budget = DEFAULT_BUDGET, caps: Caps = Caps(),
        artifacts: Artifacts | Scope | None = None, readers: Sequence[Reader] = (), state: Any = None,
        host: Host | None = None, gates: Sequence[Gate] | None = None, tracing: Tracing | None = None,
        store: "Store | Past | None" = None, secrets: Sequence[str] = (), call_timeout: float | None = None,
        id: str | None = None, door: bool = False,
    ) -> None:  # fmt: skip
        refuse_other_loops("A Session")
        _checks.check_options(sandbox, policy, approver, budget, caps, host, call_timeout, id)
        self.id, self.sandbox, self.state, self.own_loop = id or urandom(6).hex(), sandbox, state, OwnLoop()
        self.toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.host = SessionHost(self.toolbox, host, self.own_loop, self._emit_own)
        self.call_count, self._entered, self._closed = 0, False, False
        self.scrubber = scrubber_for(secrets)
        """Removes the session's secrets from texts and data; None without secrets."""
        self.shared = SessionState(policy, budget, approver, sandbox, caps)
        self.shared.open_guard, self.shared.call_timeout = open_own_guard, call_timeout
        self.tracing = checked_tracing(tracing)
        self.is_budgeted = budget_gate in (known := _checks.checked_gates(gates))  # they may be anybody's
        walked = with_secrets(known, self.scrubber)
        self._walk = fold([*([] if tracing is None else [tracing.call]), *walked])
        self.memories = Memory()
        self.opened_by: dict[str, Any] = {}
        """What the program around the session adds to its first event: the model's name, the system text."""
        stored, past = (None, ()) if store is None else store.open(self.id)
        clean = None if self.scrubber is None else CleanEvents(self.scrubber)
        self._transcript = made = Transcript(stored, past, self.facts, clean)
        self.door = open_door(door, made, stored, self.shared, self.terminate)
        """Lets other processes in; None without one."""
        self.forget_calls_beyond, self.flush, self.settle = made.forget_calls_beyond, made.flush, made.settle
        self.begin_body, self.begin_when_free, self.release = made.begin, made.begin_when_free, made.release
        self.memory_changes, self._idle = self.memories.changes, None
        self._running: dict[str, Step] = {}
        self._begun = Begun(self.own_loop, self._running, self.flush if record in walked else None)
        self.ids = CallIds(ids_in(past), self.scrubber)
        self._readers = [ReaderQueue(each, self._warn) for each in _checks.functions("readers", readers, 1, "[print]")]
        self._transcript.listeners = [reader.put for reader in self._readers]
        self._open = AsyncExitStack()
        self.artifacts = self._scoped(artifacts if store is None or artifacts is not None else store.artifacts)
        self._open.callback(report_late_to(self, sandbox))
        _checks.check_tools(self.toolbox, self.shared)

    def __repr__(self) -> str:
        what = f"tools {few(self.toolbox.names())}; {self.sandbox or 'no sandbox'}; policy {self.shared.policy.mode}"
        return f"<Session {self.id}: {what}; {self.call_count} calls{', closed' if self._closed else ''}>"

    @classmethod
    def resume(
        cls, store: "Store", id: str, *, allow_other_workspace: bool = False, allow_weaker: bool = False,
        **options: Unpack[SessionOptions],
    ) -> "Session":  # fmt: skip
        """Go on with a stored session; the options are those of a new one.

        Calls that had begun when the program ended get an `unknown_outcome`, those that had not are `unavailable`;
        nothing runs again by itself. Budgets begin anew; remembered rules stay under the same policy and sandbox.
        """
        past = Past(store, id)
        return go_on(cls(**options, store=past, id=id), past, other=allow_other_workspace, weaker=allow_weaker)

    async def __aenter__(self) -> "Session":
        if self._entered:
            raise HandrailError(f"session {self.id} was entered before; make a new Session for each `async with`")
        self._entered = True
        if self.sandbox is not None:
            await self._open.enter_async_context(self.sandbox)
        await self.toolbox.refresh()
        self._open.push_async_callback(finish, self._begun.end)
        for reader in self._readers:
            reader.begin()
        if self.door is not None:
            self._open.push_async_callback(finish, self.door.close)
            if why := await self.door.open():
                self._warn(why)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._closed = True
        try:
            return await self._open.__aexit__(kind, error, trace)
        finally:  # readers still get the events of the sandbox's closing
            try:
                await finish(self._finish)
            finally:
                self._transcript.close()

    async def call(
        self,
        name: str,
        arguments: Arguments = "{}",
        *,
        origin: Origin = "model",
        parent: str | None = None,
        id: str | None = None,
        approved: str | None = None,
        **misplaced: Never,
    ) -> Result:
        """Run one tool and return its result. A tool's error is a Failure, never an exception.

        `parent` is the id of the running call that makes this one. `approved` is the hash of the arguments that a
        person has approved, as a deferred call tells it; they are let through once.
        """
        if misplaced or not (approved is None or isinstance(approved, str)):
            _checks.refuse_options(name, approved, misplaced)
        # As on_own_loop does, without a coroutine more on the way of every call:
        if self.own_loop.loop is not running_loop() and not self.own_loop.here():
            there = partial(self.call, name, arguments, origin=origin, parent=parent, id=id, approved=approved)
            return await self.own_loop.run(there)
        if self.toolbox.waits:
            await self.toolbox.look_up(name)
        step = self._admit(Call(id or self.ids.next(), name, arguments, origin=origin, parent=parent))
        step.approved = approved
        return await self.run_step(step)

    def begin(
        self, name: str, arguments: Arguments = "{}", *, origin: Origin = "model", parent: str | None = None,
        id: str | None = None, wait: float = DETACHED_APPROVAL_WAIT, asks: bool = True,
    ) -> Pending:  # fmt: skip
        """Start a call that runs in a task of the session and ends with it; its approvals come out of the Pending.

        `wait` is how many seconds a person has for one answer. Unless it `asks`, what needs approval is refused.
        """
        call = Call(id or self.ids.next(), name, arguments, origin=origin, parent=parent)
        return self._begun.begin(lambda: self._admit(call), self.run_step, wait, asks)

    @on_own_loop
    async def call_all(self, calls: Sequence[Call], *, into: dict[int, Result] | None = None) -> list[Result]:
        """Run calls concurrently where their lanes allow; return the results in the order of the calls.

        `into` is filled as results arrive, so that a cancelled caller still has them.
        """
        results: dict[int, Result] = {} if into is None else into
        _checks.check_calls(calls)
        for call in calls if self.toolbox.waits else ():
            await self.toolbox.look_up(call.name)
        if len(calls) == 1:
            results[0] = await self.run_step(self._admit(calls[0]))
        elif calls:
            self._check_open()
            await CallsTogether(self, calls, results).run()
        return [results[number] for number in range(len(calls))]

    def begin_run(self) -> None:
        """Start a new user turn with new budgets and breaker counts. Calls that still run keep the old ones."""
        self.shared.counts = Counts(self.shared.budget)
        self.shared.counts.clock.start()
        self.shared.tasks_ended = False

    @on_own_loop
    async def terminate(self, id: str) -> bool:
        """End a running call, task (CALL/N) or background job for a person. Returns whether there was one.

        A command gets TERM, 3 s later KILL, and its call keeps the output; anything else ends at once.
        """
        if self.sandbox is not None and (
            await self.sandbox.terminate(sandbox_id(self, id)) or await self.sandbox.terminate(id)
        ):
            return True
        if (step := self._running.get(id)) is not None:
            step.terminate()
        return step is not None

    def host_for(self, call: Call) -> Host:
        """The host as one call sees it."""
        return CallHost(self.host, call)

    def offer(self, tool: Tool) -> None:
        """Add or replace a tool in this session alone: its Toolbox may serve others too, and stays as it is."""
        self.toolbox = self.toolbox.having(tool)
        self.host.use(self.toolbox)

    def schemas(self, provider: str) -> list[dict[str, Any]]:
        """The schemas to offer to the model, in this provider's form, in a stable order."""
        return self.host.schemas(provider)

    def events(self, start: int = 0) -> AsyncIterator[Event]:
        """Yield every event from number `start`, then each new one, until the session ends."""
        return self._transcript.follow(start)

    @property
    def ended(self) -> bool:
        """Whether the session is closed and its last event was written."""
        return self._transcript.closed

    @property
    def trace(self) -> tuple[Event, ...]:
        """Every event so far."""
        return self._transcript.all()

    @property
    def event_count(self) -> int:
        return self._transcript.count

    def trace_from(self, start: int) -> list[Event]:
        """The events from number `start` on, stored or not: for the loop itself, which shows them to nobody."""
        return self._transcript.since(start)

    @property
    def store_error(self) -> str:
        """Why the store lacks the last events; empty if it has all that anybody was shown, or there is no store."""
        return self._transcript.store_error

    def emit(
        self, type: EventType, call_id: str | None = None, parent: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write an event into the transcript. Raises HandrailError for one that nobody could read later."""
        if type not in _checks.UNCHECKED:
            _checks.check_event(type, call_id, parent, data or {})
        self._transcript.write(type, call_id, parent, data or {})

    def live_output(self, call: Call) -> LiveOutput:
        """The live output of a call."""
        return LiveOutput(self._transcript, call, self.own_loop)

    def memory(self, tool_name: str, *, lasts: bool = False) -> MutableMapping[str, Any]:
        """A dictionary that a tool keeps for the rest of the session; if it lasts, also after a resume."""
        return self.memories.of(tool_name, lasts=lasts)

    def facts(self) -> dict[str, Any]:
        """With what the session works, for its first event."""
        return facts_of(self.toolbox, self.shared, self.opened_by)

    @property
    def budget(self) -> Budget:
        """What one run may use."""
        return self.shared.budget

    @property
    def tokens_left(self) -> int | None:
        """Tokens left in the model's context; answers shrink with it. None until a loop sets it."""
        return self.shared.tokens_left

    @tokens_left.setter
    def tokens_left(self, count: int | None) -> None:
        self.shared.tokens_left = count

    def caps_for(self, output_cap: int | None) -> Caps:
        """How much a tool with this cap of its own may answer now."""
        return self.shared.caps.fitting(self.shared.tokens_left, output_cap)

    def sandbox_for(self, context: Context) -> Any:
        """The sandbox as one call sees it."""
        return bound_sandbox(self, context)

    @property
    def is_open(self) -> bool:
        """Whether the session takes calls."""
        return not self._closed

    def _check_open(self) -> None:
        if not self.is_open:
            raise HandrailError(f"session {self.id} is closed; open a new session for further calls")

    def _admit(self, call: Call) -> Step:
        if self._closed:
            self._check_open()
        if not (type(call.id) is type(call.name) is str and (call.parent is None or type(call.parent) is str)):
            _checks.check_call(call)
        return self.accept(self.ids.take(call))

    def accept(self, call: Call) -> Step:
        """Accept a call whose id is taken: from now on it will have exactly one call_ended event."""
        self.call_count += 1
        shared, parent = self.shared, self._running.get(call.parent) if call.parent else None
        shared.counts.clock.start()
        clock = CallClock(parent.clock if parent else shared.counts.clock)
        clock.start()
        step = Step(call, self.host.find(call.name), self, clock, shared, parent)
        admit(step)
        return step

    async def run_step(self, step: Step) -> Result:
        """Let an accepted call pass the gates."""
        self._running[step.call.id] = step
        if self.call_count % CALLS_PER_TURN == 0:
            await cancel_shielded_checkpoint()  # readers get their turn even if no tool awaits anything
        try:
            result = await self._walk(step)
            if self._transcript.store_error:  # another process may have it locked; the caller sees what is stored
                await self.settle()
            return result
        finally:
            del self._running[step.call.id]
            if self._idle is not None and not self._running:
                self._idle.set()
            if step.slot is not None:
                step.slot.leave()

    async def _finish(self) -> None:
        """Give calls that are being ended the time to end, then show everything to the readers."""
        if self._running:
            self._idle = anyio.Event()
            with anyio.move_on_after(CALL_END_WAIT):
                await self._idle.wait()
        self._transcript.finish_output()
        for reader in self._readers:
            await reader.finish()
        await self._transcript.settle()

    def _scoped(self, given: Artifacts | Scope | None) -> Scope:
        """The session's scope of the artifacts; a store of its own is closed with the session."""
        scope, own = scope_for(self.id, given)
        if self.scrubber is not None:
            scope = scope.without(self.scrubber)
            clean_logs(self.scrubber)
        if own is not None:
            self._open.callback(own.close)
        return scope

    def _emit_own(self, type: EventType, data: Mapping[str, Any]) -> None:
        self.emit(type, data=data)

    def _warn(self, message: str, traceback: str = "") -> None:
        self.emit("warning", data={"message": message, **({"traceback": traceback} if traceback else {})})
