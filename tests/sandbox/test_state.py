"""A closing that is cancelled, by anyio or by asyncio itself, runs to its end; the cancellation comes afterwards."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Event, Sandbox, Session, builtin_tools, open_sandbox
from handrail.contract.errors import Unavailable
from handrail.testing import MemoryDriver
from tests.drivers.watching import Relative, descendants, eventually, lives

pytestmark = pytest.mark.anyio
Work = Callable[[], Awaitable[None]]


class Slow(MemoryDriver):
    """Closes when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = anyio.Event(), anyio.Event()
        self.closed = False

    async def close(self) -> None:
        self.begun.set()
        await self.may_end.wait()
        self.closed = True
        await super().close()


async def by_task_cancel(work: Work, now: anyio.Event) -> None:
    async def run() -> None:
        await work()

    task = asyncio.create_task(run())
    await now.wait()
    task.cancel()
    await task


async def by_wait_for(work: Work, now: anyio.Event) -> None:
    async def run() -> None:
        await work()

    await asyncio.wait_for(run(), 0.05)


async def by_timeout(work: Work, now: anyio.Event) -> None:
    async with asyncio.timeout(0.05):
        await work()


async def by_task_group(work: Work, now: anyio.Event) -> None:
    async def fail() -> None:
        await now.wait()
        raise TimeoutError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await work()
    except* TimeoutError:
        raise asyncio.CancelledError from None


async def by_scope(work: Work, now: anyio.Event) -> None:
    with anyio.fail_after(0.05):
        await work()


WAYS = [by_task_cancel, by_wait_for, by_timeout, by_task_group, by_scope]


@pytest.mark.parametrize("way", WAYS)
async def test_whoever_closes_waits_for_the_end_and_is_cancelled_then(way: Any) -> None:
    driver = Slow()
    sandbox = Sandbox(driver)
    order: list[str] = []

    async def close_again() -> None:
        await driver.begun.wait()
        await sandbox.close()
        order.append("closed too" if driver.closed else "came back too soon")

    async def closer() -> None:
        try:
            await way(sandbox.close, driver.begun)
        except (asyncio.CancelledError, TimeoutError):
            order.append("cancelled" if driver.closed else "cancelled too soon")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(closer)
        tasks.start_soon(close_again)
        await driver.begun.wait()
        await anyio.sleep(0.2)
        assert order == []
        driver.may_end.set()
    assert sorted(order) == ["cancelled", "closed too"]


def things() -> tuple[int, list[str]]:
    """The descriptors of this process, and its temporary directories."""
    places = {tempfile.gettempdir(), "/var/tmp", "/dev/shm"}
    mine = [str(path) for place in places for path in Path(place).glob(f"handrail-{os.getpid()}-*")]
    return len(os.listdir("/proc/self/fd")), sorted(mine)


@pytest.mark.parametrize("driver", ["jail", "host"])
async def test_a_closing_cancelled_at_any_moment_leaves_nothing_behind(driver: str) -> None:
    async with open_sandbox(driver, allow_weaker=True) as sandbox:
        await sandbox.run("true")
    gc.collect()
    before = things()

    others = descendants(os.getpid())  # a server that another test left running for the next ones

    async def use(family: list[Relative], closing: anyio.Event) -> None:
        async with open_sandbox(driver, allow_weaker=True) as sandbox, Session(sandbox=sandbox):
            await sandbox.start("setsid sleep 600 & sleep 600")
            family.extend(each for each in descendants(os.getpid()) if each not in others)
            closing.set()

    for turns in (0, 1, 2, 3, 5, 8, 13, 21, 34):
        family: list[Relative] = []
        closing = anyio.Event()
        task = asyncio.create_task(use(family, closing))
        await closing.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
        assert len(family) >= 3, "the control: it ran"
        assert eventually(lambda family=family: not any(map(lives, family)))
    gc.collect()
    assert things() == before


async def test_a_command_that_is_cancelled_again_while_it_is_ended_ends_all_the_same() -> None:
    async with open_sandbox("host", allow_weaker=True) as sandbox:
        begun = anyio.Event()
        command = "trap '' TERM; setsid sleep 600 & echo on; while true; do sleep 1; done"
        work = sandbox.run(command, on_output=lambda _: begun.set())
        task = asyncio.create_task(work)
        await begun.wait()
        assert eventually(lambda: "sleep" in {each.name for each in descendants(os.getpid())}), "the control: it runs"
        family = descendants(os.getpid())
        for _ in range(5):
            task.cancel()
            await asyncio.sleep(0.01)
        await asyncio.wait([task])
        assert task.cancelled()
        assert not any(map(lives, (each for each in family if each.name == "sleep")))


async def test_the_end_of_a_session_is_told_even_if_its_closing_is_cancelled() -> None:
    driver = Slow()
    seen: list[Event] = []

    async def watch(event: Event) -> None:
        await anyio.sleep(0.05)
        seen.append(event)

    async def use() -> None:
        async with Session(sandbox=Sandbox(driver), readers=[watch]) as opened:
            sessions.append(opened)
            opened.emit("text", data={"text": "x"})

    sessions: list[Session] = []
    task = asyncio.create_task(use())
    await driver.begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    driver.may_end.set()
    await asyncio.wait([task])
    assert task.cancelled()
    with anyio.fail_after(30):
        followed = [event async for event in sessions[0].events()]
    assert followed == seen != []


async def test_a_call_that_closes_its_own_sandbox_is_told_so() -> None:
    async with open_sandbox("jail") as sandbox, Session(builtin_tools(), sandbox=sandbox):
        async with anyio.create_task_group() as tasks:
            outcome: list[BaseException] = []

            async def run() -> None:
                try:
                    await sandbox.run("sleep 600")
                except Unavailable as error:
                    outcome.append(error)

            tasks.start_soon(run)
            await anyio.sleep(0.1)
            with anyio.move_on_after(0):
                await sandbox.close()
        assert "closed" in str(outcome[0])


ENDING = """
import asyncio, gc, json, os, sys, threading, time, uvloop
from pathlib import Path
from handrail import open_sandbox
from tests.drivers.watching import descendants, eventually, lives

def directories():
    places = ("/tmp", "/var/tmp", "/dev/shm")
    return {str(path) for place in places for path in Path(place).glob(f"handrail-{os.getpid()}-*")}

def descriptors():
    return len(os.listdir("/proc/self/fd"))

async def use(family, closing):
    async with open_sandbox(sys.argv[3], allow_weaker=True) as sandbox:
        if sys.argv[1] != "idle":
            await sandbox.start("setsid sleep 600 & sleep 600")
        family += descendants(os.getpid())
        closing.set()
        if sys.argv[1] != "closing":
            await asyncio.sleep(600)

async def main(family, turns=3):
    closing = asyncio.Event()
    task = asyncio.create_task(use(family, closing))
    await closing.wait()
    for _ in range(turns):
        await asyncio.sleep(0)

async def warm():
    async with open_sandbox(sys.argv[3], allow_weaker=True) as sandbox:
        await sandbox.run("true")

new_loop = uvloop.new_event_loop if sys.argv[4] == "uvloop" else asyncio.new_event_loop
with asyncio.Runner(loop_factory=new_loop) as runner:
    runner.run(warm())
before, opened, family = directories(), descriptors(), []
if sys.argv[2] == "run":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(family))
else:
    for turns in (1, 3, 9) if sys.argv[2] == "close" else (3,):
        loop = new_loop()
        assert type(loop).__module__.partition(".")[0] == sys.argv[4], "the control: it is the loop that is tested"
        loop.run_until_complete(main(family, turns))
        if sys.argv[2] == "close":
            loop.close()
        del loop
for _ in range(3):  # what the first collection finalizes, the next ones free
    gc.collect()
gone = eventually(lambda: not any(map(lives, family)))
kept = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
print(json.dumps([len(family), gone, sorted(directories() - before), descriptors() - opened, kept]))
"""


WAYS = [("open", "run"), ("closing", "run"), ("open", "close"), ("closing", "close"), ("idle", "drop")]
ENDINGS = [(*way, loop) for way in WAYS for loop in ("asyncio", "uvloop") if (way[1], loop) != ("drop", "uvloop")]
"""uvloop never frees a loop that was not closed."""


@pytest.mark.parametrize("driver", ["jail", "host"])
@pytest.mark.parametrize(("when", "how", "loop"), ENDINGS)
def test_an_event_loop_that_ends_takes_the_sandbox_with_it(when: str, how: str, driver: str, loop: str) -> None:
    program = [sys.executable, "-c", ENDING, when, how, driver, loop]
    root = Path(__file__).parents[2]  # where `tests` can be imported
    ran = subprocess.run(program, cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    started, gone, directories, descriptors, threads = json.loads(ran.stdout)
    assert started >= 3 or (when == "idle" and started >= 1), "the control: it ran"
    assert gone, ran.stderr
    assert (directories, descriptors) == ([], 0)
    assert threads == [], "a program does not exit before its threads, and these wait for ever"
    assert how != "run" or ran.stderr == "", "otherwise asyncio names the tasks that its loop left pending"


FORKING = """
import asyncio, gc, os
from handrail import open_sandbox

loop = asyncio.new_event_loop()
opening = open_sandbox("host", allow_weaker=True)
sandbox = loop.run_until_complete(opening.__aenter__())
if child := os.fork():
    os.waitpid(child, 0)
    print(loop.run_until_complete(sandbox.run("echo alive", cwd=".")).stdout)
    loop.run_until_complete(opening.__aexit__(None, None, None))
    loop.close()
else:
    loop.close()
    del loop, opening, sandbox
    gc.collect()
    os._exit(0)
"""


def test_a_forked_child_that_ends_the_loop_leaves_the_sandbox_to_its_parent() -> None:
    program = [sys.executable, "-W", "ignore", "-c", FORKING]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("alive", 0), ran.stderr
