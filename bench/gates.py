"""What each gate adds to a call: the list is walked to one gate further each time, and the differences are taken."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import anyio

from bench.floor import add, floor_call, texts
from bench.measure import UNITS, Effort, Row, Stopwatch, interleave, row
from handrail import Budget, Policy, Result, Sandbox, Session, Success, Tool, tool
from handrail.drivers.memory import MemoryDriver
from handrail.session.standard import STANDARD
from handrail.toolkit.gate import Gate, Next, Step

COUNT: Final = 400
ROUNDS: Final = 5
"""As many rounds for each of the usual: differences of small numbers need more."""
ALLOWED: Final = 10.0
"""How many times the floor a call with all gates may cost."""
ALLOWED_IN_FULL: Final = 15.0
"""The same with a place in the sandbox's lane and rules that have to be looked at."""
NONE: Final = Policy()
RULES: Final = Policy(allow=["add(a=*)"], deny=["bash(rm *)", "write(./secrets/**)", "effect:spends"])
ANSWER: Final = Success(3)


@tool(name="add", effects=["reads"], needs=["files"])
async def in_sandbox(a: int, b: int = 1) -> int:
    """Add two numbers, as something that reads files does."""
    return a + b


async def answer(step: Step, proceed: Next) -> Result:
    """Stands where the walk ends, in place of every gate further in."""
    return ANSWER


def rows(effort: Effort) -> list[Row]:
    count = effort.count(COUNT)
    walks: list[tuple[str, Sequence[Gate]]] = [("the session itself, no gates", [answer])]
    for place, gate in enumerate(STANDARD[:-1], 1):
        walks.append((gate.__name__, [*STANDARD[:place], answer]))
    walks.append((f"{STANDARD[-1].__name__}, with the body", STANDARD))
    samples: dict[str, Callable[[], float]] = {"floor": lambda: floor_call(count * 5)}
    samples |= {name: _walk(gates, count) for name, gates in walks}
    samples["in full"] = lambda: anyio.run(_calls, STANDARD, texts(count), in_sandbox, RULES)
    times = interleave(samples, effort.rounds * ROUNDS)
    floor = times["floor"]
    found = [row("the floor", floor, "µs", floor=floor)]
    names = [name for name, _ in walks]
    found += [row(names[0], times[names[0]], "µs", floor=floor)]
    for shorter, longer in pairwise(names):
        added = times[longer].minus(times[shorter])
        found.append(Row(longer, added.median * UNITS["µs"], "µs", added.against(floor)))
    found.append(row("all of it", times[names[-1]], "µs", floor=floor, bound=ALLOWED))
    return [*found, row("with a lane and 4 rules", times["in full"], "µs", floor=floor, bound=ALLOWED_IN_FULL)]


def _walk(gates: Sequence[Gate], count: int) -> Callable[[], float]:
    return lambda: anyio.run(_calls, gates, texts(count))


async def _calls(gates: Sequence[Gate], arguments: list[str], called: Tool = add, policy: Policy = NONE) -> float:
    sandbox = Sandbox(MemoryDriver()) if called.needs else None
    limits = Budget(calls=None)
    async with Session([called], sandbox=sandbox, policy=policy, budget=limits, gates=gates) as session:
        with Stopwatch() as watch:
            for text in arguments:
                result = await session.call("add", text)
        if not result.ok:
            raise AssertionError(result.message)
    return watch.cpu / len(arguments)
