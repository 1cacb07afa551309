"""What every test shares: its event loop, a guard, an option for the long ones, and an end for those that hang."""

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator

import hypothesis
import pytest

from handrail.drivers.guard.build import build, stale

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("handrail", deadline=None)
hypothesis.settings.load_profile("handrail")

STDERR = pytest.StashKey[int]()
PATIENCE = 1.5
"""Times its limit: then a test that pytest-timeout could not interrupt is ended, and its process with it."""
LONG = 3600
"""Seconds for a test that is marked long and names no limit of its own."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests run on asyncio, which is what users run; anyio keeps the code free of it."""
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background job, and in some CI
        signal.signal(signal.SIGINT, lambda *_: None)  # still ignored here, but not in the programs that tests start
    config.stash[STDERR] = os.dup(2)  # now it is the real one; later pytest catches what a test prints
    if sys.platform == "linux" and stale():
        build()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that are marked long")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Behind pytest-timeout, which interrupts a test once: print every stack and leave if it did not end."""
    _end_if_it_hangs(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest itself has just called that off, because the test failed; but closing its event loop may hang."""
    if isinstance(node, pytest.Item):
        _end_if_it_hangs(node)


def _end_if_it_hangs(item: pytest.Item) -> None:
    marker, config = item.get_closest_marker("timeout"), item.config
    limit = float(marker.args[0] if marker else config.getoption("timeout") or config.getini("timeout"))
    faulthandler.dump_traceback_later(limit * PATIENCE, exit=True, file=config.stash[STDERR])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests out unless they were asked for; pytest's last line tells how many were deselected."""
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG))
    if config.getoption("--long"):
        return
    short = [item for item in items if item.get_closest_marker("long") is None]
    if len(short) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(short)])
        items[:] = short
