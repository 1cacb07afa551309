"""The host driver without a guard: what stays in its process group ends with its command; the report claims no more."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command
from handrail.contract.errors import Unavailable
from handrail.drivers.posix import PosixDriver, open_posix
from tests.drivers.test_trees import TREES
from tests.drivers.watching import MARK, PATIENCE, alive, collect, descriptors, eventually, new_mark, until_says

pytestmark = pytest.mark.anyio

LEAVE = ("setsid", "double-forked")
"""Trees with a process that leaves its group."""
GROUPS = {name: line for name, line in TREES.items() if name not in LEAVE}


@pytest.fixture
async def posix(tmp_path: Path) -> AsyncIterator[PosixDriver]:
    driver = await open_posix(workspace=str(tmp_path))
    yield driver
    await driver.close()


async def start(driver: PosixDriver, line: str, mark: str):  # type: ignore[no-untyped-def]
    process = await driver.start(Command(line=line, env={MARK: mark}))
    await until_says(process, b"STARTED")  # type: ignore[arg-type]
    assert alive(mark), "the control: it runs"
    return process


async def are_dead(mark: str) -> bool:
    """A process that was killed may be a moment in dying when nobody is there to collect it."""
    return await anyio.to_thread.run_sync(eventually, lambda: not alive(mark))


@pytest.mark.parametrize("tree", GROUPS)
async def test_a_killed_group_is_dead(posix: PosixDriver, tree: str) -> None:
    mark = new_mark()
    process = await start(posix, GROUPS[tree], mark)
    await process.signal("KILL")
    with anyio.fail_after(PATIENCE):
        assert await process.wait() == 128 + signal.SIGKILL
    assert await are_dead(mark)
    assert "setsid" in process.notes[0], "the model is told what may not have ended"


@pytest.mark.parametrize("tree", ["plain", "background", "stopped", "pipeline"])
async def test_term_reaches_the_group(posix: PosixDriver, tree: str) -> None:
    mark = new_mark()
    process = await start(posix, GROUPS[tree], mark)
    await process.signal("TERM")
    with anyio.fail_after(PATIENCE):
        assert await process.wait() == 128 + signal.SIGTERM
    assert await are_dead(mark)


async def test_term_leaves_a_deaf_group_alive_until_it_is_killed(posix: PosixDriver) -> None:
    mark = new_mark()
    process = await start(posix, GROUPS["deaf"], mark)
    await process.signal("TERM")
    await anyio.sleep(0.3)
    assert alive(mark)
    await process.signal("KILL")
    with anyio.fail_after(PATIENCE):
        await process.wait()
    assert await are_dead(mark)


@pytest.mark.parametrize("tree", GROUPS)
async def test_no_group_survives_close(tmp_path: Path, tree: str) -> None:
    mark = new_mark()
    driver = await open_posix(workspace=str(tmp_path))
    await start(driver, GROUPS[tree], mark)
    with anyio.fail_after(PATIENCE):
        await driver.close()
    assert await are_dead(mark)


@pytest.mark.parametrize("left", ["sleep 1000 &", "(trap '' TERM; sleep 1000) &", "yes &"])
async def test_what_a_command_left_in_its_group_ends_with_it_and_a_note_says_so(posix: PosixDriver, left: str) -> None:
    mark = new_mark()
    with anyio.fail_after(PATIENCE):
        process = await posix.start(Command(line=f"{left} echo STARTED; exit 7", env={MARK: mark}))
        ran = await collect(process)  # type: ignore[arg-type]
    assert ran.code == 7
    assert b"STARTED" in ran.stdout
    assert "background" in ran.notes[0]
    assert await are_dead(mark)


async def test_a_command_that_leaves_nothing_has_no_note(posix: PosixDriver) -> None:
    process = await posix.start(Command(line="echo a | cat; true & wait"))
    assert (await collect(process)).notes == ()  # type: ignore[arg-type]


async def test_a_child_that_left_the_group_and_keeps_the_streams_open_does_not_hold_the_command(
    posix: PosixDriver,
) -> None:
    mark = new_mark()
    try:
        with anyio.fail_after(PATIENCE):
            line = "setsid sleep 1000 & while ! ps -o sid= -p $! | grep -q $!; do :; done; echo done"
            process = await posix.start(Command(line=line, env={MARK: mark}, input=True))
            assert (await collect(process)).stdout == b"done\n"  # type: ignore[arg-type]
            assert alive(mark), "the control: it lives on, as the report says, with the streams in its hands"
            with pytest.raises(BrokenPipeError):
                await process.send(b"x" * (1 << 20))
    finally:
        for pid in alive(mark):
            os.kill(pid, signal.SIGKILL)
    assert posix.report.standing("tree_kill") == "advisory"
    assert "setsid" in next(it.reason for it in posix.report.guarantees if it.feature == "tree_kill")


async def test_input_that_waits_for_a_reader_is_given_up_when_the_command_ends(posix: PosixDriver) -> None:
    mark = new_mark()
    process = await posix.start(Command(line="echo STARTED; sleep 1000", env={MARK: mark}, input=True))
    await until_says(process, b"STARTED")  # type: ignore[arg-type]
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(process.signal, "KILL")
            with pytest.raises(BrokenPipeError):
                await process.send(b"x" * (10 << 20))
        assert await process.wait() == 137


async def test_when_what_starts_commands_is_killed_its_groups_die_and_everything_says_so(posix: PosixDriver) -> None:
    mark = new_mark()
    process = await start(posix, GROUPS["background"], mark)
    os.kill(posix.starter.pid, signal.SIGKILL)
    with anyio.fail_after(PATIENCE):
        with pytest.raises(Unavailable) as raised:
            await process.wait()
        assert not raised.value.retryable
        with pytest.raises(Unavailable):
            await posix.start(Command(line="true"))
        with pytest.raises(Unavailable):
            await posix.read(posix.workspace)
    assert await are_dead(mark)


async def test_a_frozen_starter_does_not_hold_the_closing(tmp_path: Path) -> None:
    mark, before = new_mark(), descriptors(collected=True)
    driver = await open_posix(workspace=str(tmp_path))
    await start(driver, GROUPS["background"], mark)
    os.kill(driver.starter.pid, signal.SIGSTOP)
    with anyio.fail_after(PATIENCE):
        await driver.close()
    assert await are_dead(mark)
    assert not Path(driver.tmp).exists()
    assert descriptors() <= before


def test_when_the_loop_ends_the_groups_are_killed_without_it(tmp_path: Path) -> None:
    mark = new_mark()

    async def main() -> PosixDriver:
        driver = await open_posix(workspace=str(tmp_path))
        await start(driver, GROUPS["background"], mark)
        return driver

    driver = asyncio.run(main())
    assert eventually(lambda: not alive(mark))
    asyncio.run(driver.close())
    assert not Path(driver.tmp).exists()


async def test_a_cancelled_start_leaves_nothing_running(posix: PosixDriver) -> None:
    mark = new_mark()
    for delay in (0.0, 0.001, 0.002):
        with anyio.move_on_after(delay):
            await posix.start(Command(line="sleep 1000", env={MARK: mark}))
        task = asyncio.ensure_future(posix.start(Command(line="sleep 1000 & sleep 1000", env={MARK: mark})))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().signal("KILL")
    process = await posix.start(Command(line="echo usable"))
    assert (await collect(process)).stdout == b"usable\n"  # type: ignore[arg-type]


async def test_cycles_of_open_run_kill_close_leave_no_process_directory_or_descriptor(tmp_path: Path) -> None:
    await (await open_posix(workspace=str(tmp_path))).close()
    before, mark = descriptors(collected=True), new_mark()
    for _ in range(10):
        driver = await open_posix(workspace=str(tmp_path))
        process = await start(driver, GROUPS["background"], mark)
        await process.signal("KILL")
        await process.wait()
        await driver.close()
    assert descriptors() == before
    assert await are_dead(mark)
    assert os.listdir(tmp_path) == []


MANY = """
import os, sys, time, anyio
from handrail.contract.driver import Command
from handrail.drivers.posix import open_posix

async def main(workspace, mark):
    drivers = [await open_posix(workspace=workspace) for _ in range(3)]
    for driver in drivers:
        await driver.start(Command(line="sleep 1000 & sleep 1000", env={"HANDRAIL_TEST_MARK": mark}))
    os.fork() or (os.close(1), time.sleep(60), os._exit(0))
    print("READY", flush=True)
    await anyio.sleep(1000)

anyio.run(main, *sys.argv[1:])
"""


async def test_every_group_dies_with_python_even_when_a_forked_child_holds_the_link(tmp_path: Path) -> None:
    mark = new_mark()
    python = subprocess.Popen(
        [sys.executable, "-c", MANY, str(tmp_path), mark],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert python.stdout is not None
    try:
        assert await anyio.to_thread.run_sync(python.stdout.readline) == b"READY\n"
        assert len(alive(mark)) >= 6, "the control: they ran"
        python.kill()
        python.wait()
        assert await are_dead(mark)
    finally:
        os.killpg(python.pid, signal.SIGKILL)
        python.stdout.close()
