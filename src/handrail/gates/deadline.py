"""Hold a call to its deadline, and end the work when it passes."""

from handrail.contract.result import Failure, Result
from handrail.toolkit.gate import Next, Step


async def deadline(step: Step, proceed: Next) -> Result:
    if step.tool.timeout is None:  # the tool keeps its own clock
        return await proceed(step)
    with step.clock.limit(step.tool.timeout) as limit:
        return await proceed(step)
    end = "Its thread cannot be stopped and may still be running." if step.still_running else "It was ended."
    return Failure("timeout", f"{step.tool.name} ran longer than {limit.seconds:g} s. {end} Ask for less at once.")
