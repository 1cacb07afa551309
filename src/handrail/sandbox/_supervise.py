"""Enforce a command's limits; when one passes, or on request, stop the process tree: TERM, grace period, KILL."""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final

from handrail.aio import finish
from handrail.contract.limits import LIMIT_GRACE, USER_GRACE
from handrail.sandbox._execution import EndReason, Execution

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


async def supervise(execution: Execution, timeout: float | None, idle_timeout: float | None) -> None:
    """Return when the command has ended, or when its driver stays silent.

    A cancellation first ends the whole tree, in bounded time, and is then raised.
    """
    try:
        with execution.clock.grace():
            await _watch(execution, timeout, idle_timeout)
            if execution.end_reason is not None:
                await execution.end(_GRACE_SECONDS[execution.end_reason])
    except BaseException:
        execution.request_end("cancel")
        await finish(partial(execution.end, LIMIT_GRACE))
        raise
    finally:
        execution.settled.set()


async def _watch(execution: Execution, timeout: float | None, idle_timeout: float | None) -> None:
    clock = execution.clock
    if timeout is None and idle_timeout is None and clock.left() == inf:
        await execution.wake.wait()
        return
    deadline = inf if timeout is None else clock.now() + timeout
    silence = inf if idle_timeout is None else idle_timeout
    while not execution.wake.is_set():
        seen, now = execution.received, clock.now()
        wall_left, idle_left, budget_left = deadline - now, execution.heard + silence - now, clock.left()
        with clock.limit(max(0.0, min(wall_left, idle_left, budget_left))):
            await execution.wake.wait()
        if execution.wake.is_set():
            return
        if budget_left <= min(wall_left, idle_left):
            execution.request_end("budget")
        elif wall_left <= idle_left:
            execution.request_end("timeout")
        elif execution.received == seen:
            execution.request_end("idle")
