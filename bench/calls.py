"""What one call through every gate costs, against a bare asyncio loop that does the same work."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, Final

import anyio

from bench.floor import add, floor_call, texts
from bench.measure import Effort, Row, Stopwatch, Times, interleave, row
from handrail import Budget, Call, Session, Tool, tool

COUNT: Final = 1_000
TOGETHER: Final = 100
NAP: Final = 0.01
BIG: Final = 1 << 20
ALLOWED: Final = 10.0
"""How many times the floor a call with all gates may cost."""
UNLIMITED: Final = Budget(calls=None)


@tool
def add_plainly(a: int, b: int = 1) -> int:
    """Add two numbers, in a thread."""
    return a + b


@tool
async def nap(a: int, b: int = 1) -> int:
    """Sleep 10 ms."""
    await anyio.sleep(NAP)
    return a + b


@tool
async def big(a: int, b: int = 1) -> str:
    """Answer with 1 MiB of text."""
    return "x" * BIG


@tool
async def big_accented(a: int, b: int = 1) -> str:
    """Answer with 1 MiB of text that is not ASCII."""
    return "é" * (BIG // 2)


def rows(effort: Effort) -> list[Row]:
    return [*_single(effort), *_together(effort), *_big(effort)]


def _single(effort: Effort) -> list[Row]:
    count, few = effort.count(COUNT), effort.count(COUNT // 5)
    times = interleave(
        {
            "floor": lambda: floor_call(count * 5),
            "async": lambda: anyio.run(_calls, add, texts(count)),
            "mapping": lambda: anyio.run(_calls, add, [json.loads(text) for text in texts(count)]),
            "to_thread": lambda: asyncio.run(_to_thread(texts(few))),
            "def": lambda: anyio.run(_calls, add_plainly, texts(few)),
        },
        effort.rounds,
    )
    floor = times["floor"]
    return [
        row("the floor", floor, "µs", floor=floor),
        row("async tool", times["async"], "µs", floor=floor, bound=ALLOWED),
        row("async tool, arguments as a mapping", times["mapping"], "µs", floor=floor),
        row("def tool, in a thread", times["def"], "µs", floor=floor),
        row("the floor in asyncio.to_thread", times["to_thread"], "µs", floor=floor),
        row("def tool against that", times["def"], "µs", floor=times["to_thread"]),
    ]


async def _calls(called: Tool, arguments: list[Any]) -> float:
    async with Session([called], budget=UNLIMITED) as session:
        with Stopwatch() as watch:
            for each in arguments:
                result = await session.call(called.name, each)
        if not result.ok:
            raise AssertionError(result.message)
    return watch.cpu / len(arguments)


def _add(a: int, b: int = 1) -> int:
    return a + b


async def _to_thread(arguments: list[str]) -> float:
    log: list[str] = []
    with Stopwatch() as watch:
        for text in arguments:
            log.append(json.dumps(await asyncio.to_thread(_add, **json.loads(text))))
    return watch.cpu / len(arguments)


def _together(effort: Effort) -> list[Row]:
    watches: dict[str, list[Stopwatch]] = {"bare": [], "session": []}

    def sample(name: str, work: Coroutine[Any, Any, Stopwatch]) -> float:
        watches[name].append(asyncio.run(work))
        return watches[name][-1].wall

    times = interleave(
        {"bare": lambda: sample("bare", _bare_naps()), "session": lambda: sample("session", _session_naps())},
        effort.rounds,
    )
    cpu = {name: Times(tuple(watch.cpu / TOGETHER for watch in seen[1:])) for name, seen in watches.items()}
    return [
        row(f"{TOGETHER} calls of 10 ms in asyncio.gather, wall", times["bare"], "ms"),
        row(f"{TOGETHER} calls of 10 ms in call_all, wall", times["session"], "ms", floor=times["bare"]),
        row("one of them, CPU", cpu["session"], "µs", floor=cpu["bare"]),
    ]


async def _bare_naps() -> Stopwatch:
    log: list[str] = []

    async def one(text: str) -> None:
        arguments = json.loads(text)
        await asyncio.sleep(NAP)
        log.append(json.dumps(arguments["a"] + arguments["b"]))

    with Stopwatch() as watch:
        await asyncio.gather(*(one(text) for text in texts(TOGETHER)))
    return watch


async def _session_naps() -> Stopwatch:
    async with Session([nap]) as session:
        with Stopwatch() as watch:
            await session.call_all([Call(f"nap_{n}", "nap", text) for n, text in enumerate(texts(TOGETHER))])
    return watch


def _big(effort: Effort) -> list[Row]:
    count = effort.count(50)
    times = interleave(
        {
            "dumps": lambda: asyncio.run(_dumps(count)),
            "big": lambda: anyio.run(_calls, big, texts(count)),
            "accented": lambda: anyio.run(_calls, big_accented, texts(count)),
        },
        effort.rounds,
    )
    return [
        row("json.dumps of 1 MiB of text", times["dumps"], "µs"),
        row("1 MiB of text as a result", times["big"], "µs", floor=times["dumps"]),
        row("the same, not ASCII", times["accented"], "µs", floor=times["dumps"]),
    ]


async def _dumps(count: int) -> float:
    function = big.function
    if function is None:
        raise AssertionError("a tool made of a function has it")
    with Stopwatch() as watch:
        for _ in range(count):
            json.dumps(await function(1))
    return watch.cpu / count
