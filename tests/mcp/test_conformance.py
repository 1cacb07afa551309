"""The official conformance suite finds nothing wrong with Handrail's server and client."""

from collections.abc import Iterator

import pytest

from tests.mcp.conformance import NEWER, OLDER, RUNS, Run, fixture_server, run

pytestmark = pytest.mark.timeout(600)  # the first run installs the suite
QUICK = ("client, tools_call of 2026-07-28",)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fixture_server() as address:
        yield address


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=one.name, marks=() if one.is_of_server or one.name in QUICK else pytest.mark.long)
        for one in RUNS
    ],
)
def test_everything_that_is_required_passes(one: Run, url: str) -> None:
    good, printed = run(one, url)
    assert good, printed


@pytest.mark.parametrize("version", [pytest.param(OLDER, marks=pytest.mark.long), NEWER])
def test_a_server_that_lacks_a_tool_fails(version: str) -> None:
    with fixture_server("--without", "test_image_content") as address:
        good, printed = run(Run("control", version, ("server",)), address, "--scenario", "tools-call-image")
    assert not good, printed
