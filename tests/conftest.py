"""What every test shares: the event loop it runs on, and the option that lets the long ones run."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests run on asyncio, which is what users run; anyio keeps the code free of it."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that are marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests out unless they were asked for; pytest's last line tells how many were deselected."""
    if config.getoption("--long"):
        return
    short = [item for item in items if item.get_closest_marker("long") is None]
    if len(short) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(short)])
        items[:] = short
