"""Open, use and close sandboxes and sessions for long, cancelled at any moment in every way, and count what stays.

python -m tests.journeys.soak CALLS COMMANDS CYCLES [SEED]
"""

import asyncio
import ctypes
import gc
import json
import os
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import anyio
import anyio.lowlevel

from handrail import Context, Event, HandrailError, Policy, Session, builtin_tools, open_sandbox, run_sync, tool
from handrail.contract.errors import Unavailable
from tests.drivers.watching import descendants

Work = Callable[[], Awaitable[None]]
ENDED = (asyncio.CancelledError, TimeoutError, HandrailError, Unavailable)
"""What somebody who was cancelled, or whose session was, may meet."""


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def waits(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "waited"


def in_a_thread(seconds: float) -> str:
    """Wait in a thread."""
    sleep(seconds)
    return "waited"


def reads_in_a_thread(n: int, context: Context) -> str:
    """Write and read back from a thread."""
    run_sync(context.sandbox.write_text(f"t{n}", str(n)))
    return run_sync(context.sandbox.read_text(f"t{n}"))


@tool(output_cap=2_000)
def large(n: int) -> str:
    """Answer with more than fits."""
    return f"{n} " * 60_000


COMMANDS = (
    "echo hello",
    "sleep 0.05; exit 3",
    "seq 20000",
    "setsid sleep 600 & sleep 0.02",
    "trap '' TERM; sleep 600",
    "yes | head -c 3000000",
)
TOOLS = [add, waits, in_a_thread, reads_in_a_thread, large, *builtin_tools("all")]


def a_call(rng: random.Random) -> tuple[str, dict[str, Any]]:
    n = rng.randrange(1000)
    return rng.choice([
        ("add", {"a": n, "b": 1}), ("add", {"a": str(n), "b": 1}), ("add", {"a": "wrong"}),
        ("waits", {"seconds": 0.01}), ("in_a_thread", {"seconds": 0.002}),
        ("reads_in_a_thread", {"n": n}), ("large", {"n": n}),
        ("write", {"path": f"f{n}", "content": "x" * n, "overwrite": True}), ("read", {"path": f"f{n}"}),
        ("glob", {"pattern": "*"}), ("process", {"action": "list"}), ("nothing", {}),
    ])  # fmt: skip


def a_command(rng: random.Random) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": rng.choice(COMMANDS), "timeout": 1, "background": rng.random() < 0.2}


async def disturbed(rng: random.Random, work: Work, longest: float, share: float) -> None:
    """Do it; as often as `share` says, cancel it after a random time, by one of the ways there are."""
    seconds = rng.uniform(0, longest)
    ways: list[Callable[[Work, float], Awaitable[None]]] = [by_scope, by_wait_for, by_timeout, by_cancel, by_group]
    try:
        await (rng.choice(ways)(work, seconds) if rng.random() < share else work())
    except ENDED:
        pass
    except BaseExceptionGroup as group:
        if group.split(ENDED)[1] is not None:
            raise


async def by_scope(work: Work, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await work()


async def by_wait_for(work: Work, seconds: float) -> None:
    await asyncio.wait_for(work(), seconds)


async def by_timeout(work: Work, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await work()


async def by_cancel(work: Work, seconds: float) -> None:
    """Three times, for the first only begins an ending that must not be hurried."""
    task = asyncio.ensure_future(work())
    for _ in range(3):
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
        seconds /= 50
    await asyncio.wait([task])


async def by_group(work: Work, seconds: float) -> None:
    async def fail() -> None:
        await asyncio.sleep(seconds)
        raise TimeoutError

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        await work()


class Soak:
    """`done` counts what was begun."""

    def __init__(self, calls: int, commands: int, cycles: int, seed: int) -> None:
        self.wanted = {"calls": calls, "commands": commands, "cycles": cycles}
        self.done: Counter[str] = Counter()
        self.rng = random.Random(seed)
        self.closing = anyio.Event()

    async def run(self) -> None:
        while any(self.done[what] < count for what, count in self.wanted.items()):
            self.done["cycles"] += 1
            self.closing = anyio.Event()
            if self.rng.random() < 0.5:
                await disturbed(self.rng, self.cycle, 2.0, 0.5)
            else:
                await self.cancelled_while_it_closes()

    async def cancelled_while_it_closes(self) -> None:
        task = asyncio.create_task(self.cycle())
        closing = asyncio.create_task(self.closing.wait())
        await asyncio.wait([task, closing], return_when="FIRST_COMPLETED")
        for _ in range(3):
            await asyncio.sleep(self.rng.choice([0, 0, 0.001, 0.005, 0.02]))
            task.cancel()
        closing.cancel()
        await asyncio.wait([task, closing])
        if not task.cancelled():
            await disturbed(self.rng, lambda: task, 0, 0)  # whatever else it met is a fault

    async def cycle(self) -> None:
        """One sandbox and one session. A third of them are left with a job that runs on."""
        rng, cycles = self.rng, self.wanted["cycles"]
        share = {what: self.wanted[what] // cycles * 4 // 3 + 1 for what in ("calls", "commands")}
        driver = rng.choice(["jail", "jail", "host"])
        async with (
            open_sandbox(driver, allow_weaker=True) as sandbox,
            Session(TOOLS, sandbox=sandbox, policy=Policy(mode="open"), readers=[_reader, _plain_reader]) as session,
        ):
            if rng.random() < 0.33:
                await sandbox.start("setsid sleep 600 & sleep 600")
            made = [("calls", a_call) for _ in range(share["calls"])]
            made += [("commands", a_command) for _ in range(share["commands"])]
            rng.shuffle(made)
            async with anyio.create_task_group() as tasks:
                for lane in range(8):
                    tasks.start_soon(self.some, session, made[lane::8])
            self.closing.set()

    async def some(self, session: Session, made: list[tuple[str, Callable[[random.Random], Any]]]) -> None:
        for what, make in made:
            self.done[what] += 1
            session.begin_run()
            await disturbed(self.rng, partial(self.call, session, *make(self.rng)), 0.05, 0.1)

    async def call(self, session: Session, name: str, arguments: dict[str, Any]) -> None:
        await session.call(name, arguments)


async def _reader(event: Event) -> None:
    await anyio.lowlevel.checkpoint()


def _plain_reader(event: Event) -> None:
    return


def measured() -> dict[str, int]:
    """What this process has now: nothing of it may grow. Memory that was freed is given back to the system first."""
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)
    places = {tempfile.gettempdir(), "/var/tmp", "/dev/shm"}
    own = [path for place in places for path in Path(place).glob(f"handrail-{os.getpid()}-*")]
    own += Path(tempfile.gettempdir()).glob("handrail-artifacts-*")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": len(descendants(os.getpid())),
        "directories": len(own),
        "memory (KiB)": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024,
    }


def settled(like: dict[str, int]) -> dict[str, int]:
    """The same, once threads that were left at their work have ended; memory aside."""
    for _ in range(600):
        now = measured()
        if all(now[what] <= count for what, count in like.items() if not what.startswith("memory")):
            return now
        sleep(0.1)
    return now


async def _fill_the_pool() -> None:
    """Idle threads are kept for the next call: there are as many as there will be before anything is counted."""
    async with Session([in_a_thread]) as session, anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(session.call, "in_a_thread", {"seconds": 0.5})


def main(calls: int, commands: int, cycles: int, seed: int = 1) -> dict[str, Any]:
    anyio.run(Soak(*(min(most, count) for most, count in ((400, calls), (40, commands), (10, cycles))), seed + 1).run)
    anyio.run(_fill_the_pool)
    before = measured()
    soak = Soak(calls, commands, cycles, seed)
    anyio.run(soak.run)
    return {"done": dict(soak.done), "before": before, "after": settled(before)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*map(int, sys.argv[1:]))) + "\n")
