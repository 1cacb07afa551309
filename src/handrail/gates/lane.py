"""Keep calls that touch the same thing apart: readers together, a writer alone, in the order asked."""

from collections.abc import Awaitable

import anyio

from handrail.contract.errors import Unavailable
from handrail.contract.result import Failure, Result
from handrail.sandbox.lane import Lane, Place
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
    """Take the call's place in its lane, if it has one; inside a call that holds that lane, in its inner lane."""
    found = lane_of(step)
    if found is None:
        return
    around = _around(step)
    held = next((place.lane for place in around if place.lane.root is found), None)
    step.place = (held.inner if held is not None else found).reserve(not reads_only(step), step.call.id, around)


def _around(step: Step) -> list[Place]:
    """The places of the calls around this one, the nearest first."""
    found, outer = [], step.parent
    while outer is not None:
        if outer.place is not None:
            found.append(outer.place)
        outer = outer.parent
    return found


def lane_of(step: Step) -> Lane | None:
    """The lane it names, else the sandbox's where it needs one."""
    name, shared = step.tool.lane, step.shared
    if name == "none":
        return None
    if name is not None:
        return shared.lanes.setdefault(name, Lane())
    return shared.sandbox.lane if shared.sandbox is not None and step.tool.needs else None


def reads_only(step: Step) -> bool:
    """Whether it may share the lane with others of its kind."""
    return step.tool.effects == {"reads"}


async def _wait(step: Step, entering: Awaitable[None], behind: tuple[str, ...]) -> Failure | None:
    """Waiting is told, can be ended, and runs out no deadline; the run's own seconds go on, for others work."""
    step.emit("call_waiting", {"lane": step.tool.lane or "sandbox", "behind": list(behind)})
    try:
        with step.clock.pause(run=False), anyio.CancelScope() as scope:
            step.watch(scope)
            await entering
    except Unavailable as error:
        return Failure("unavailable", str(error), retryable=error.retryable)
    finally:
        step.scope = None
    if scope.cancel_called:
        return Failure(
            "cancelled", f"{step.tool.name} was ended by the user before it began.", data={"killed_by": "user"}
        )
    return None
