"""Stop a call that keeps failing the same way, and say what to try instead."""

from typing import Final

from handrail.contract.result import Failure, Result
from handrail.policy.judge import HARMLESS
from handrail.schema.parse import arguments_hash
from handrail.toolkit.gate import Next, Step

MAX_EQUAL_FAILURES: Final = 3
"""Equal failures after which the same call is not run again."""
FAILURES_KEPT: Final = 200
"""Calls of one tool, or of tools that do not exist, that are remembered; the oldest is forgotten first."""
ADVICE: Final = {
    "invalid_args": "Change the arguments as the message says",
    "not_found": "Look at what is there first, or make it",
    "tool_not_found": "Call one of the tools that there are",
    "execution_error": "Try another way, or other arguments",
}
"""The kinds that are counted, and what to do instead of the same call."""


async def breaker(step: Step, proceed: Next) -> Result:
    """Counted per run; any success with effects clears everything, for it may have removed the cause."""
    seen = step.counts.failures
    known = seen.get(step.tool.name)
    key = _key(step) if known else None
    if known and key in known:
        way, repeats = known[key]
        if repeats >= MAX_EQUAL_FAILURES:
            kind = way.partition(" ")[0]
            return Failure(
                "rejected",
                f"{step.call.name[:100]} has failed {repeats} times in the same way ({kind}) with the same arguments, "
                f"and was not run again. {ADVICE[kind]}.",
                data={"repeats": repeats, "kind": kind},
            )
    result = await proceed(step)
    if result.ok:
        if not step.tool.effects <= HARMLESS:  # type: ignore[operator]
            seen.clear()
        elif known and key is not None:
            known.pop(key, None)
    elif result.kind in ADVICE:
        _count(step, result, key)
    return result


def _key(step: Step) -> str:
    """The call among those of its tool. Tools that do not exist are one tool here, so the name counts too."""
    name = "" if step.tool.name == step.call.name else step.call.name[:100]
    return name + arguments_hash(step.call.arguments)


def _count(step: Step, failure: Failure, key: str | None) -> None:
    known = step.counts.failures.setdefault(step.tool.name, {})
    key = key if key is not None else _key(step)
    way = f"{failure.kind} {failure.field or ''}"
    before, repeats = known.pop(key, ("", 0))
    known[key] = (way, repeats + 1 if before == way else 1)
    if len(known) > FAILURES_KEPT:
        del known[next(iter(known))]
