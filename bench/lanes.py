"""The cost of a call when many wait in its lane: writers in a row, readers behind a writer, calls inside a call."""

import gc
from collections.abc import Callable
from typing import Final

import anyio
import anyio.lowlevel

from bench.growth import UNLIMITED, exponent
from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail import Call, Context, Policy, Sandbox, Session, tool
from handrail.drivers.memory import MemoryDriver

SIZES: Final = (100, 1_000, 4_000)
EXPONENT: Final = 1.1
"""The most that k in `cost ~ waiting calls ** k` may be."""
OPEN: Final = Policy(mode="open")


@tool(effects=["reads"], needs=["files"])
async def look(number: int) -> int:
    """Share the lane with other readers."""
    await anyio.lowlevel.checkpoint()  # so that the others come to wait
    return number


@tool(effects=["writes"], needs=["files"])
async def change(number: int) -> int:
    """Have the lane alone."""
    await anyio.lowlevel.checkpoint()
    return number


@tool(effects=["writes"], needs=["files"])
async def spread(context: Context, count: int) -> int:
    """Hold the lane, and make writers wait for one another inside it."""
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(context.use, "change", {"number": number})
    return count


def rows(effort: Effort) -> list[Row]:
    sizes = [effort.count(size) for size in SIZES]
    kinds: dict[str, Callable[[int], list[Call]]] = {
        "writers": lambda size: [Call(f"w{n}", "change", {"number": n}) for n in range(size)],
        "readers behind a writer": _readers,
        "writers inside a call": lambda size: [Call("outer", "spread", {"count": size})],
    }
    samples: dict[str, Callable[[], float]] = {}
    for kind, make in kinds.items():
        for size in sizes:
            samples[f"{kind} {size}"] = _sample(make, size, max(1, sizes[1] // size))
    times = interleave(samples, effort.rounds)
    found = []
    for kind in kinds:
        costs = {size: times[f"{kind} {size}"] for size in sizes}
        found += [row(f"a call, {size:,} waiting: {kind}", costs[size], "µs", floor=costs[sizes[0]]) for size in sizes]
        totals = [cost.least * size for size, cost in costs.items()]
        found.append(Row(f"{kind}: growth exponent", exponent(sizes, totals), "", bound=EXPONENT))
    return found


def _readers(size: int) -> list[Call]:
    """Groups of readers, each behind a writer."""
    return [Call(f"c{n}", "look" if n % 50 else "change", {"number": n}) for n in range(size)]


def _sample(make: Callable[[int], list[Call]], size: int, times: int) -> Callable[[], float]:
    """The mean of several, where there are few calls, so that these are not measured worse."""
    return lambda: sum(anyio.run(_together, make(size)) for _ in range(times)) / times / size


async def _together(calls: list[Call]) -> float:
    sandbox, tools = Sandbox(MemoryDriver()), [look, change, spread]
    async with Session(tools, sandbox=sandbox, policy=OPEN, budget=UNLIMITED) as session:
        gc.disable()  # it takes longer, the more objects wait, in a lane or not
        try:
            with Stopwatch() as watch:
                results = await session.call_all(calls)
        finally:
            gc.enable()
    if not all(result.ok for result in results):
        raise AssertionError(next(result.message for result in results if not result.ok))
    return watch.cpu
