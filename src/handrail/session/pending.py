"""A Pending: a call that goes on by itself, and whose approvals are answered from elsewhere."""

import threading
from collections.abc import Callable, Coroutine, Mapping
from time import time
from typing import Any

import anyio

from handrail.aio import LOOP_CHECK_INTERVAL, OwnLoop, Task, call_on, in_background, loop_here, when_loop_closes
from handrail.contract.approval import ApprovalRequest, Decision
from handrail.contract.errors import HandrailError, describe_error
from handrail.contract.limits import CALL_END_WAIT, DETACHED_APPROVAL_WAIT
from handrail.contract.result import Failure, Result
from handrail.gates.record import cancelled, start
from handrail.misuse import expect
from handrail.policy.approvers import checked_wait
from handrail.session.standard import admit
from handrail.store.ends import never_began, never_started
from handrail.toolkit.gate import Step

Run = Callable[[Step], Coroutine[Any, Any, Result]]


def never_ran(step: Step) -> Failure:
    """Write the end of a call that was cancelled before its task began, and its start, unless `begin` has.

    Gives its slot back. Returns how it ended, as it was written.
    """
    failure = never_began(step.call.name)
    (_, started), (_, ended) = never_started(step.call, failure)
    if not step.arguments_hash:
        step.emit("call_started", started)
    step.emit("call_ended", ended)
    if step.slot is not None:
        step.slot.leave()
    return failure


class _Asked:
    """One request that waits for its answer. Meanwhile its call has no slot in its lane, unless it has entered it."""

    def __init__(self, request: ApprovalRequest, step: Step | None) -> None:
        self.request = request
        self._step = step
        self.decision = Decision.skip()
        self.answered = anyio.Event()
        self._parked = step if step is not None and step.slot is not None and not step.slot.entered else None
        if self._parked is not None:
            self._parked.slot.leave()

    @property
    def open(self) -> bool:
        """Whether an answer would count: not after its time, nor after a person has ended the call."""
        return time() <= self.request.expires_at and not (self._step is not None and self._step.terminated)

    def answer(self, decision: Decision, loop: Any) -> None:
        """Take the answer, and the last slot in the lane."""
        self.decision = decision
        if self._parked is not None:
            admit(self._parked)
        call_on(loop, self.answered.set)


class Pending:
    """One call that `Session.begin` started. It runs once, whoever waits for it and however often.

    Its methods may be used in any thread and on any event loop.

    Example:
        ```python
        @tool(risk="high", effects=["executes"])
        def act() -> str:
            "Act."
            return "acted"

        async with Session([act], policy=Policy(mode="ask")) as session:
            pending: Pending = session.begin("act")
            request = await pending.next()
            pending.answer(request.id, Decision.approve())
            print((await pending.next()).value)
        #> acted
        ```
    """

    def __init__(self, step: Step, running: Mapping[str, Step], wait: float, loop: Any) -> None:
        self.id = step.call.id
        """The id of its call."""
        self.wait = wait
        """Seconds that a person has for one answer."""
        self._step = step
        self._running = running
        self._lock = threading.RLock()  # the end of an event loop may come in the middle of anything
        self._asked: dict[str, _Asked] = {}
        self._result: Result | None = None
        self._waiting: dict[anyio.Event, Any] = {}
        """Wake-up calls of waiting tasks, and the event loop of each."""
        self._loop = loop
        self._task: Task | None = None
        self._began = self._cancelled = False

    def __repr__(self) -> str:
        state = "ended" if self._result is not None else "asks" if self._asked else "runs"
        return f"<Pending {self.id}: {self._step.call.name} {state}>"

    async def next(self) -> ApprovalRequest | Result:
        """The oldest request that nobody has answered, or the call's result, as soon as there is one of them.

        Many may wait, and many times: a request comes until it is answered, and the result comes ever after.
        """
        while True:
            with self._lock:
                if self._result is not None:
                    return self._result
                for asked in self._asked.values():
                    if asked.open:
                        return asked.request
                woken = anyio.Event()
                self._waiting[woken] = loop_here()
            try:
                await self._change(woken)
            finally:
                with self._lock:
                    self._waiting.pop(woken, None)

    def answer(self, request_id: str, decision: Decision) -> bool:
        """Answer a request. Whether the answer counted: not if it is unknown, answered, expired or settled."""
        expect("the answer", decision, Decision, "a Decision such as Decision.approve()")
        with self._lock:
            asked = self._asked.get(request_id)
            if asked is None or not asked.open:
                return False
            del self._asked[request_id]
            asked.answer(decision, self._loop)  # before the call can end, which gives its slot back
        return True

    def cancel(self) -> None:
        """End the call as its caller would: nobody is asked any more. A call that has ended keeps its result."""
        with self._lock:
            self._asked.clear()
            self._cancelled = True
        call_on(self._loop, lambda: self._task is not None and self._task.cancel())

    async def __call__(self, request: ApprovalRequest) -> Decision:
        """Answer as the approver of this call and of the calls inside it: wait until somebody calls `answer`."""
        asked = _Asked(request, self._running.get(request.call_id))
        with self._lock:
            self._asked[request.id] = asked
        self._wake()
        try:
            await asked.answered.wait()
            return asked.decision
        finally:
            with self._lock:
                self._asked.pop(request.id, None)

    def start(self, run: Run, ended: Callable[["Pending"], None]) -> None:
        """Run the call on its event loop; tell `ended` when it has its result."""
        call_on(self._loop, lambda: self._start(run, ended))

    def _start(self, run: Run, ended: Callable[["Pending"], None]) -> None:
        forget = when_loop_closes(self._lose_loop)

        def over(_: object) -> None:
            forget()
            self._end(cancelled(self._step) if self._began else never_ran(self._step))
            ended(self)

        self._task = in_background(self._work(run))
        self._task.add_done_callback(over)
        if self._cancelled:  # before it was here
            self._task.cancel()

    async def _work(self, run: Run) -> None:
        self._began = True
        try:
            self._end(await run(self._step))
        except Exception as error:  # noqa: BLE001 - only gates without `record` let one through, and nobody awaits it
            self._step.report(f"A gate of the tool {self._step.call.name!r}", error)
            self._end(Failure("execution_error", f"{self._step.call.name} failed: {describe_error(error)}"))

    async def _change(self, woken: anyio.Event) -> None:
        """Wait for a change, or for the end of the event loop on which the call runs."""
        while not woken.is_set():
            with anyio.move_on_after(LOOP_CHECK_INTERVAL):
                await woken.wait()
            if not woken.is_set() and self._loop is not loop_here() and not self._loop.is_running():
                self._lose_loop()

    def _lose_loop(self) -> None:
        message = f"The event loop of {self._step.call.name} ended before it answered; it may have had effects."
        self._end(Failure("cancelled", message))

    def _end(self, result: Result) -> None:
        with self._lock:
            self._result = result if self._result is None else self._result
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            for woken, loop in self._waiting.items():
                call_on(loop, woken.set)


class PendingCalls:
    """The calls that `Session.begin` has started and that have not ended."""

    def __init__(self, own_loop: OwnLoop, running: dict[str, Step], store: Callable[[], bool] | None) -> None:
        self._own_loop = own_loop
        self._store = store
        """Stores what was written; None where no gate records calls."""
        self._running = running
        self._open: set[Pending] = set()
        self._changing = threading.Lock()
        """A call is either there before the session ends, or refused."""
        self._empty: anyio.Event | None = None

    def begin(self, admit: Callable[[], Step], run: Run, wait: float, asks: bool) -> Pending:
        """Start the call that `admit` accepts. Raises HandrailError where no event loop can run it."""
        loop, wait = self._usable_loop(), checked_wait("begin's wait", wait, DETACHED_APPROVAL_WAIT)
        with self._changing:
            step = admit()
            pending = Pending(step, self._running, wait, loop)
            step.approver = pending if asks else None
            self._running[step.call.id] = step
            self._open.add(pending)
        if self._store is not None:  # before the caller is shown the id of the call
            start(step)
            self._store()
        pending.start(run, self._ended)
        return pending

    async def end(self) -> None:
        """Cancel the calls, and give them the time to end."""
        with self._changing:
            begun = tuple(self._open)
        for pending in begun:
            pending.cancel()
        self._empty = anyio.Event()
        with anyio.move_on_after(CALL_END_WAIT):
            while self._open:
                await self._empty.wait()

    def _usable_loop(self) -> Any:
        if loop_here() is not None:
            self._own_loop.here()
        loop = self._own_loop.loop
        if loop is None or not loop.is_running():
            raise HandrailError("session.begin() needs the event loop of its session: call it while that runs")
        return loop

    def _ended(self, pending: Pending) -> None:
        self._running.pop(pending.id, None)
        self._open.discard(pending)
        if self._empty is not None and not self._open:
            self._empty.set()
