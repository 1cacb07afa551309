"""What running a command through the guard costs on the host: to start, to stream, and to end, against plain Python."""

import tempfile
from typing import Final

import anyio

from bench.guarded import ends, flood, plainly
from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail.drivers.host import open_host
from handrail.sandbox.sandbox import Sandbox

COUNT: Final = 100
ARGV_ALLOWED: Final = 2.0
LINE_ALLOWED: Final = 1.5


def rows(effort: Effort) -> list[Row]:
    with tempfile.TemporaryDirectory() as place:
        return [*_commands(effort, place), *flood(effort, open_host, place), *ends(effort, open_host, place)]


def _commands(effort: Effort, place: str) -> list[Row]:
    count = effort.count(COUNT)
    times = interleave(
        {
            "floor": lambda: plainly(["true"], count),
            "bash": lambda: plainly(["bash", "-c", "true"], count),
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
