"""Stop a call that keeps failing in the same way, and suggest what to do instead."""

from typing import Final

from handrail.contract.result import Failure, Result
from handrail.policy.judge import HARMLESS
from handrail.schema.parse import arguments_hash
from handrail.toolkit.gate import Next, Step

MAX_EQUAL_FAILURES: Final = 3
"""Equal failures after which the same call is refused."""
FAILURES_KEPT: Final = 200
"""Failed calls remembered for each tool, and for all unknown tools together; the oldest is forgotten first."""
ADVICE: Final = {
    "invalid_args": "Change the arguments as the message says",
    "not_found": "List what exists first, or create it",
    "tool_not_found": "Call one of the listed tools",
    "execution_error": "Try other arguments or another approach",
}
"""The kinds that are counted, and what to do instead."""


async def breaker(step: Step, proceed: Next) -> Result:
    """Failures are counted per run. A success with effects clears the counts, because it may have removed the cause."""
    seen = step.counts.failures(step.shared.task)
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
    """The key of a call. Unknown tools share one table, so their key includes the name."""
    name = "" if step.tool.name == step.call.name else step.call.name[:100]
    return name + arguments_hash(step.call.arguments)


def _count(step: Step, failure: Failure, key: str | None) -> None:
    known = step.counts.failures(step.shared.task).setdefault(step.tool.name, {})
    key = key if key is not None else _key(step)
    way = f"{failure.kind} {failure.field or ''}"
    before, repeats = known.pop(key, ("", 0))
    known[key] = (way, repeats + 1 if before == way else 1)
    if len(known) > FAILURES_KEPT:
        del known[next(iter(known))]
