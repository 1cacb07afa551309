"""The places in which the built-in tools are tried: the guard compiled, and a world on each driver."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from handrail.drivers.guard.build import build, stale
from handrail.tools.script import EngineName, script_tool
from tests.tools.world import ENGINES, EVERY, REAL, World, world


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


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> EngineName:
    """Each engine of scripts."""
    name: EngineName = request.param
    return name


def _pairs() -> list[Any]:
    """Monty has a jail of its own, whatever the driver: the second driver is tried in the long run."""
    long = {("host", "monty"): [pytest.mark.long]}
    pairs = [(driver, engine) for driver in REAL for engine in ENGINES]
    return [pytest.param(pair, id="-".join(pair), marks=long.get(pair, [])) for pair in pairs]


@pytest.fixture(params=_pairs())
async def scripted(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world on each driver that runs commands, whose scripts each engine runs."""
    driver, engine = request.param
    async with world(driver, tmp_path / "work", instead=[script_tool(engine)]) as made:
        made.engine = engine
        yield made
