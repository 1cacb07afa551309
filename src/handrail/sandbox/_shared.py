"""What all views of one sandbox have in common: the driver, what runs, the jobs, and the end of it all."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from itertools import count
from typing import Final, Literal
from weakref import WeakSet

import anyio

from handrail.aio import OwnLoop, finish, if_loop_closes, in_background
from handrail.contract.clock import Clock
from handrail.contract.driver import Driver
from handrail.contract.errors import BrokenDriver, Unavailable
from handrail.contract.limits import KILL_WAIT, SANDBOX_CLOSE_WAIT, USER_GRACE, Caps
from handrail.sandbox._running import Order, Running
from handrail.sandbox._spool import Spool
from handrail.sandbox._supervise import supervise
from handrail.sandbox.completed import Completed, Late
from handrail.sandbox.job import Job

JOBS_KEPT: Final = 256
"""Ended jobs that can still be asked about."""
JOB_SPOOLS_KEPT: Final = 32
"""Ended jobs whose whole output is still on disk."""


class SandboxState:
    """One per sandbox. `calls` holds what runs now, by the id under which a person can end it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.own_loop = OwnLoop()
        self.jobs: dict[str, Job] = {}
        self.calls: dict[str, set[Running]] = {}
        self.on_late: list[Callable[[Late], object]] = []
        self.closed = False
        self._holders = 0
        self._holding = threading.Lock()
        self._gone: anyio.Event | None = None
        self._numbers = count(1)
        self._spools: WeakSet[Spool] = WeakSet()
        self._abandoned: set[Running] = set()

    def number(self, kind: str) -> str:
        """A new id."""
        return f"{kind}-{next(self._numbers)}"

    def check_open(self) -> None:
        if self.closed:
            raise Unavailable("The sandbox is closed; open a new one.", retryable=False)

    def hold(self, change: int) -> int:
        """Count who holds it open, from any thread; how many there are now."""
        with self._holding:
            self._holders += change
            return self._holders

    def begin(self, id: str, order: Order, clock: Clock, caps: Caps) -> Running:
        """Start a command under `id`."""
        self.check_open()
        running = Running(id, order, self.driver, clock, caps)
        self._spools.add(running.spool)
        self.calls.setdefault(id, set()).add(running)
        running.begin()
        return running

    async def see_through(self, running: Running, timeout: float | None, idle_timeout: float | None) -> Completed:
        """Hold it to its limits and give what it came to; if the driver stays silent, what is known so far."""
        try:
            await supervise(running, timeout, idle_timeout)
        finally:
            self._forget(running)
            if running.abandon(self._tell_late):
                self._abandoned.add(running)
        return running.outcome()

    def keep(self, job: Job) -> None:
        """Put a job into the table, and let go of what is too old."""
        self.jobs[job.id] = job
        over = [old for old in self.jobs.values() if not old.running]
        for old in over[:-JOB_SPOOLS_KEPT]:
            old.let_go_of_output()
        for old in over[:-JOBS_KEPT]:
            del self.jobs[old.id]

    async def terminate(self, id: str, by: Literal["user", "model"]) -> bool:
        """End what runs under this id. Whether anything did."""
        found = [running for running in self.calls.get(id, ()) if not running.ended.is_set()]
        for running in found:
            running.request_end(by)
        with anyio.move_on_after(USER_GRACE + 2 * KILL_WAIT):
            for running in found:
                await running.settled.wait()
        return bool(found)

    async def close(self) -> None:
        """End everything and close the driver. May be called twice; both return when it is done.

        A cancellation of whoever closes does not reach it, and is raised when it is done.
        """
        if self._gone is not None:
            await finish(self._gone.wait)
            return
        self.closed = True
        self._gone = anyio.Event()
        with if_loop_closes(self.close_without_loop):
            await finish(self._close)

    async def _close(self) -> None:
        """Only the event loop's end can cancel this; then the driver is closed all the same."""
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
        with suppress(RuntimeError):  # who waits for it may have done so on a loop that was closed
            self._gone.set()

    def close_without_loop(self) -> None:
        """The event loop has ended: the driver's closing does what it can do at once, which is to kill."""
        if self._is_gone():
            return
        self.closed = True
        closing = self.driver.close()
        try:
            closing.send(None)
        except BaseException:  # noqa: BLE001 - nobody is left to hear it
            pass
        finally:
            closing.close()
            self._give_back()

    async def _end_all(self) -> None:
        every = [running for calls in self.calls.values() for running in calls]
        for running in every:
            running.request_end("close")
        with anyio.move_on_after(2 * KILL_WAIT):
            for running in every:
                await running.settled.wait()

    async def _close_driver(self) -> None:
        failed: list[Exception] = []
        done = anyio.Event()

        async def close() -> None:
            try:
                await self.driver.close()
            except Unavailable:
                pass  # it is gone already
            except Exception as error:  # noqa: BLE001 - raised below, as the driver's fault
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
        for running in list(self._abandoned):
            running.task.cancel()
        if failed:
            raise BrokenDriver(f"The driver's close raised {type(failed[0]).__name__}: {failed[0]}") from failed[0]
        if not done.is_set():
            raise Unavailable(
                f"The driver did not close within {SANDBOX_CLOSE_WAIT:g} s; what it ran may still be running."
            )

    def _forget(self, running: Running) -> None:
        calls = self.calls.get(running.id, set())
        calls.discard(running)
        if not calls:
            self.calls.pop(running.id, None)

    async def _tell_late(self, running: Running) -> None:
        self._abandoned.discard(running)
        if running.error is None:
            late = Late(running.id, running.exit_code, None if running.end_reason == "close" else running.outcome())
        else:
            late = Late(running.id, error=running.error)
        for tell in list(self.on_late):
            try:
                answer = tell(late)
                if isawaitable(answer):
                    await answer
            except Exception:
                logging.getLogger("handrail.sandbox").exception("A reader of late outcomes failed on %s", running.id)
