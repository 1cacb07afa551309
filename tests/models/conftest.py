"""A provider's server that is not ours, and what every test of models asks it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dev
from tests.models.wire import Wire, proxying, serving

FIXTURES = Path(__file__).with_name("aimock.json")


@pytest.fixture(scope="session")
def aimock() -> Iterator[int]:
    """The port of the fake provider."""
    modules, missing = dev.node_modules(*dev.AIMOCK)
    if missing:
        pytest.fail(missing)
    program = str(modules / "@copilotkit" / "aimock" / "dist" / "cli.js")
    argv = ["node", program, "--port", "0", "--fixtures", str(FIXTURES), "--strict", "--chunk-size", "8"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            printed = ""
            for line in server.stdout:
                printed += line
                if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                    yield int(found[1])
                    break
            else:
                pytest.fail(f"the fake provider did not start:\n{printed}")
        finally:
            server.kill()


@pytest.fixture
def wire(aimock: int) -> Iterator[Wire]:
    """The way to the fake provider, which keeps what goes over it."""
    with serving(proxying(aimock)) as between:
        yield between
