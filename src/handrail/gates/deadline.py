"""Enforce a call's deadline: end the work when it passes, or when a person ends the call."""

from dataclasses import replace
from math import inf
from typing import Final

from handrail.contract.limits import KILL_WAIT, LIMIT_GRACE
from handrail.contract.result import Failure, Result
from handrail.toolkit.gate import Next, Step

ANSWER_GRACE: Final = LIMIT_GRACE + 2 * KILL_WAIT
"""Seconds in which a tool that runs commands by its own clock ends them and tells what they printed."""


async def deadline(step: Step, proceed: Next) -> Result:
    timeout = step.tool.timeout  # None: the tool keeps its own clock
    if step.shared.call_timeout is not None:
        return await _within(step, proceed, step.shared.call_timeout)
    with step.clock.limit(inf if timeout is None else timeout) as limit:
        step.watch(limit.scope)
        return await proceed(step)
    return _ended(step, limit.seconds)


async def _within(step: Step, proceed: Next, most: float) -> Result:
    """End the call after the session's own limit, if the tool's does not come first.

    A tool that keeps its own clock sees the limit there, as it sees the end of the run: its commands are ended, and
    it tells what they printed.
    """
    timeout = step.tool.timeout
    end = step.clock.now() + most
    if timeout is None:
        step.clock.allow(most)
    grace = ANSWER_GRACE if timeout is None and "exec" in step.tool.needs else 0.0
    with step.clock.limit(most + grace if timeout is None else min(timeout, most)) as limit:
        step.watch(limit.scope)
        result = await proceed(step)
        taken_for_the_run = not result.ok and result.kind == "budget_exhausted" and step.counts.clock.left() > 0
        return _told(step, result, most) if taken_for_the_run and step.clock.now() >= end else result
    return _ended(step, limit.seconds - grace)


def _told(step: Step, result: Result, most: float) -> Result:
    """The tool's own message about its end, which it took for the end of the run."""
    data = {**result.data, "ended_by": "timeout"} if "ended_by" in result.data else result.data
    return replace(_ended(step, most), data=data, warnings=result.warnings)


def _ended(step: Step, seconds: float) -> Failure:
    name = step.tool.name
    if step.terminated:
        return Failure("cancelled", f"{name} was ended by the user. {step.how_it_ended}", data={"killed_by": "user"})
    return Failure("timeout", f"{name} ran longer than {seconds:g} s. {step.how_it_ended} Ask for less at once.")
