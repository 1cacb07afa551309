"""Nothing survives a sandbox's close, and the last one who lets go closes it."""

from time import monotonic
from typing import Any

import anyio
import pytest

from handrail.contract.errors import BrokenDriver, Unavailable
from handrail.contract.limits import SANDBOX_CLOSE_WAIT
from handrail.drivers.memory import MemoryDriver, Script
from handrail.sandbox import Sandbox

pytestmark = pytest.mark.anyio


class Counting(MemoryDriver):
    closes = 0

    async def close(self) -> None:
        self.closes += 1
        await super().close()


async def test_closing_ends_what_runs_and_tells_its_caller() -> None:
    driver = Counting(commands={"x": Script("so far", hang=True, deaf=True)})
    sandbox = Sandbox(driver)
    raised: list[Exception] = []
    printed = anyio.Event()

    async def call() -> None:
        try:
            await sandbox.run("x", on_output=lambda _: printed.set())
        except Unavailable as error:
            raised.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await printed.wait()
        assert len(driver.processes) == 1
        await sandbox.close()
    assert "closed" in str(raised[0])
    assert await driver.processes[0].wait() == 137


async def test_a_closed_sandbox_is_plainly_closed() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"x": ""}))
    await sandbox.close()
    assert sandbox.closed
    view = sandbox.at("src")
    for refused in (sandbox.run("x"), sandbox.start("x"), view.read_bytes("a"), view.list(), sandbox.run_code("1")):
        with pytest.raises(Unavailable, match="closed") as caught:
            await refused
        assert not caught.value.retryable
    with pytest.raises(Unavailable):
        await sandbox.__aenter__()


async def test_closing_twice_or_at_once_closes_once() -> None:
    driver = Counting()
    sandbox = Sandbox(driver)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(sandbox.close)
    await sandbox.close()
    assert driver.closes == 1


async def test_the_last_to_let_go_closes() -> None:
    driver = Counting()
    async with Sandbox(driver) as sandbox:
        await sandbox.__aenter__()
        async with sandbox.at("src"):
            pass
        await sandbox.__aexit__(None, None, None)
        assert driver.closes == 0
        await sandbox.list()
    assert driver.closes == 1
    assert sandbox.closed


async def test_a_driver_that_is_gone_can_be_closed() -> None:
    class Gone(MemoryDriver):
        async def close(self) -> None:
            raise Unavailable("gone")

    await Sandbox(Gone()).close()


async def test_a_driver_whose_close_fails_is_called_broken_and_stays_closed() -> None:
    class Bad(MemoryDriver):
        async def close(self) -> None:
            raise KeyError("x")

    sandbox = Sandbox(Bad())
    with pytest.raises(BrokenDriver, match="KeyError"):
        await sandbox.close()
    await sandbox.close()
    assert sandbox.closed


async def test_a_cancellation_does_not_leave_a_sandbox_half_closed() -> None:
    class Slow(Counting):
        async def close(self) -> None:
            await anyio.sleep(0.2)
            await super().close()

    driver = Slow()
    with anyio.move_on_after(0.05):
        await Sandbox(driver).close()
    assert driver.closes == 1


@pytest.mark.long
async def test_a_driver_that_never_closes_is_given_up() -> None:
    class Stuck(MemoryDriver):
        async def close(self) -> Any:
            await anyio.sleep_forever()

    began = monotonic()
    with pytest.raises(Unavailable, match="did not close"):
        await Sandbox(Stuck()).close()
    assert monotonic() - began < SANDBOX_CLOSE_WAIT + 10
