"""Enforce a run's budget of calls, refusals and seconds, and the depth of calls inside calls.

A refused call does not count as a call. A deferred one counts nowhere: it comes again when a person has answered.
"""

from math import inf

from handrail.contract.limits import CALL_DEPTH, Budget
from handrail.contract.result import REFUSALS, Failure, Result
from handrail.toolkit.gate import Counts, Next, SessionState, Step


async def budget(step: Step, proceed: Next) -> Result:
    """The call is counted before the first await, so that concurrent calls cannot exceed the budget together."""
    counts = step.counts
    if step.parent is not None and (depth := _depth(step)) > CALL_DEPTH:
        return _too_deep(step, depth)
    left = counts.clock.left()
    script = step.call.parent if step.by_script else None
    why = _spent(counts, left, step.shared.budget) or (None if script is None else _script_spent(step, script))
    if why is not None:
        return Failure("budget_exhausted", why)
    counts.calls += 1
    if script is not None:
        counts.scripts[script] = counts.scripts.get(script, 0) + 1
    result = await (proceed(step) if left == inf else _in_time(step, left, proceed))
    if not result.ok and result.kind in REFUSALS:
        counts.calls -= 1
        counts.refusals += not step.deferred
        if script is not None:
            counts.scripts[script] -= 1
    return result


def spent(shared: SessionState) -> str | None:
    """Why no further call may begin in this run; None if one may."""
    return _spent(shared.counts, shared.counts.clock.left(), shared.budget)


def spend_on_task(step: Step) -> str | None:
    """Count a further task of this call as a call: the first one is the call itself. Returns why it may not begin."""
    why = _spent(step.counts, step.counts.clock.left(), step.shared.budget)
    if why is None:
        step.counts.calls += 1
    return why


async def _in_time(step: Step, left: float, proceed: Next) -> Result:
    """End the call when the run's seconds are used up. Work that ends itself then asks its clock for a grace period."""
    with step.counts.clock.limit(left) as step.clock.run_limit:
        return await proceed(step)
    return Failure(
        "budget_exhausted", _over(step.shared.budget, f"{step.tool.name} was still running. {step.how_it_ended} ")
    )


def _depth(step: Step) -> int:
    """The number of calls that are inside one another here, with this one."""
    depth, outer = 1, step.parent
    while outer is not None:
        depth, outer = depth + 1, outer.parent
    return depth


def _too_deep(step: Step, depth: int) -> Failure:
    names, outer = [step.tool.name], step.parent
    while outer is not None:
        names, outer = [outer.tool.name, *names], outer.parent
    message = (
        f"{step.tool.name} was not run: it would be call {depth} of calls inside one another, and the limit is "
        f"{CALL_DEPTH} ({' > '.join([*names[:3], '…', *names[-2:]])}). A tool that calls itself needs an end; "
        "do the rest with calls that are not inside this one."
    )
    return Failure("rejected", message)


def _over(limits: Budget, what: str = "") -> str:
    return f"The {limits.seconds:g} s of this run are used up. {what}Answer with what you have."


def _spent(counts: Counts, left: float, limits: Budget) -> str | None:
    if limits.calls is not None and counts.calls >= limits.calls:
        return f"All {limits.calls} calls of this run are used. Answer with what you have."
    if limits.refusals is not None and counts.refusals >= limits.refusals:
        return f"{counts.refusals} calls of this run were refused, which is the limit. Answer with what you have."
    return _over(limits) if left <= 0 else None


def _script_spent(step: Step, script: str) -> str | None:
    most = step.shared.budget.script_calls
    if most is None or step.counts.scripts.get(script, 0) < most:
        return None
    return f"This script has made all its {most} calls. Return what you have."
