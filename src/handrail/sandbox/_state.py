"""The state that all views of one sandbox share: the driver, running commands, jobs, and closing."""

import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from itertools import count
from typing import Final, Literal, TypeVar
from weakref import WeakSet

import anyio

from handrail.aio import OwnLoop, finish, in_background
from handrail.contract.driver import Driver
from handrail.contract.errors import BrokenDriver, Unavailable
from handrail.contract.limits import FILE_WAIT, KILL_WAIT, SANDBOX_CLOSE_WAIT, USER_GRACE
from handrail.log import report
from handrail.sandbox._execution import Execution
from handrail.sandbox._spool import Spool
from handrail.sandbox._supervise import supervise
from handrail.sandbox.completed import Completed, Late
from handrail.sandbox.job import Job

R = TypeVar("R", bound=Execution)
JOBS_KEPT: Final = 256
"""Number of ended jobs that can still be looked up."""
ADVICE_KEPT: Final = 20
"""Greatest number of pieces of advice in a report."""
JOB_SPOOLS_KEPT: Final = 32
"""Number of ended jobs whose whole output stays on disk."""


class SandboxState:
    """The state of one sandbox. `calls` has the running commands by the id that `terminate` takes."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.own_loop = OwnLoop(self.close_without_loop)
        self.jobs: dict[str, Job] = {}
        self.calls: dict[str, set[Execution]] = {}
        self.on_late: list[Callable[[Late], object]] = []
        self.advice: dict[str, None] = {}
        """Changes to the sandbox that a person could make, in the order in which commands needed them."""
        self.closed = False
        self.file_wait = FILE_WAIT
        """Seconds for one file operation of the driver."""
        self._holders = 0
        self._holding = threading.Lock()
        self._gone: anyio.Event | None = None
        self._numbers = count(1)
        # Weak: a Completed that nobody keeps takes its spool file with it; the rest are closed with the sandbox.
        self._spools: WeakSet[Spool] = WeakSet()
        self._abandoned: set[Execution] = set()

    def number(self, kind: str) -> str:
        """Return a new id."""
        return f"{kind}-{next(self._numbers)}"

    def advise(self, text: str) -> None:
        """Add a piece of advice, once."""
        if len(self.advice) < ADVICE_KEPT:
            self.advice[text] = None

    def check_open(self) -> None:
        if self.closed:
            raise Unavailable("The sandbox is closed; open a new one.", retryable=False)

    def hold(self, change: int) -> int:
        """Change the number of users that keep the sandbox open, from any thread; return the new number."""
        with self._holding:
            self._holders += change
            return self._holders

    def begin(self, execution: R) -> R:
        """Start an execution under its id."""
        self.check_open()
        self._spools.add(execution.spool)
        self.calls.setdefault(execution.id, set()).add(execution)
        execution.begin()
        return execution

    async def wait_for(self, execution: Execution, timeout: float | None, idle_timeout: float | None) -> Completed:
        """Enforce the limits and return the outcome; of a silent driver, the outcome as far as known."""
        try:
            await supervise(execution, timeout, idle_timeout)
        finally:
            self._forget(execution)
            if execution.abandon(self._tell_late):
                self._abandoned.add(execution)
        return execution.outcome()

    def keep(self, job: Job) -> None:
        """Add a job to the table, and drop the oldest ended ones."""
        self.jobs[job.id] = job
        over = [old for old in self.jobs.values() if not old.running]
        for old in over[:-JOB_SPOOLS_KEPT]:
            old.let_go_of_output()
        for old in over[:-JOBS_KEPT]:
            del self.jobs[old.id]

    async def terminate(self, id: str, by: Literal["user", "model"]) -> bool:
        """End the commands with this id. Returns whether any was running."""
        found = [execution for execution in self.calls.get(id, ()) if not execution.ended.is_set()]
        for execution in found:
            execution.request_end(by)
        with anyio.move_on_after(USER_GRACE + 2 * KILL_WAIT):
            for execution in found:
                await execution.settled.wait()
        return bool(found)

    async def close(self) -> None:
        """End everything and close the driver. May be called twice; both calls return at the end.

        A cancellation of the caller is raised afterwards.
        """
        if self._gone is not None:
            await finish(self._gone.wait)
            return
        self.closed = True
        self._gone = anyio.Event()
        await finish(self._close)

    async def _close(self) -> None:
        """End everything and close the driver, even if the end of the event loop cancels this task."""
        try:
            await self._end_all()
        finally:
            if not self._is_gone():
                await self._close_driver()

    def _is_gone(self) -> bool:
        return self._gone is not None and self._gone.is_set()

    def _give_back(self) -> None:
        for spool in list(self._spools):
            spool.close()
        for job in self.jobs.values():
            job.let_go_of_output()
        self._gone = self._gone or anyio.Event()
        with suppress(RuntimeError):  # a waiter's event loop may have been closed
            self._gone.set()

    def close_without_loop(self) -> None:
        """Close without an event loop: the driver's `close` runs up to its first await, which kills everything."""
        if self._is_gone():
            return
        self.closed = True
        closing = self.driver.close()
        try:
            closing.send(None)
        except BaseException:  # noqa: BLE001 - there is no caller to raise it to
            pass
        finally:
            closing.close()
            self._give_back()

    async def _end_all(self) -> None:
        every = [execution for calls in self.calls.values() for execution in calls]
        for execution in every:
            execution.request_end("close")
        with anyio.move_on_after(2 * KILL_WAIT):
            for execution in every:
                await execution.settled.wait()

    async def _close_driver(self) -> None:
        failed: list[Exception] = []
        done = anyio.Event()

        async def close() -> None:
            try:
                await self.driver.close()
            except Unavailable:
                pass  # the sandbox is already gone
            except Exception as error:  # noqa: BLE001 - raised below as BrokenDriver
                failed.append(error)
            finally:
                done.set()

        task = in_background(close())
        try:
            with anyio.move_on_after(SANDBOX_CLOSE_WAIT):
                await done.wait()
        finally:
            task.cancel()
            self._give_back()
        for execution in list(self._abandoned):
            execution.task.cancel()
        if failed:
            raise BrokenDriver(f"The driver's close raised {type(failed[0]).__name__}: {failed[0]}") from failed[0]
        if not done.is_set():
            raise Unavailable(
                f"The driver did not close within {SANDBOX_CLOSE_WAIT:g} s; what it ran may still be running."
            )

    def _forget(self, execution: Execution) -> None:
        calls = self.calls.get(execution.id, set())
        calls.discard(execution)
        if not calls:
            self.calls.pop(execution.id, None)

    async def _tell_late(self, execution: Execution) -> None:
        self._abandoned.discard(execution)
        if execution.error is None:
            late = Late(
                execution.id, execution.exit_code, None if execution.end_reason == "close" else execution.outcome()
            )
        else:
            late = Late(execution.id, error=execution.error)
        for tell in list(self.on_late):
            try:
                answer = tell(late)
                if isawaitable(answer):
                    await answer
            except Exception as error:  # noqa: BLE001 - a callback may raise anything
                report(f"The on_late callback for {execution.id!r}", error)
