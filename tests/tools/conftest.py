"""The places in which the built-in tools are tried: the guard compiled, and a world on each driver."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handrail.drivers.guard.build import build, stale
from tests.tools.world import EVERY, REAL, World, world


@pytest.fixture(scope="session", autouse=True)
def _guard() -> None:
    if stale():
        build()


@pytest.fixture(params=EVERY)
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world on each driver, also in memory."""
    async with world(request.param, tmp_path / "work") as made:
        yield made


@pytest.fixture(params=REAL)
async def real(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world on each driver that runs commands."""
    async with world(request.param, tmp_path / "work") as made:
        yield made
