"""Stop a call that keeps failing in the same way, or giving the same result, and suggest what to do instead."""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from handrail.contract.result import Failure, Image, Result, Success
from handrail.contract.truncated import cut
from handrail.policy.judge import HARMLESS
from handrail.schema.parse import arguments_hash
from handrail.toolkit.gate import Counts, Next, Step
from handrail.toolkit.tool import Tool

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
EQUAL_RESULTS_TOLD: Final = 3
"""Equal successes in a row from which the model is told that they are."""
MAX_EQUAL_RESULTS: Final = 10
"""Equal successes in a row after which the same call is refused."""
MAX_COMPARED_CHARS: Final = 1 << 20
"""Characters of a result that are compared with the one before it; of what comes after them, nothing is."""
MAX_TEXT_CHARS: Final = 1 << 16
"""Characters compared of one text: its beginning and its end, and how long it is."""
VALUE_CHARS: Final = 16
"""Characters that a value counts for, besides its text."""
ALWAYS_VARY: Final = frozenset({"duration_ms"})
"""Fields that differ each time, of any tool that answers with what a command did."""
TIMES: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"  # a date with a time
    r"|(?<![\d:])\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|(?<![\d.])\d{1,9}(?:\.\d{1,9})?(?=\s?(?:ns|µs|us|ms|s|secs?|seconds?)\b)"
)
"""Times of day and durations in a text. Every repetition has an end: a text of digits alone is read once."""


class Repeats:
    """The failures of one task, and its last success, with which the next call is compared."""

    __slots__ = ("arguments", "count", "digest", "failures", "keys", "tool")

    def __init__(self) -> None:
        self.failures: dict[str, dict[str, tuple[str, int]]] = {}
        """Last failure and the number of its repetitions, by tool, then by arguments."""
        self.begin(None, {})

    def begin(self, tool: Tool | None, arguments: Mapping[str, Any]) -> None:
        """Note a success that is not like the one before it; a failure is no tool's."""
        self.tool = tool
        self.arguments = arguments
        self.count = 1
        """Equal results in a row."""
        self.digest = ""
        """The result's digest; empty after the first, which need not be compared unless the call comes again."""
        self.keys: set[str] = set()
        """Keys of the call, one for each form in which it was sent again."""


def repeats_in(counts: Counts, task: str) -> Repeats:
    """The repetitions of a task in one run; "" is the session itself. Others work in other directories."""
    try:  # all calls but the first find it: two calls of `get` less
        known: Repeats = counts.kept[Repeats][task]
    except KeyError:
        known = counts.kept.setdefault(Repeats, {})[task] = Repeats()
    return known


async def breaker(step: Step, proceed: Next) -> Result:
    """Failures are counted per run. A success with effects clears the counts, because it may have removed the cause.

    Successes are counted while nothing else is called: per run, and apart for each task. What a script or a tool calls
    counts nowhere, because a loop in a program is meant, and budgets bound it; nor does what a person calls.
    """
    tool, task = step.tool, step.shared.task
    seen = repeats_in(step.counts, task)
    known = seen.failures.get(tool.name)
    key = _key(step) if known else None
    if known and key in known and known[key][1] >= MAX_EQUAL_FAILURES:
        return _failed_before(step, *known[key])
    is_own = (step.call.parent or "") == task and step.call.origin != "user"
    if seen.count >= MAX_EQUAL_RESULTS and is_own and seen.tool is tool and _key(step) in seen.keys:
        return _succeeded_before(step, seen.count)
    result = await proceed(step)
    if result.ok:
        if not tool.effects <= HARMLESS:  # type: ignore[operator]
            seen.failures.clear()
        elif known and key is not None:
            known.pop(key, None)
    elif result.kind in ADVICE:
        _count(step, result, key)
    if not is_own or step.deferred or tool.polls:
        return result
    if result.ok and seen.tool is tool and seen.arguments == step.arguments:
        return _compared(step, seen, result)
    seen.begin(tool if result.ok else None, step.arguments)
    return result


def _failed_before(step: Step, way: str, repeats: int) -> Failure:
    kind = way.partition(" ")[0]
    return Failure(
        "rejected",
        f"{step.call.name[:100]} has failed {repeats} times in the same way ({kind}) with the same arguments, "
        f"and was not run again. {ADVICE[kind]}.",
        data={"repeats": repeats, "kind": kind},
    )


def _succeeded_before(step: Step, repeats: int) -> Failure:
    return Failure(
        "rejected",
        f"{step.tool.name} has given the same result {repeats} times in a row with the same arguments, and was not "
        "run again. Use that result, change the arguments, or do something else first. To wait for something, run one "
        "command that waits for it.",
        data={"repeats": repeats},
    )


def _key(step: Step) -> str:
    """The key of a call. Unknown tools share one table, so their key includes the name."""
    name = "" if step.tool.name == step.call.name else step.call.name[:100]
    return name + arguments_hash(step.call.arguments)


def _count(step: Step, failure: Failure, key: str | None) -> None:
    known = repeats_in(step.counts, step.shared.task).failures.setdefault(step.tool.name, {})
    key = key if key is not None else _key(step)
    way = f"{failure.kind} {failure.field or ''}"
    before, repeats = known.pop(key, ("", 0))
    known[key] = (way, repeats + 1 if before == way else 1)
    if len(known) > FAILURES_KEPT:
        del known[next(iter(known))]


def _compared(step: Step, seen: Repeats, result: Success) -> Success:
    """The result of a call that came again, with a warning where it is one of several equal ones in a row."""
    digest = _digest(result.value, ALWAYS_VARY.union(step.tool.varies))
    if seen.digest not in ("", digest):
        seen.begin(step.tool, step.arguments)
        seen.digest = digest
        return result
    seen.digest = digest
    seen.count += 1
    seen.keys.add(_key(step))  # as it was sent: the next one is compared before its arguments are repaired
    if seen.count < EQUAL_RESULTS_TOLD:
        return result
    told = (
        f"You have made this same call {seen.count} times in a row, and the result is the same as before, but for ids "
        f"and times. Use it, or do something else; after {MAX_EQUAL_RESULTS} times the call is refused."
    )
    return Success(result.value, (*result.warnings, told))


def _digest(value: Any, varies: frozenset[str]) -> str:
    """Equal for results that are equal but for these fields, and for times in their texts."""
    made, left = sha256(), MAX_COMPARED_CHARS
    for piece in _pieces(value, varies):
        made.update(f"{len(piece)}:{piece}".encode("utf-8", "surrogatepass"))
        left -= len(piece) + VALUE_CHARS
        if left < 0:
            break
    return made.hexdigest()


def _pieces(value: Any, varies: frozenset[str]) -> Iterator[str]:
    if isinstance(value, str):
        yield "text"
        yield TIMES.sub("", cut(value, MAX_TEXT_CHARS))
    elif isinstance(value, Mapping):
        yield f"object of {len(value)}"
        for key, item in value.items():
            if key not in varies:
                yield key
                yield from _pieces(item, varies)
    elif isinstance(value, list | tuple):
        yield f"list of {len(value)}"
        for item in value:
            yield from _pieces(item, varies)
    elif isinstance(value, Image):
        yield f"image {hash(value.data)}"
    else:
        yield repr(value)
