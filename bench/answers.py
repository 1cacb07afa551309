"""What a long answer costs: many objects, and a text that passes from one tool to the next by reference."""

import json
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail import Context, Session, Tool

OBJECTS: Final = 200_000
CHARACTERS: Final = 50_000_000
WRITING: Final = 3.0
"""How many times `json.dumps` of a value its answer may cost."""
STALL: Final = 0.25
"""The part of an answer's time for which others may wait at once. One long stall is nearly all of it."""
SHAPES: Final[Mapping[str, Callable[[int], Any]]] = {
    "objects": lambda count: [{"id": n, "name": f"row {n}", "ok": True} for n in range(count)],
    "objects in objects": lambda count: [{"id": n, "tags": ["a"], "at": {"x": n / 7}} for n in range(count)],
    "an object of objects": lambda count: {"rows": [{"id": n, "name": f"row {n}"} for n in range(count)], "n": count},
}


def rows(effort: Effort) -> list[Row]:
    made = []
    for name, shape in SHAPES.items():
        value = shape(effort.count(OBJECTS))
        stalls: list[float] = []
        samples = {"dumps": _dumps(value), "answer": lambda value=value, stalls=stalls: _answer(value, stalls)}
        times = interleave(samples, effort.rounds)
        made.append(row(f"{name}: json.dumps", times["dumps"], "ms", floor=times["dumps"]))
        made.append(
            row(f"{name}: a call that answers them", times["answer"], "ms", floor=times["dumps"], bound=WRITING)
        )
        made.append(Row(f"{name}: longest wait of others, part of the call", min(stalls), "", bound=STALL))
    text = "0123456789" * (effort.count(CHARACTERS) // 10)
    times = interleave({"passed on": lambda: anyio.run(_passed_on, text)}, effort.rounds)
    made.append(row(f"{len(text) // 1_000_000} MB of text, from one tool to the next", times["passed on"], "ms"))
    return made


def _dumps(value: Any) -> Callable[[], float]:
    def sample() -> float:
        with Stopwatch() as watch:
            json.dumps(value, ensure_ascii=False)
        return watch.cpu

    return sample


def _tool(name: str, body: Callable[[Context, Mapping[str, Any]], Any]) -> Tool:
    return Tool(name, {"type": "object", "properties": {"text": {"type": "string"}}}, body, timeout=None)


def _answer(value: Any, stalls: list[float]) -> float:
    seconds, longest = anyio.run(_answered, value)
    stalls.append(longest)
    return seconds


async def _answered(value: Any) -> tuple[float, float]:
    """CPU seconds of a call, and the longest wait of another task meanwhile as a part of the call's time."""
    longest = 0.0

    async def others(scope: anyio.CancelScope) -> None:
        nonlocal longest
        with scope:
            while True:
                began = perf_counter()
                await checkpoint()
                longest = max(longest, perf_counter() - began)

    async with Session([_tool("t", lambda context, arguments: value)]) as session:
        with Stopwatch() as watch:
            assert (await session.call("t")).ok
        async with anyio.create_task_group() as group:
            group.start_soon(others, scope := anyio.CancelScope())
            await checkpoint()
            with Stopwatch() as beside:
                await session.call("t")
            scope.cancel()
    return watch.cpu, longest / beside.wall


async def _passed_on(text: str) -> float:
    tools = [_tool("give", lambda context, arguments: text), _tool("take", lambda context, given: len(given["text"]))]
    async with Session(tools) as session:
        with Stopwatch() as watch:
            given = await session.call("give")
            taken = await session.call("take", {"text": given.value.whole.to_wire()})
    assert taken.value == len(text)
    return watch.cpu
