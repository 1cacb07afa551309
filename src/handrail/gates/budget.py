"""Enforce a run's budget of calls, refusals and seconds, and the depth of calls inside calls.

A refused call does not count as a call. A deferred one counts nowhere: it comes again when a person has answered.
"""

from contextlib import ExitStack
from math import inf

from handrail.contract.limits import BUDGET_GRACE, CALL_DEPTH, Budget
from handrail.contract.result import REFUSALS, Failure, Result
from handrail.toolkit.gate import Next, Step


async def budget(step: Step, proceed: Next) -> Result:
    """The call is counted before the first await, so that concurrent calls cannot exceed the budget together."""
    counts = step.counts
    if step.depth > CALL_DEPTH:
        return _too_deep(step)
    left = counts.clock.left()
    if spent := _spent(step, left, step.shared.budget):
        return Failure("budget_exhausted", spent)
    counts.calls += 1
    script = step.call.parent if step.by_script else None
    if script is not None:
        counts.scripts[script] = counts.scripts.get(script, 0) + 1
    result = await (proceed(step) if left == inf else _in_time(step, left, proceed))
    if not result.ok and result.kind in REFUSALS:
        counts.calls -= 1
        counts.refusals += not step.deferred
        if script is not None:
            counts.scripts[script] -= 1
    return result


async def _in_time(step: Step, left: float, proceed: Next) -> Result:
    """End the call when the run's seconds are used up.

    A tool that keeps its own clock ends its work itself: it and its parents get a grace period to report the outcome.
    """
    grace = BUDGET_GRACE if step.tool.timeout is None else 0.0
    with step.counts.clock.limit(left + grace) as step.run_limit, ExitStack() as waiting:
        outer = step.parent if grace else None
        while outer is not None:
            if outer.run_limit is not None:
                waiting.enter_context(outer.run_limit.grace(grace))
            outer = outer.parent
        return await proceed(step)
    return Failure("budget_exhausted", _over(step, f"{step.tool.name} was still running. {step.how_it_ended} "))


def _too_deep(step: Step) -> Failure:
    names, outer = [step.tool.name], step.parent
    while outer is not None:
        names, outer = [outer.tool.name, *names], outer.parent
    message = (
        f"{step.tool.name} was not run: it would be call {step.depth} of calls inside one another, and the limit is "
        f"{CALL_DEPTH} ({' > '.join([*names[:3], '…', *names[-2:]])}). A tool that calls itself needs an end; "
        "do the rest with calls that are not inside this one."
    )
    return Failure("rejected", message)


def _over(step: Step, what: str = "") -> str:
    return f"The {step.shared.budget.seconds:g} s of this run are used up. {what}Answer with what you have."


def _spent(step: Step, left: float, limits: Budget) -> str | None:
    counts = step.counts
    if limits.calls is not None and counts.calls >= limits.calls:
        return f"All {limits.calls} calls of this run are used. Answer with what you have."
    if limits.refusals is not None and counts.refusals >= limits.refusals:
        return f"{counts.refusals} calls of this run were refused, which is the limit. Answer with what you have."
    if left <= 0:
        return _over(step)
    if step.by_script and limits.script_calls is not None:
        if counts.scripts.get(step.call.parent or "", 0) >= limits.script_calls:
            return f"This script has made all its {limits.script_calls} calls. Return what you have."
    return None
