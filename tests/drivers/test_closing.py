"""Closing leaves nothing behind: not when it is cancelled, not when the guard does not end, not when the loop ends."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command
from handrail.drivers._guarded import GuardedDriver
from tests.drivers.conftest import OPENERS
from tests.drivers.watching import MARK, alive, descendants, descriptors, guard_pid, new_mark, until_says

pytestmark = pytest.mark.guarded
LINE = "setsid sleep 1000 & echo here; sleep 1000"


class Frozen:
    """A driver with a command that runs, whose guard does not even hear that it should end."""

    def __init__(self, driver: GuardedDriver, mark: str) -> None:
        self.driver, self.mark = driver, mark
        self.pids = [driver.guard.pid, guard_pid(driver)]

    def left(self) -> list[str]:
        """What is still there of it."""
        places = [f"/proc/{pid}" for pid in {*self.pids, *alive(self.mark)}]
        if self.driver.name == "host":
            places.append(self.driver.tmp)
        return [place for place in places if Path(place).exists()]


async def frozen(kind: str, workspace: Path) -> Frozen:
    mark = new_mark()
    driver = await OPENERS[kind](workspace=str(workspace))
    await until_says(await driver.start(Command(line=LINE, env={MARK: mark})), b"here")
    it = Frozen(driver, mark)
    assert len(it.left()) >= 3, "the control: it is there"
    os.kill(guard_pid(driver), signal.SIGSTOP)
    return it


async def nobody_cancels(driver: GuardedDriver) -> bool:
    await driver.close()
    return True


async def wait_for(driver: GuardedDriver) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(driver.close(), 0.05)
        return False
    return True


async def cancel_twice(driver: GuardedDriver) -> bool:
    task = asyncio.ensure_future(driver.close())
    for _ in range(2):
        await asyncio.sleep(0.05)
        task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


async def a_scope(driver: GuardedDriver) -> bool:
    with anyio.move_on_after(0.05) as scope:
        await driver.close()
    return scope.cancelled_caught


async def one_of_two(driver: GuardedDriver) -> bool:
    """A second closing is cancelled, the first is not."""
    first = asyncio.ensure_future(driver.close())
    told = await wait_for(driver)
    await first
    return told


WAYS: tuple[Callable[[GuardedDriver], Awaitable[bool]], ...] = (
    nobody_cancels, wait_for, cancel_twice, a_scope, one_of_two,
)  # fmt: skip


@pytest.mark.anyio
async def test_a_guard_that_does_not_end_is_killed_with_its_tree_however_its_closing_is_cancelled(
    kind: str, tmp_path: Path
) -> None:
    warm = await OPENERS[kind](workspace=str(tmp_path))  # what is kept for the whole process is there afterwards
    await warm.close()
    before = descriptors(collected=True)
    drivers = [await frozen(kind, tmp_path) for _ in WAYS]
    told = await asyncio.gather(*(way(it.driver) for way, it in zip(WAYS, drivers, strict=True)))
    left = {way.__name__: it.left() for way, it in zip(WAYS, drivers, strict=True)}
    assert {name: places for name, places in left.items() if places} == {}
    assert told == [True] * len(WAYS), "the cancellation was raised"
    assert descriptors() <= before
    for it in drivers:
        await it.driver.close()


@pytest.mark.anyio
async def test_a_cancelled_closing_still_gives_the_guard_the_time_to_end_by_itself(kind: str, tmp_path: Path) -> None:
    it = await frozen(kind, tmp_path)
    closing = asyncio.ensure_future(it.driver.close())
    await asyncio.sleep(0)
    closing.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    with suppress(ProcessLookupError):
        os.kill(it.pids[-1], signal.SIGCONT)
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert it.driver.guard._process.returncode == 0, "it ended, and nobody killed it"
    assert it.left() == []


def test_when_the_loop_ends_during_a_closing_guard_and_tree_are_killed_without_it(kind: str, tmp_path: Path) -> None:
    kept: list[Frozen] = []

    async def main() -> None:
        kept.append(await frozen(kind, tmp_path))
        closing = asyncio.ensure_future(kept[0].driver.close())
        await asyncio.sleep(0.05)
        assert not closing.done()

    asyncio.run(main())
    assert kept[0].left() == []


@pytest.mark.anyio
async def test_what_a_command_started_dies_though_it_stopped_the_guard_and_every_supervisor(
    kind: str, tmp_path: Path
) -> None:
    """Nobody is left to kill its tree but the closing itself, while some of it goes on starting others."""
    mark = new_mark()
    driver = await OPENERS[kind](workspace=str(tmp_path))
    line = "(trap '' TERM; while :; do setsid sleep 1000 & sleep 0.05; done) & setsid sleep 1000 & echo here; wait"
    commands = [await driver.start(Command(line=line, env={MARK: mark})) for _ in range(2)]
    for each in commands:
        await until_says(each, b"here")
    ours = set(alive(mark))
    guards = [it.pid for it in descendants(driver.guard.pid) if it.pid not in ours]
    assert len(ours) >= 4, "the control: the commands run"
    assert len(guards) >= 2, "the control: each has its supervisor"
    for pid in [guard_pid(driver), *guards]:
        with suppress(ProcessLookupError):  # of the commands, begun between the two looks, and ended since
            os.kill(pid, signal.SIGSTOP)
    await driver.close()
    assert alive(mark) == []
