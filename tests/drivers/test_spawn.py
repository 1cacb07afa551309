"""A guard lives as long as its channel and its client, whoever started it and whoever else holds the stream."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.spawn import spawn
from tests.drivers.conftest import OPENERS
from tests.drivers.watching import PATIENCE, run

pytestmark = pytest.mark.anyio

FORKS = """
import os, sys, time, anyio
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail
from handrail.drivers.posix import open_posix

async def main(kind, workspace):
    driver = await {"host": open_host, "jail": open_jail, "posix": open_posix}[kind](workspace=workspace)
    pid = (driver.starter if kind == "posix" else driver.guard).pid
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    with anyio.fail_after(50):
        await driver.close()
    print(os.path.exists(f"/proc/{pid}"))
    os.kill(child, 9)

anyio.run(main, *sys.argv[1:])
"""


async def test_a_guard_outlives_the_thread_that_started_it(kind: str, tmp_path: Path) -> None:
    opened: list[GuardedDriver] = []

    async def open_one() -> None:
        opened.append(await OPENERS[kind](workspace=str(tmp_path)))

    loop = asyncio.new_event_loop()  # when it is closed, it takes its guards with it
    thread = threading.Thread(target=lambda: loop.run_until_complete(open_one()))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    await anyio.sleep(0.2)
    try:
        assert (await run(opened[0], "echo alive")).stdout == b"alive\n"
    finally:
        await opened[0].close()
        loop.close()


async def test_close_ends_the_guard_even_when_a_forked_child_holds_the_stream(kind: str, tmp_path: Path) -> None:
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", FORKS, kind, str(tmp_path)]
    ran = await anyio.to_thread.run_sync(
        lambda: subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    )
    assert ran.stdout.strip() == "False", ran.stderr


async def test_close_may_come_twice_and_everything_after_it_is_unavailable(kind: str, tmp_path: Path) -> None:
    driver = await OPENERS[kind](workspace=str(tmp_path))
    process = await driver.start(Command(line="sleep 1000"))
    async with anyio.create_task_group() as group:
        group.start_soon(driver.close)
        group.start_soon(driver.close)
    await driver.close()
    for attempt in (driver.start(Command(line="true")), driver.read("/x"), process.wait(), process.send(b"x")):
        with pytest.raises(Unavailable) as raised:
            await attempt
        assert not raised.value.retryable
    await process.signal("KILL")


async def test_a_waiter_is_told_when_somebody_closes(kind: str, tmp_path: Path) -> None:
    driver = await OPENERS[kind](workspace=str(tmp_path))
    process = await driver.start(Command(line="sleep 1000"))
    told: list[str] = []

    async def wait() -> None:
        try:
            await process.wait()
        except Unavailable as error:
            told.append(str(error))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            await anyio.sleep(0.05)
            await driver.close()
    assert told == ["the sandbox is closed"] * 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/no/such/program"], "/no/such/program"),
        (["/bin/sh", "-c", "echo no room >&2; exit 3"], "no room"),
        (["/bin/true"], "has ended"),
    ],
)
async def test_what_does_not_start_says_why(words: list[str], said: str) -> None:
    async def start() -> None:
        await spawn(lambda arguments: words).greet(jail=False, limits=Limits(), roots=["/tmp"])

    with anyio.fail_after(PATIENCE), pytest.raises(Unavailable, match=said):
        await start()


async def test_a_guard_that_is_in_no_jail_refuses_to_be_one() -> None:
    from_package = spawn(lambda arguments: [str(PROGRAM), *arguments])
    with pytest.raises(Unavailable, match="no jail"):
        await from_package.greet(jail=True, limits=Limits(), roots=["/tmp"])
