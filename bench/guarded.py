"""What every driver with a guard is asked alike: a gigabyte through a capped call, and trees that must end."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail.contract.driver import Command
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.sandbox.sandbox import Sandbox

FLOOD: Final = 1_000_000_000
MARK: Final = "HANDRAIL_BENCH"
"""The variable by which the processes of a command are found again, from outside."""
LOOKS: Final = 1000
PAUSE: Final = 0.02
UNDER_WAY: Final = 0.2
"""How long a tree grows before it is killed: chains are quick to end while only the first of them run."""
CHAINS: Final = """
import os, sys
print("STARTED", flush=True)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
import time; time.sleep(1000)
"""
"""Processes that fork and exit at once, for ever: no walk of a tree can promise to catch them."""
Open = Callable[..., Awaitable[GuardedDriver]]


@dataclass(frozen=True, slots=True)
class Tree:
    """A command, and how many of its processes must be seen before it is killed."""

    command: Command
    processes: int


def trees(effort: Effort) -> dict[str, Tree]:
    many, chains = effort.count(1000), effort.count(64)
    storm = f"for i in $(seq {many}); do sleep 1000 & done; echo STARTED; wait"
    return {
        "a child that called setsid": Tree(Command(line="setsid sleep 1000 & echo STARTED; sleep 1000"), 2),
        f"{many:,} processes": Tree(Command(line=storm), many),
        f"{chains} fork-and-exit chains": Tree(Command(argv=(sys.executable, "-c", CHAINS, str(chains))), 2),
    }


def plainly(words: list[str], count: int) -> float:
    """Seconds for each `subprocess.run` of this."""
    with Stopwatch() as watch:
        for _ in range(count):
            subprocess.run(words, capture_output=True, check=True)
    return watch.wall / count


def flood(effort: Effort, opener: Open, place: str) -> list[Row]:
    """A gigabyte read by plain Python, and through a call that keeps a little of it."""
    size = effort.count(FLOOD)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is counted from here
    times = interleave(
        {"plain": lambda: _read_plainly(size), "capped": lambda: anyio.run(_read_capped, opener, place, size)},
        effort.rounds,
    )
    plain = times["plain"]
    return [
        row(f"{size:,} bytes read by plain Python, wall", plain, "s", floor=plain),
        row("the same through a capped call", times["capped"], "s", floor=plain),
        Row("the most memory this process had meanwhile", _peak(), "MiB"),
    ]


def _peak() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _words(size: int) -> list[str]:
    return ["head", "-c", str(size), "/dev/zero"]


def _read_plainly(size: int) -> float:
    with Stopwatch() as watch, subprocess.Popen(_words(size), stdout=subprocess.PIPE) as process:
        while process.stdout is not None and process.stdout.read(1 << 16):
            pass
    return watch.wall


async def _read_capped(opener: Open, place: str, size: int) -> float:
    async with Sandbox(await opener(workspace=place)) as sandbox:
        with Stopwatch() as watch:
            done = await sandbox.run(_words(size))
    if done.stdout_size != size:
        raise AssertionError(f"{done.stdout_size} of {size} bytes arrived")
    return watch.wall


def ends(effort: Effort, opener: Open, place: str) -> list[Row]:
    """How long killing takes, by kind of tree; what lives on when the command has ended is a row of its own."""
    found, left = [], []

    def kill(tree: Tree) -> float:
        seconds, survivors = anyio.run(_kill, opener, place, tree)
        left.append(survivors)
        return seconds

    for name, tree in trees(effort).items():
        times = interleave({name: lambda tree=tree: kill(tree)}, effort.rounds)  # type: ignore[misc]
        found.append(row(f"kill: {name}, wall", times[name], "ms"))
    return [*found, Row("processes that survived all of this", float(sum(left)), "processes")]


async def _kill(opener: Open, place: str, tree: Tree) -> tuple[float, int]:
    """The seconds, and how many live on before the driver is closed, which would end them too."""
    driver = await opener(workspace=place, env={MARK: place}, limits=Limits(processes=None))
    try:
        process = await driver.start(tree.command)
        async for chunk in process.output():
            if b"STARTED" in chunk.data:
                break
        await _all_seen(place, tree.processes)
        await anyio.sleep(UNDER_WAY)
        with Stopwatch() as watch:
            await process.signal("KILL")
            await process.wait()
        return watch.wall, _living(place)
    finally:
        await driver.close()


async def _all_seen(place: str, processes: int) -> None:
    """The control of what survives: while the tree lives, it is seen."""
    for _ in range(LOOKS):
        if _living(place) >= processes:
            return
        await anyio.sleep(PAUSE)
    raise AssertionError(f"{_living(place)} of {processes} processes are seen")


def _living(place: str) -> int:
    found = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                found += f"{MARK}={place}".encode() in file.read()
        except OSError:
            continue  # it ended
    return found
