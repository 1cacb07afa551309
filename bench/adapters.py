"""What an adapter adds to a framework's own call of the same function, for each framework that is installed here."""

from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import anyio

from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail import Session, Tool, tool

COUNT: Final = 200
"""Calls of one answer of the model."""
FRAMEWORKS: Final = {
    "pydantic-ai": ("pydantic_ai", "_in_pydantic_ai"),
    "openai-agents": ("agents", "_in_openai_agents"),
    "langchain": ("langchain", "_in_langchain"),
    "agno": ("agno", "_in_agno"),
}
"""By its name: the module by which it is known to be installed, and the one beside this that runs an agent of it."""
Play = Callable[[int, Session | None], Awaitable[None]]
"""An agent whose model calls `plus` so many times, in one answer: its own tool, or that of the session."""


async def plus(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def rows(effort: Effort) -> list[Row]:
    installed = {name: module for name, (needed, module) in FRAMEWORKS.items() if find_spec(needed)}
    return [each for name, module in installed.items() for each in _compare(name, module, effort)]


def _compare(name: str, module: str, effort: Effort) -> list[Row]:
    play: Play = import_module(f"bench.{module}").play
    count, tools = effort.count(COUNT), [tool(plus)]
    times = interleave(
        {
            "own": lambda: anyio.run(_timed, play, count, None),
            "ours": lambda: anyio.run(_timed, play, count, tools),
        },
        effort.rounds,
    )
    own, ours = times["own"], times["ours"]
    return [
        row(f"{name}: a call of its own function tool", own, "µs"),
        row(f"{name}: the same through a session", ours, "µs", floor=own),
        row(f"{name}: what that adds", ours.minus(own), "µs"),
    ]


async def _timed(play: Play, count: int, tools: list[Tool] | None) -> float:
    if tools is None:
        with Stopwatch() as watch:
            await play(count, None)
        return watch.cpu / count
    async with Session(tools) as session:
        with Stopwatch() as watch:
            await play(count, session)
        if session.call_count != count:
            raise AssertionError(f"{session.call_count} of {count} calls reached the session")
    return watch.cpu / count
