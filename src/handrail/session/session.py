"""A Session: every call enters here, passes the gates, and is recorded in the transcript."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from os import urandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Unpack

import anyio

from handrail.aio import OwnLoop, finish, on_own_loop, refuse_other_loops
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
from handrail.misuse import AsyncWith, expect, explains_misuse
from handrail.policy.policy import Policy
from handrail.sandbox.sandbox import Sandbox
from handrail.session import _checks
from handrail.session._commands import report_late_to, sandbox_id
from handrail.session._door import open_door
from handrail.session._ids import CallIds
from handrail.session._readers import ReaderQueue
from handrail.session._resume import ResumedSession, ids_in, restore
from handrail.session._secrets import CleanEvents, scrubber_for, with_secrets
from handrail.session._transcript import Transcript
from handrail.session.core import SessionCore
from handrail.session.options import SessionOptions
from handrail.session.pending import Pending, PendingCalls
from handrail.session.standard import STANDARD
from handrail.toolkit.context import Host
from handrail.toolkit.gate import Gate, SessionState, fold
from handrail.toolkit.toolbox import Toolbox, Tools, few
from handrail.toolkit.tracing import Tracing, checked_tracing

if TYPE_CHECKING:
    from handrail.scrub import Scrubber
    from handrail.store.store import Store
    from handrail.store.stored import StoredSession


@explains_misuse
class Session(AsyncWith):
    """Tools, their sandbox and their rules for one task. Use it with `async with`.

    Example:
        ```python
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b

        async with Session([add]) as session:
            print((await session.call("add", {"a": "40", "b": 2})).value)
        #> 42
        ```

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

    def __init__(
        self, tools: Tools = (), *, sandbox: Sandbox | None = None, policy: Policy = Policy(),
        approver: Approver | None = None, budget: Budget = DEFAULT_BUDGET, caps: Caps = Caps(),
        artifacts: Artifacts | Scope | None = None, readers: Sequence[Reader] = (), state: Any = None,
        host: Host | None = None, gates: Sequence[Gate] | None = None, tracing: Tracing | None = None,
        store: "Store | ResumedSession | None" = None, secrets: Sequence[str] = (), call_timeout: float | None = None,
        id: str | None = None, door: bool = False,
    ) -> None:  # fmt: skip
        refuse_other_loops("A Session")
        _checks.check_options(sandbox, policy, approver, budget, caps, host, call_timeout, id)
        id = id or urandom(6).hex()
        self._entered = False
        self._open = AsyncExitStack()
        toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        scrubber = scrubber_for(secrets)
        shared = SessionState(policy, budget, approver, sandbox, caps)
        shared.open_guard, shared.call_timeout = open_own_guard, call_timeout
        walked = with_secrets(known := _checks.checked_gates(gates), scrubber)
        traced = [] if checked_tracing(tracing) is None or tracing is None else [tracing.call]
        read = _checks.functions("readers", readers, 1, "[print]")
        stored, past = _opened(store, id)
        clean = None if scrubber is None else CleanEvents(scrubber)
        transcript = Transcript(stored, past, self._facts, clean)
        kept = artifacts if store is None or artifacts is not None else store.artifacts
        self._core = core = SessionCore(
            id=id, toolbox=toolbox, shared=shared, transcript=transcript, artifacts=self._scoped(id, kept, scrubber),
            ids=CallIds(ids_in(past), scrubber), walk=fold([*traced, *walked], STANDARD), own_loop=OwnLoop(),
            running={}, state=state, person=host, scrubber=scrubber, tracing=tracing,
            is_budgeted=budget_gate in known, door=open_door(door, transcript, stored, shared, self.terminate),
        )  # fmt: skip
        self._pending = PendingCalls(core.own_loop, core.running, transcript.flush if record in walked else None)
        self._readers = [ReaderQueue(each, self._warn) for each in read]
        transcript.listeners = [reader.put for reader in self._readers]
        self._open.callback(report_late_to(core, sandbox))
        _checks.check_tools(toolbox, shared)

    def __repr__(self) -> str:
        core = self._core
        what = f"tools {few(core.toolbox.names())}; {core.sandbox or 'no sandbox'}; policy {core.shared.policy.mode}"
        return f"<Session {core.id}: {what}; {core.call_count} calls{', closed' if core.closed else ''}>"

    @property
    def own_loop(self) -> OwnLoop:
        """The event loop to which the session belongs; its methods may be awaited on any."""
        return self._core.own_loop

    @property
    def id(self) -> str:
        """The id by which artifacts and a store know the session."""
        return self._core.id

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox that tools work in."""
        return self._core.shared.sandbox

    @property
    def toolbox(self) -> Toolbox:
        """The tools of the session."""
        return self._core.toolbox

    @property
    def artifacts(self) -> Scope:
        """The artifacts that the session may see."""
        return self._core.artifacts

    @property
    def state(self) -> Any:
        """The object that the session was given; bodies get it as `context.state`."""
        return self._core.state

    @property
    def scrubber(self) -> "Scrubber | None":
        """Removes the session's secrets from texts and data; None without secrets."""
        return self._core.scrubber

    @property
    def call_count(self) -> int:
        """How many calls the session has accepted."""
        return self._core.call_count

    @classmethod
    def resume(
        cls, store: "Store", id: str, *, allow_other_workspace: bool = False, allow_weaker: bool = False,
        **options: Unpack[SessionOptions],
    ) -> "Session":  # fmt: skip
        """Go on with a stored session; the options are those of a new one.

        Calls that had begun when the program ended get an `unknown_outcome`, those that had not are `unavailable`;
        nothing runs again by itself. Budgets begin anew; remembered rules stay under the same policy and sandbox.
        """
        past = ResumedSession(store, id)
        try:
            session = cls(**options, store=past, id=id)
            restore(session._core, past.events, other=allow_other_workspace, weaker=allow_weaker)
        except BaseException:
            past.stored.close()  # others may have the session
            raise
        return session

    async def __aenter__(self) -> "Session":
        if self._entered:
            raise HandrailError(f"session {self.id} was entered before; make a new Session for each `async with`")
        self._entered = True
        if self.sandbox is not None:
            await self._open.enter_async_context(self.sandbox)
        await self.toolbox.refresh()
        self._open.push_async_callback(finish, self._pending.end)
        for reader in self._readers:
            reader.begin()
        if (door := self._core.door) is not None:
            self._open.push_async_callback(finish, door.close)
            if why := await door.open():
                self._warn(why)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._core.closed = True
        try:
            return await self._open.__aexit__(kind, error, trace)
        finally:  # readers still get the events of the sandbox's closing
            try:
                await finish(self._finish)
            finally:
                self._core.transcript.close()

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
        return await self._core.call(name, arguments, origin=origin, parent=parent, id=id, approved=approved)

    def begin(
        self, name: str, arguments: Arguments = "{}", *, origin: Origin = "model", parent: str | None = None,
        id: str | None = None, wait: float = DETACHED_APPROVAL_WAIT, asks: bool = True,
    ) -> Pending:  # fmt: skip
        """Start a call that runs in a task of the session and ends with it; its approvals come out of the Pending.

        `wait` is how many seconds a person has for one answer. Unless it `asks`, what needs approval is refused.
        """
        core, call_id = self._core, id or self._core.ids.next()
        call = Call(call_id, name, arguments, origin=origin, parent=parent)
        return self._pending.begin(lambda: core.admit(call), core.run_step, wait, asks)

    @on_own_loop
    async def call_all(self, calls: Sequence[Call], *, into: dict[int, Result] | None = None) -> list[Result]:
        """Run calls concurrently where their lanes allow; return the results in the order of the calls.

        `into` is filled as results arrive, so that a cancelled caller still has them.
        """
        _checks.check_calls(calls)
        return await self._core.call_all(calls, {} if into is None else into)

    def begin_run(self) -> None:
        """Start a new user turn with new budgets and breaker counts. Calls that still run keep the old ones."""
        self._core.begin_run()

    @on_own_loop
    async def terminate(self, id: str) -> bool:
        """End a running call, task (CALL/N) or background job for a person. Returns whether there was one.

        A command gets TERM, 3 s later KILL, and its call keeps the output; anything else ends at once.
        """
        if self.sandbox is not None and (
            await self.sandbox.terminate(sandbox_id(self._core, id)) or await self.sandbox.terminate(id)
        ):
            return True
        if (step := self._core.running.get(id)) is not None:
            step.terminate()
        return step is not None

    def schemas(self, provider: str) -> list[dict[str, Any]]:
        """The schemas to offer to the model, in this provider's form, in a stable order."""
        return self._core.tools.schemas(provider)

    def events(self, start: int = 0) -> AsyncIterator[Event]:
        """Yield every event from number `start`, then each new one, until the session ends."""
        return self._core.transcript.follow(start)

    @property
    def trace(self) -> tuple[Event, ...]:
        """Every event so far."""
        return self._core.transcript.all()

    @property
    def event_count(self) -> int:
        """The number of the next event: where `events` begins with what is new."""
        return self._core.transcript.count

    @property
    def store_error(self) -> str:
        """Why the store lacks the last events; empty if it has all that anybody was shown, or there is no store."""
        return self._core.store_error

    def flush(self) -> bool:
        """Write the events that wait to the store. Returns whether all are written; if not, a warning says why."""
        return self._core.flush()

    def emit(
        self, type: EventType, call_id: str | None = None, parent: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write an event into the transcript. Raises HandrailError for one that nobody could read later."""
        self._core.emit(type, call_id, parent, data)

    @property
    def budget(self) -> Budget:
        """Limits of one run."""
        return self._core.shared.budget

    @property
    def tokens_left(self) -> int | None:
        """Tokens left in the model's context; answers shrink with it. None until a loop sets it."""
        return self._core.shared.tokens_left

    @tokens_left.setter
    def tokens_left(self, count: int | None) -> None:
        if count is not None:
            expect("tokens_left", count, int, "a whole number, or None")
        self._core.shared.tokens_left = count

    async def _finish(self) -> None:
        """Give calls that are being ended the time to end, then show everything to the readers."""
        core = self._core
        if core.running:
            core.idle = anyio.Event()
            with anyio.move_on_after(CALL_END_WAIT):
                await core.idle.wait()
        core.transcript.finish_output()
        for reader in self._readers:
            await reader.finish()
        await core.transcript.settle()

    def _facts(self) -> dict[str, Any]:
        return self._core.facts()

    def _scoped(self, id: str, given: Artifacts | Scope | None, scrubber: "Scrubber | None") -> Scope:
        """The session's scope of the artifacts; a store of its own is closed with the session."""
        scope, own = scope_for(id, given)
        if scrubber is not None:
            scope = scope.without(scrubber)
            clean_logs(scrubber)
        if own is not None:
            self._open.callback(own.close)
        return scope

    def _warn(self, message: str, traceback: str = "") -> None:
        self.emit("warning", data={"message": message, **({"traceback": traceback} if traceback else {})})


def core_of(session: Session) -> SessionCore:
    """The inside of a session, for the rooms above it."""
    return session._core


def _opened(store: "Store | ResumedSession | None", id: str) -> "tuple[StoredSession | None, tuple[Event, ...]]":
    """The session in its store, and the events that it has there."""
    if store is None:
        return None, ()
    return (store.stored, store.events) if isinstance(store, ResumedSession) else store.open(id)
