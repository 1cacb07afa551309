"""The local drivers, each opened on a fresh workspace and closed after the test; and the guard, compiled."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.guard.build import build, stale
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail

OPENERS: dict[str, Callable[..., Awaitable[GuardedDriver]]] = {"host": open_host, "jail": open_jail}
Open = Callable[..., Awaitable[GuardedDriver]]


@pytest.fixture(scope="session", autouse=True)
def _guard() -> None:
    if stale():
        build()


@pytest.fixture(params=["host", "jail"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[GuardedDriver]]]:
    """Open any driver; whatever was opened is closed at the end."""
    drivers: list[GuardedDriver] = []

    async def open_one(kind: str, **options: object) -> GuardedDriver:
        workspace = tmp_path / "work"
        workspace.mkdir(exist_ok=True)
        driver = await OPENERS[kind](**{"workspace": str(workspace), **options})
        drivers.append(driver)
        return driver

    yield open_one
    for driver in drivers:
        await driver.close()


@pytest.fixture
async def driver(kind: str, opened: Open) -> GuardedDriver:
    return await opened(kind)
