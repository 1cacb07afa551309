"""What a call costs when many came before it: in one session, and in one run of an agent."""

from collections.abc import Callable
from math import log
from statistics import linear_regression
from typing import Final

import anyio

from bench.floor import add, floor_call, texts
from bench.measure import Effort, Row, Stopwatch, Times, interleave, row
from handrail import Agent, Budget, Call, Session
from handrail.testing import ScriptedModel, Turn

SIZES: Final = (50, 200, 800, 3_200)
EXPONENT: Final = 1.1
"""The most that k in `cost ~ calls ** k` may be."""
ROUND: Final = 4.5
"""How many times a call of a session a round of an agent with one call may cost, which is its ratio here.

A round is that call, two more events, the model's answer checked and recorded, and both of its messages built from the
events and weighed, so that the conversation fits the model's context and is the same one when it is resumed.
"""
UNLIMITED: Final = Budget(calls=None, refusals=None, requests=None)


def rows(effort: Effort) -> list[Row]:
    sizes = [effort.count(size) for size in SIZES]
    most = sizes[-1]
    samples: dict[str, Callable[[], float]] = {"floor": lambda: floor_call(most)}
    for size in sizes:
        samples[f"session {size}"] = _repeated(_session, size, most)
        samples[f"agent {size}"] = _repeated(_agent, size, most)
    times = interleave(samples, effort.rounds)
    calls, rounds = ({size: times[f"{kind} {size}"] for size in sizes} for kind in ("session", "agent"))
    return [
        row("the floor", times["floor"], "µs", floor=times["floor"]),
        *(row(f"a call, {size:,} in one session", calls[size], "µs", floor=times["floor"]) for size in sizes),
        _exponent("session", calls),
        *(
            row(f"a round, {size:,} in one run of an agent", rounds[size], "µs", floor=calls[size], bound=ROUND)
            for size in sizes
        ),
        _exponent("agent", rounds),
    ]


def _exponent(kind: str, costs: dict[int, Times]) -> Row:
    totals = [cost.least * size for size, cost in costs.items()]
    return Row(f"{kind}: growth exponent", exponent(list(costs), totals), "", bound=EXPONENT)


def exponent(sizes: list[int], totals: list[float]) -> float:
    """k of `total = c * size ** k`, by least squares over the logarithms."""
    return linear_regression([log(size) for size in sizes], [log(total) for total in totals]).slope


def _repeated(sample: Callable[[int], float], size: int, most: int) -> Callable[[], float]:
    """The mean of as many as make the same work for each size, so that small ones are not measured worse."""
    times = max(1, most // size)
    return lambda: sum(sample(size) for _ in range(times)) / times


def _session(count: int) -> float:
    return anyio.run(_session_calls, texts(count))


async def _session_calls(arguments: list[str]) -> float:
    async with Session([add], budget=UNLIMITED) as session:
        with Stopwatch() as watch:
            for text in arguments:
                await session.call("add", text)
        _expect(session.call_count == len(arguments))
    return watch.cpu / len(arguments)


def _agent(count: int) -> float:
    return anyio.run(_agent_run, texts(count))


async def _agent_run(arguments: list[str]) -> float:
    """A model that says nothing asks for one call in each of its answers, until it is done."""
    turns = [Turn(calls=(Call(f"call_{n}", "add", text),), stop="tool_use") for n, text in enumerate(arguments)]
    agent = Agent(ScriptedModel([*turns, "done"]), tools=[add], budget=UNLIMITED, rounds=len(arguments) + 1)
    with Stopwatch() as watch:
        outcome = await agent.run("Add.")
    _expect(outcome.reason == "done" and agent.session.call_count == len(arguments))
    return watch.cpu / len(arguments)


def _expect(true: bool) -> None:
    if not true:
        raise AssertionError("the run was not what it should be, so its time means nothing")
