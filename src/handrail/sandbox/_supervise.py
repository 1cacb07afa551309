"""Enforce a command's limits; when one passes, or on request, stop the process tree: TERM, grace period, KILL."""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final

from handrail.aio import finish
from handrail.contract.limits import LIMIT_GRACE, USER_GRACE
from handrail.sandbox._running import EndReason, Running

_GRACE_SECONDS: Final[Mapping[EndReason, float]] = {
    "timeout": LIMIT_GRACE,
    "idle": LIMIT_GRACE,
    "output": LIMIT_GRACE,
    "budget": LIMIT_GRACE,
    "cancel": LIMIT_GRACE,
    "user": USER_GRACE,
    "model": USER_GRACE,
    "close": 0.0,
}


async def supervise(running: Running, timeout: float | None, idle_timeout: float | None) -> None:
    """Return when the command has ended, or when its driver stays silent.

    A cancellation first ends the whole tree, in bounded time, and is then raised.
    """
    try:
        with running.clock.grace():
            await _watch(running, timeout, idle_timeout)
            if running.end_reason is not None:
                await running.end(_GRACE_SECONDS[running.end_reason])
    except BaseException:
        running.request_end("cancel")
        await finish(partial(running.end, LIMIT_GRACE))
        raise
    finally:
        running.settled.set()


async def _watch(running: Running, timeout: float | None, idle_timeout: float | None) -> None:
    clock = running.clock
    if timeout is None and idle_timeout is None and clock.left() == inf:
        await running.wake.wait()
        return
    deadline = inf if timeout is None else clock.now() + timeout
    silence = inf if idle_timeout is None else idle_timeout
    while not running.wake.is_set():
        seen, now = running.received, clock.now()
        wall_left, idle_left, budget_left = deadline - now, running.heard + silence - now, clock.left()
        with clock.limit(max(0.0, min(wall_left, idle_left, budget_left))):
            await running.wake.wait()
        if running.wake.is_set():
            return
        if budget_left <= min(wall_left, idle_left):
            running.request_end("budget")
        elif wall_left <= idle_left:
            running.request_end("timeout")
        elif running.received == seen:
            running.request_end("idle")
