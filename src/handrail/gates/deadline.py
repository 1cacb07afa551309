"""Enforce a call's deadline: end the work when it passes, or when a person ends the call."""

from math import inf

from handrail.contract.result import Failure, Result
from handrail.toolkit.gate import Next, Step


async def deadline(step: Step, proceed: Next) -> Result:
    timeout = step.tool.timeout  # None: the tool keeps its own clock
    with step.clock.limit(inf if timeout is None else timeout) as limit:
        step.watch(limit.scope)
        return await proceed(step)
    if step.terminated:
        return Failure(
            "cancelled", f"{step.tool.name} was ended by the user. {step.how_it_ended}", data={"killed_by": "user"}
        )
    return Failure(
        "timeout", f"{step.tool.name} ran longer than {limit.seconds:g} s. {step.how_it_ended} Ask for less at once."
    )
