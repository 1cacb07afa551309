"""The answer to a call that is not run because its session cannot be stored."""

from handrail.contract.result import Failure
from handrail.toolkit.gate import Step


async def unstored(step: Step) -> Failure | None:
    """The answer while the session cannot be stored: nobody is asked about the call. None where it can be."""
    if step.session.store_error:
        with step.clock.pause(run=False):
            await step.session.settle()
    return not_stored(step, why) if (why := step.session.store_error) else None


def not_stored(step: Step, why: str) -> Failure:
    """The answer to a call that cannot be stored, for this reason."""
    message = f"{step.tool.name} was not run: {why}. Tell the user, and try again later."
    return Failure("unavailable", message, data={"started": False})
