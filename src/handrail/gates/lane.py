"""Keep calls that touch the same thing apart: readers together, a writer alone, in the order asked."""

from collections.abc import Awaitable

import anyio

from handrail.contract.errors import Unavailable
from handrail.contract.result import Failure, Result
from handrail.sandbox.lane import Lane
from handrail.toolkit.gate import Next, Step


async def lane(step: Step, proceed: Next) -> Result:
    """The place was reserved when the call was accepted; it is entered now, after approval."""
    place = step.place
    if place is None:
        return await proceed(step)
    if place.behind:
        refused = await _wait(step, place.enter(), place.behind)
        if refused is not None:
            return refused
    else:
        await place.enter()
    return await proceed(step)


def reserve(step: Step) -> None:
    """Take the call's place in its lane, if it has one and no call around it holds that lane."""
    found = lane_of(step)
    around = step.parent
    while found is not None and around is not None:
        if around.place is not None and around.place.lane is found:
            return
        around = around.parent
    if found is not None:
        step.place = found.reserve(not reads_only(step), step.call.id)


def lane_of(step: Step) -> Lane | None:
    """The lane it names, else the sandbox's where it needs one."""
    name, rules = step.tool.lane, step.rules
    if name == "none":
        return None
    if name is not None:
        return rules.lanes.setdefault(name, Lane())
    return rules.sandbox.lane if rules.sandbox is not None and step.tool.needs else None


def reads_only(step: Step) -> bool:
    """Whether it may share the lane with others of its kind."""
    return step.tool.effects == {"reads"}


async def _wait(step: Step, entering: Awaitable[None], behind: tuple[str, ...]) -> Failure | None:
    """Waiting is told, can be ended, and runs out no deadline."""
    step.emit("call_waiting", {"lane": step.tool.lane or "sandbox", "behind": list(behind)})
    try:
        with step.clock.pause(), anyio.CancelScope() as scope:
            step.scope = scope
            await entering
    except Unavailable as error:
        return Failure("unavailable", str(error), retryable=error.retryable)
    finally:
        step.scope = None
    if scope.cancelled_caught:
        return Failure(
            "cancelled", f"{step.tool.name} was ended by the user before it began.", data={"killed_by": "user"}
        )
    return None
