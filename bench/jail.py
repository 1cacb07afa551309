"""What a jail costs: to make, to run in, to stream, to end and to keep, against `subprocess.run(["true"])` outside."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Final

import anyio

from bench.guarded import Open, ends, flood, plainly
from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail.contract.driver import Command
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail
from handrail.drivers.jail._bubblewrap import find_bubblewrap
from handrail.drivers.open import open_sandbox

COUNT: Final = 100
MANY: Final = 100
TRUE: Final = Command(argv=("true",))
LINE: Final = Command(line="true")
CREATE_ALLOWED: Final = 8.0
"""How many times `subprocess.run` it may cost to make a jail and get an answer from it."""
ARGV_ALLOWED: Final = 2.0
LINE_ALLOWED: Final = 1.5
"""How many times the same bash outside a line may cost."""
MIB: Final = 1 << 20


def rows(effort: Effort) -> list[Row]:
    with tempfile.TemporaryDirectory() as workspace:
        asked = (effort, open_jail, workspace)
        return [*_commands(effort, workspace), *flood(*asked), *ends(*asked), *_many(effort, workspace)]


def _commands(effort: Effort, workspace: str) -> list[Row]:
    count = effort.count(COUNT)
    times = interleave(
        {
            "floor": lambda: plainly(["true"], count),
            "bash": lambda: plainly(["bash", "-o", "pipefail", "-c", "true"], count),
            "host": lambda: anyio.run(_commands_in, open_host, workspace, TRUE, count),
            "argv": lambda: anyio.run(_commands_in, open_jail, workspace, TRUE, count),
            "line": lambda: anyio.run(_commands_in, open_jail, workspace, LINE, count),
            "sandbox": lambda: anyio.run(_sandbox, workspace, count),
            "create": lambda: anyio.run(_create, workspace, effort.count(COUNT // 5)),
            "bwrap": lambda: plainly(_bubblewrap(), effort.count(COUNT // 2)),
            **_docker(effort),
        },
        effort.rounds,
    )
    floor = times["floor"]
    names = {
        "floor": 'subprocess.run(["true"]), wall', "bash": "the same, bash -c true", "host": "argv true, host driver",
        "argv": "argv true in a jail", "line": "the line true in a jail", "sandbox": "the line true, Sandbox.run",
        "create": "make a jail and get an answer", "bwrap": "bubblewrap for each command", "docker": "docker exec",
    }  # fmt: skip
    bounds = {"create": CREATE_ALLOWED, "argv": ARGV_ALLOWED}
    table = [row(names[name], each, "ms", floor=floor, bound=bounds.get(name)) for name, each in times.items()]
    return [*table, row("the line, against bash outside", times["line"], "ms", floor=times["bash"], bound=LINE_ALLOWED)]


async def _commands_in(opener: Open, workspace: str, command: Command, count: int) -> float:
    driver = await opener(workspace=workspace)
    try:
        with Stopwatch() as watch:
            for _ in range(count):
                await _answer(driver, command)
    finally:
        await driver.close()
    return watch.wall / count


async def _answer(driver: GuardedDriver, command: Command) -> None:
    process = await driver.start(command)
    async for _ in process.output():
        pass
    await process.wait()


async def _sandbox(workspace: str, count: int) -> float:
    async with open_sandbox("jail", workspace=workspace) as sandbox:
        with Stopwatch() as watch:
            for _ in range(count):
                await sandbox.run("true")
    return watch.wall / count


async def _create(workspace: str, count: int) -> float:
    """Closing is not part of it, so none is closed before the last is made: the kernel takes one apart for a while."""
    drivers: list[GuardedDriver] = []
    try:
        with Stopwatch() as watch:
            for _ in range(count):
                drivers.append(await open_jail(workspace=workspace))
                await _answer(drivers[-1], TRUE)
        return watch.wall / count
    finally:
        for driver in drivers:
            await driver.close()


def _bubblewrap() -> list[str]:
    links = [word for path in ("/bin", "/lib", "/lib64") if os.path.islink(path)
             for word in ("--symlink", os.readlink(path), path)]  # fmt: skip
    shown = ["--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    return [find_bubblewrap(), "--unshare-user", "--unshare-all", "--cap-drop", "ALL", *shown, "--", "true"]


def _docker(effort: Effort) -> dict[str, Callable[[], float]]:
    """Where a container called handrail-bench runs; nothing is started for it."""
    words = ["docker", "exec", "handrail-bench", "true"]
    if shutil.which("docker") is None or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        return {}
    return {"docker": lambda: plainly(words, effort.count(COUNT // 20))}


def _many(effort: Effort, workspace: str) -> list[Row]:
    count = effort.count(MANY)
    seconds, sizes = anyio.run(_hold, workspace, count)
    return [
        Row(f"{count} jails, made one after the other", seconds, "s"),
        Row(f"idle memory (PSS), mean of {count}", mean(sizes), "MiB"),
    ]


async def _hold(workspace: str, count: int) -> tuple[float, list[float]]:
    drivers: list[GuardedDriver] = []
    try:
        with Stopwatch() as watch:
            for _ in range(count):
                drivers.append(await open_jail(workspace=workspace))
        return watch.wall, [_memory(driver.guard.pid) for driver in drivers]
    finally:
        for driver in drivers:
            await driver.close()


def _memory(pid: int) -> float:
    """A process and what is below it, each page divided by how many share it."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    own = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024 / MIB
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return own + sum(_memory(int(child)) for child in children)
