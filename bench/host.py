"""What running a command through the guard costs on the host: to start, to stream, and to end, against plain Python."""

import os
import resource
import subprocess
import sys
import tempfile
from typing import Final

import anyio

from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail.contract.driver import Command
from handrail.drivers.guarded import GuardedDriver
from handrail.drivers.host import open_host
from handrail.sandbox.sandbox import Sandbox

COUNT: Final = 100
FLOOD: Final = 1_000_000_000
ARGV_ALLOWED: Final = 2.0
LINE_ALLOWED: Final = 1.5
MIB: Final = 1 << 20
CHAINS: Final = """
import os
print("STARTED", flush=True)
for _ in range(64):
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
import time; time.sleep(1000)
"""
"""Processes that fork and exit at once, for ever: no walk of a tree can promise to catch them."""


def rows(effort: Effort) -> list[Row]:
    with tempfile.TemporaryDirectory() as place:
        return [*_commands(effort, place), *_flood(effort, place), *_ends(effort, place)]


def _commands(effort: Effort, place: str) -> list[Row]:
    count = effort.count(COUNT)
    times = interleave(
        {
            "floor": lambda: _plainly(["true"], count),
            "bash": lambda: _plainly(["bash", "-c", "true"], count),
            "argv": lambda: anyio.run(_runs, place, ["true"], count),
            "line": lambda: anyio.run(_runs, place, "true", count),
            "start": lambda: anyio.run(_starts, place, effort.count(COUNT // 5)),
        },
        effort.rounds,
    )
    floor, bash = times["floor"], times["bash"]
    return [
        row('subprocess.run(["true"]), wall', floor, "ms", floor=floor),
        row("argv true, Sandbox.run", times["argv"], "ms", floor=floor, bound=ARGV_ALLOWED),
        row('subprocess.run(["bash", "-c", "true"])', bash, "ms", floor=floor),
        row("the line true, against bash", times["line"], "ms", floor=bash, bound=LINE_ALLOWED),
        row("start a sandbox and get an answer", times["start"], "ms", floor=floor),
    ]


def _plainly(words: list[str], count: int) -> float:
    with Stopwatch() as watch:
        for _ in range(count):
            subprocess.run(words, capture_output=True, check=True)
    return watch.wall / count


async def _runs(place: str, command: str | list[str], count: int) -> float:
    async with Sandbox(await open_host(workspace=place)) as sandbox:
        with Stopwatch() as watch:
            for _ in range(count):
                await sandbox.run(command)
    return watch.wall / count


async def _starts(place: str, count: int) -> float:
    """Closing is not part of it."""
    seconds = 0.0
    for _ in range(count):
        with Stopwatch() as watch:
            sandbox = Sandbox(await open_host(workspace=place))
            await sandbox.run(["true"])
        seconds += watch.wall
        await sandbox.close()
    return seconds / count


def _flood(effort: Effort, place: str) -> list[Row]:
    size = effort.count(FLOOD)
    times = interleave(
        {"plain": lambda: _read_plainly(size), "capped": lambda: anyio.run(_read_capped, place, size)}, effort.rounds
    )
    plain = times["plain"]
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        row(f"{size:,} bytes read by plain Python, wall", plain, "s", floor=plain),
        row("the same through a capped call", times["capped"], "s", floor=plain),
        Row("the most memory this process ever had", float(resident), "MiB"),
    ]


def _words(size: int) -> list[str]:
    return ["head", "-c", str(size), "/dev/zero"]


def _read_plainly(size: int) -> float:
    with Stopwatch() as watch, subprocess.Popen(_words(size), stdout=subprocess.PIPE) as process:
        while process.stdout is not None and process.stdout.read(1 << 16):
            pass
    return watch.wall


async def _read_capped(place: str, size: int) -> float:
    async with Sandbox(await open_host(workspace=place)) as sandbox:
        with Stopwatch() as watch:
            done = await sandbox.run(_words(size))
    if done.stdout_size != size:
        raise AssertionError(f"{done.stdout_size} of {size} bytes arrived")
    return watch.wall


def _ends(effort: Effort, place: str) -> list[Row]:
    """How long killing takes, by kind of tree; what survives is a row of its own."""
    kinds = {
        "a child that called setsid": Command(line="setsid sleep 1000 & echo STARTED; sleep 1000"),
        "a thousand processes": Command(line="for i in $(seq 1000); do sleep 1000 & done; echo STARTED; wait"),
        "64 fork-and-exit chains": Command(argv=(sys.executable, "-c", CHAINS)),
    }
    found, left = [], 0
    for name, command in kinds.items():
        times = interleave({name: lambda command=command: anyio.run(_kill, place, command)}, effort.rounds)  # type: ignore[misc]
        left += _survivors(place)
        found.append(row(f"kill: {name}, wall", times[name], "ms"))
    return [*found, Row("processes that survived all of this", float(left), "processes")]


async def _kill(place: str, command: Command) -> float:
    driver: GuardedDriver = await open_host(workspace=place, env={"HANDRAIL_BENCH": place})
    try:
        process = await driver.start(command)
        async for chunk in process.output():
            if b"STARTED" in chunk.data:
                break
        await anyio.sleep(0.2)
        with Stopwatch() as watch:
            await process.signal("KILL")
            await process.wait()
    finally:
        await driver.close()
    return watch.wall


def _survivors(place: str) -> int:
    found = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                found += f"HANDRAIL_BENCH={place}".encode() in file.read()
        except OSError:
            continue  # it ended
    return found
