"""The local drivers, each opened on a fresh workspace and closed after the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail
from handrail.drivers.posix import open_posix

OPENERS: dict[str, Callable[..., Awaitable[GuardedDriver]]] = {
    "host": open_host,
    "jail": open_jail,
    "posix": open_posix,  # type: ignore[dict-item]  # all that its tests use of a GuardedDriver it has too
}
Open = Callable[..., Awaitable[GuardedDriver]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every driver passes a test of drivers, unless it is marked: then it needs what only the guard does."""
    own = any("kind" in marker.args[0] for marker in metafunc.definition.iter_markers("parametrize"))
    if "kind" in metafunc.fixturenames and not own:
        guarded = metafunc.definition.get_closest_marker("guarded")
        metafunc.parametrize("kind", ["host", "jail"] if guarded else ["host", "jail", "posix"])


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
