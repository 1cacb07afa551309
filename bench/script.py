"""What the calls of a script cost, beside as many direct calls and round trips over a bare pipe. Wall time."""

import gc
import os
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter
from typing import Final

import anyio

from bench.measure import Effort, Row, Times, row
from handrail import Budget, Policy, Sandbox, Session, open_sandbox, tool
from handrail.tools.script import script

COUNTS: Final = (1, 10, 100, 1_000)
TURNS: Final = {100: 5}
"""Measurements of so many calls in one round, of which the median counts: the speed of a processor changes in 10 ms."""
READY: Final = 0.25
"""Seconds in which the next interpreter has started; the quick mode does not wait for it."""
ECHO: Final = "import os\nwhile data := os.read(0, 65536): os.write(1, data)"
CODE: Final = "for n in range({count}): tools.add(a=n, b=1)"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def rows(effort: Effort) -> list[Row]:
    times = anyio.run(_measure, effort)
    found = [row(name, times[name], "ms") for name in ("bash -c true", "script, cold", "script, warm")]
    for count in COUNTS:
        direct, pipe, scripted = (times[f"{what} {count}"] for what in ("direct", "pipe", "script"))
        floor = Times(tuple(map(sum, zip(direct.rounds, pipe.rounds, strict=True))))
        found.append(row(f"{count:,} direct calls", direct, "ms"))
        found.append(row(f"{count:,} round trips", pipe, "ms"))
        name = f"script of {count:,} call{'s' if count > 1 else ''}"
        found.append(row(name, scripted, "ms", floor=floor))
    return found


async def _measure(effort: Effort) -> dict[str, Times]:
    taken: dict[str, list[float]] = {}
    budget = Budget(calls=None, script_calls=None)
    with tempfile.TemporaryDirectory() as work:
        for _ in range(effort.rounds + 1):
            async with (
                open_sandbox("jail", workspace=work) as sandbox,
                Session([add, script], sandbox=sandbox, policy=Policy(mode="open"), budget=budget) as session,
            ):
                for name, seconds in (await _round(sandbox, session, effort)).items():
                    taken.setdefault(name, []).append(seconds)
    return {name: Times(tuple(seconds[1:])) for name, seconds in taken.items()}


async def _round(sandbox: Sandbox, session: Session, effort: Effort) -> dict[str, float]:
    taken: dict[str, float] = {}
    began = perf_counter()
    await sandbox.run(["bash", "-c", "true"])
    taken["bash -c true"] = perf_counter() - began
    taken["script, cold"] = await _script(session, "1", effort)
    taken["script, warm"] = await _script(session, "1", effort)
    for count in COUNTS:
        turns = [await _turn(session, effort.count(count), effort) for _ in range(TURNS.get(count, 1))]
        for what, seconds in zip(("direct", "pipe", "script"), zip(*turns, strict=True), strict=True):
            taken[f"{what} {count}"] = median(seconds)
    return taken


async def _turn(session: Session, count: int, effort: Effort) -> tuple[float, float, float]:
    gc.collect()
    began = perf_counter()
    for number in range(count):
        await session.call("add", {"a": number, "b": 1}, origin="user")
    direct, pipe = perf_counter() - began, _round_trips(count)
    gc.collect()
    return direct, pipe, await _script(session, CODE.format(count=count), effort)


async def _script(session: Session, code: str, effort: Effort) -> float:
    began = perf_counter()
    result = await session.call("script", {"code": code})
    seconds = perf_counter() - began
    assert result.ok, result
    await anyio.sleep(READY / effort.divide)
    return seconds


def _round_trips(count: int) -> float:
    with subprocess.Popen([sys.executable, "-I", "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as echo:
        assert echo.stdin is not None
        assert echo.stdout is not None
        there, back, frame = echo.stdin.fileno(), echo.stdout.fileno(), b"x" * 60
        os.write(there, frame)
        os.read(back, 65_536)
        began = perf_counter()
        for _ in range(count):
            os.write(there, frame)
            os.read(back, 65_536)
        seconds = perf_counter() - began
        echo.stdin.close()
    return seconds
