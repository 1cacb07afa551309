"""Whatever becomes of the driver below a session, each call is answered in time, and says that the sandbox is dead."""

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest

from handrail import Policy, Sandbox, Session, builtin_tools
from handrail.contract.result import Failure, Result
from handrail.drivers.guard import frames
from handrail.drivers.jail import open_jail
from handrail.drivers.memory import MemoryDriver
from handrail.sandbox.views import identity
from tests.drivers.test_channel import EXITED, STARTED, _feed, greeting, output, pair, puppet
from tests.drivers.watching import PATIENCE, eventually, guard_pid
from tests.sandbox.test_execution import Stalling

pytestmark = pytest.mark.anyio
LIMIT = 1
IN_TIME = 20
"""Seconds: long before a driver that never answers does."""


def session_over(sandbox: Sandbox) -> Session:
    return Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="open"))


def able(driver: MemoryDriver) -> MemoryDriver:
    driver.features |= {"exec", "stdin", "live_output", "tree_kill"}
    return driver


async def bash(session: Session, command: str = "true") -> Result:
    return await session.call("bash", {"command": command, "timeout": LIMIT})


class Silent(MemoryDriver):
    """Never answers a read."""

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        await anyio.sleep_forever()
        return b""


@pytest.mark.parametrize("where", ["start", "output", "wait", "signal"])
async def test_a_command_of_a_stalled_driver_is_answered_for_in_time_and_the_session_ends(where: str) -> None:
    began = monotonic()
    async with session_over(Sandbox(able(Stalling(where)))) as session:
        result = await bash(session)
        assert isinstance(result, Failure)
        assert result.kind == "timeout"
        assert "may still be running" in result.message
    assert monotonic() - began < IN_TIME


async def test_a_read_of_a_stalled_driver_is_unavailable_and_says_that_it_may_be_dead() -> None:
    sandbox = Sandbox(able(Silent({"file": "here"})))
    identity(sandbox).file_wait = 0.2
    async with session_over(sandbox) as session:
        result = await session.call("read", {"path": "file"})
        assert result.kind == "unavailable"
        assert "may be dead" in result.message
        assert (await session.call("write", {"path": "new", "content": "x"})).ok, "the control: others are answered"


async def test_a_guard_that_dies_in_the_middle_is_told_at_once_and_by_every_later_call(tmp_path: Path) -> None:
    driver, results = await open_jail(workspace=str(tmp_path)), list[Result]()
    with anyio.fail_after(PATIENCE):
        async with session_over(Sandbox(driver)) as session:

            async def call() -> None:
                results.append(await session.call("bash", {"command": "touch begun; sleep 1000", "timeout": 600}))

            async with anyio.create_task_group() as group:
                group.start_soon(call)
                assert await anyio.to_thread.run_sync(eventually, (tmp_path / "begun").exists)
                os.kill(guard_pid(driver), signal.SIGKILL)
            results += [await bash(session), await session.call("read", {"path": "begun"})]
    assert [result.kind for result in results] == ["unavailable"] * 3
    assert all("the sandbox's guard has ended" in result.message and not result.retryable for result in results)


LARGE = struct.pack("<IBI", 3 << 20, frames.OUTPUT, 1) + b"x" * (2 << 20)
SAYS: dict[str, tuple[bytes, str]] = {
    "a start twice": (STARTED + STARTED + EXITED, "broke its protocol"),
    "a frame that is too large": (STARTED + LARGE, "broke its protocol"),
    "a frame that ends with the guard": (STARTED + output(b"printed")[:7], "guard has ended"),
}


async def hearing(answer: bytes, then: Callable[[Session], Any], *, ends: bool) -> Any:
    """What a session comes to whose guard says this to its first request."""
    with anyio.fail_after(PATIENCE):
        async with puppet() as it:
            driver = await it.greeted(greeting())
            driver.silence = 0.2
            feeder = threading.Thread(target=_feed, args=(it.theirs, answer))
            feeder.start()
            try:
                async with session_over(Sandbox(driver)) as session:
                    if ends:
                        await anyio.to_thread.run_sync(feeder.join)
                        it.theirs.shutdown(socket.SHUT_WR)
                    answered = await then(session)
                    it.process.kill()  # it would be given time to end by itself
                    return answered
            finally:
                it.theirs.shutdown(socket.SHUT_RDWR)
                await anyio.to_thread.run_sync(feeder.join)


@pytest.mark.parametrize("name", SAYS)
async def test_a_guard_that_speaks_nonsense_is_not_believed_by_the_first_call_nor_the_next(name: str) -> None:
    answer, said = SAYS[name]

    async def twice(session: Session) -> list[Result]:
        return [await bash(session), await session.call("read", {"path": "/x"})]

    for result in await hearing(answer, twice, ends="ends" in name):
        assert (result.kind, result.retryable) == ("unavailable", False)
        assert said in result.message


async def test_half_a_frame_and_then_silence_is_a_timeout_and_a_read_says_that_it_may_be_dead() -> None:
    async def both(session: Session) -> list[Result]:
        return [await bash(session), await session.call("read", {"path": "/x"})]

    ran, read = await hearing(STARTED + output(b"printed")[:7], both, ends=False)
    assert ran.kind == "timeout"
    assert "may still be running" in ran.message
    assert read.kind == "unavailable"
    assert "may be dead" in read.message


async def test_an_end_that_is_told_twice_is_heard_once() -> None:
    result = await hearing(STARTED + output(b"printed") + pair(frames.EXITED, 3, 0) * 2, bash, ends=False)
    assert result.ok
    assert (result.value["exit_code"], result.value["stdout"]) == (3, "printed")
