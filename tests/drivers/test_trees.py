"""Whatever a command started ends with it: when it is killed or ends, when the sandbox closes, when anything dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver, GuardedProcess
from tests.drivers.conftest import Open
from tests.drivers.watching import (
    MARK,
    PATIENCE,
    alive,
    collect,
    descriptors,
    eventually,
    guard_pid,
    new_mark,
    run,
    until_says,
)

pytestmark = [pytest.mark.anyio, pytest.mark.guarded]

TREES = {
    "plain": "echo STARTED; sleep 1000; true",
    "background": "sleep 1000 & sleep 1000 & echo STARTED; wait",
    "deaf": "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo STARTED; while :; do sleep 1; done",
    "setsid": "setsid sleep 1000 & echo STARTED; wait",
    "double-forked": "(setsid sh -c 'sleep 1000 & sleep 1000 &' &); sleep 0.2; echo STARTED; sleep 1000; true",
    "stopped": "sleep 1000 & kill -STOP $!; echo STARTED; kill -STOP $$",
    "pipeline": "echo STARTED; yes | sleep 1000 | cat",
}
CHAIN = """
import os

def fork():
    while True:
        try:
            return os.fork()
        except BlockingIOError:  # on a busy machine the dead are buried later than new ones are made
            pass

for _ in range(64):
    if fork() == 0:
        while True:
            if fork():
                os._exit(0)
print("STARTED", flush=True)
import time; time.sleep(1000)
"""


async def start(driver: GuardedDriver, line: str, mark: str) -> GuardedProcess:
    process = await driver.start(Command(line=line, env={MARK: mark}))
    await until_says(process, b"STARTED")
    return process


async def test_term_leaves_a_deaf_tree_alive_until_it_is_killed(driver: GuardedDriver) -> None:
    mark = new_mark()
    process = await start(driver, TREES["deaf"], mark)
    await process.signal("TERM")
    await anyio.sleep(0.3)
    assert alive(mark)
    await process.signal("KILL")
    with anyio.fail_after(PATIENCE):
        await process.wait()
    assert not alive(mark)


@pytest.mark.parametrize("tree", TREES)
async def test_everything_dies_with_the_guard(driver: GuardedDriver, tree: str) -> None:
    mark = new_mark()
    process = await start(driver, TREES[tree], mark)
    os.kill(guard_pid(driver), signal.SIGKILL)
    with anyio.fail_after(PATIENCE):
        with pytest.raises(Unavailable) as raised:
            await process.wait()
        assert not raised.value.retryable
        with pytest.raises(Unavailable):
            await driver.read(driver.workspace)
    assert await anyio.to_thread.run_sync(eventually, lambda: not alive(mark))


@pytest.mark.parametrize("left", ["sleep 1000 &", "setsid sleep 1000 &", "(trap '' TERM; sleep 1000) &", "yes &"])
async def test_what_a_command_left_running_ends_with_it_and_a_note_says_so(driver: GuardedDriver, left: str) -> None:
    mark = new_mark()
    with anyio.fail_after(PATIENCE):
        process = await driver.start(Command(line=f"{left} echo STARTED; exit 7", env={MARK: mark}))
        ran = await collect(process)
    assert ran.code == 7
    assert b"STARTED" in ran.stdout
    assert "background" in ran.notes[0]
    assert not alive(mark)


async def test_a_command_that_leaves_nothing_has_no_note(driver: GuardedDriver) -> None:
    assert (await run(driver, "echo a | cat; true & wait")).notes == ()


async def test_a_process_substitution_may_finish_what_it_writes(driver: GuardedDriver) -> None:
    ran = await run(driver, "echo kept > >(cat > kept.txt); exit 0")
    assert ran.notes == ()
    assert await driver.read(f"{driver.workspace}/kept.txt") == b"kept\n"


async def test_a_thousand_processes_are_dead_at_once(kind: str, opened: Open) -> None:
    mark = new_mark()
    driver = await opened(kind, limits=Limits(processes=4000))
    process = await start(driver, "for i in $(seq 1000); do sleep 1000 & done; echo STARTED; wait", mark)
    assert await anyio.to_thread.run_sync(eventually, lambda: len(alive(mark)) >= 1000), "the control: they run"
    await process.signal("KILL")
    with anyio.fail_after(PATIENCE * 2):
        await process.wait()
    assert not alive(mark)


async def test_chains_that_fork_and_exit_are_dead_in_the_jail(opened: Open) -> None:
    mark = new_mark()
    driver = await opened("jail")
    process = await driver.start(Command(argv=(sys.executable, "-c", CHAIN), env={MARK: mark}))
    await until_says(process, b"STARTED")
    seen = set(alive(mark))
    assert seen, "the control: they live"
    moved = await anyio.to_thread.run_sync(eventually, lambda: len(set(alive(mark)) - seen) > 8)
    assert moved, "the control: they go on to new processes"
    await process.signal("KILL")
    with anyio.fail_after(PATIENCE):
        await process.wait()
    assert not alive(mark)
    assert (await run(driver, "echo usable")).stdout == b"usable\n"


async def test_a_command_that_kills_its_supervisor_is_swept_up_on_the_host(opened: Open) -> None:
    mark = new_mark()
    driver = await opened("host")
    process = await start(driver, "sleep 1000 & setsid sleep 1000 & echo STARTED; kill -9 $PPID; sleep 1000", mark)
    with anyio.fail_after(PATIENCE):
        await process.wait()
    assert await anyio.to_thread.run_sync(eventually, lambda: not alive(mark))
    assert (await run(driver, "echo usable")).stdout == b"usable\n"


@pytest.mark.parametrize("cycles", [100, pytest.param(1_000, marks=pytest.mark.long)])
async def test_cycles_of_open_run_kill_close_leave_no_process_directory_or_descriptor(
    kind: str, opened: Open, tmp_path: Path, cycles: int
) -> None:
    await (await opened(kind)).close()
    before, mark = descriptors(collected=True), new_mark()
    for _ in range(cycles):
        driver = await opened(kind)
        process = await start(driver, TREES["setsid"], mark)
        await process.signal("KILL")
        await process.wait()
        await driver.close()
    assert descriptors() == before
    assert not alive(mark)
    assert os.listdir(tmp_path) == ["work"]


MANY = """
import sys, anyio
from handrail.contract.driver import Command
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail

async def main(kind, workspace, mark):
    drivers = [await {"host": open_host, "jail": open_jail}[kind](workspace=workspace) for _ in range(20)]
    for driver in drivers:
        await driver.start(Command(line="setsid sleep 1000 & sleep 1000", env={"HANDRAIL_TEST_MARK": mark}))
    print("READY", flush=True)
    await anyio.sleep(1000)

anyio.run(main, *sys.argv[1:])
"""


async def test_everything_dies_with_python_even_when_a_forked_child_holds_the_streams(
    kind: str, tmp_path: Path
) -> None:
    mark = new_mark()
    program = "import os\n" + MANY.replace(
        'print("READY"', "os.fork() or (os.close(1), __import__('time').sleep(60), os._exit(0)); print(\"READY\""
    )
    python = subprocess.Popen(
        [sys.executable, "-c", program, kind, str(tmp_path), mark],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert python.stdout is not None
    try:
        assert await anyio.to_thread.run_sync(python.stdout.readline) == b"READY\n"
        assert len(alive(mark)) >= 40, "the control: they ran"
        python.kill()
        python.wait()
        assert await anyio.to_thread.run_sync(eventually, lambda: not alive(mark))
    finally:
        os.killpg(python.pid, signal.SIGKILL)
        python.stdout.close()
