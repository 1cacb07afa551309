"""The official conformance suite finds nothing wrong with Handrail's server and client."""

import pytest

from tests.mcp.conformance import NEWER, RUNS, Run, fixture_servers, run

pytestmark = pytest.mark.timeout(600)  # the first run installs the suite
QUICK = "client, tools_call of 2026-07-28"
CONTROL = Run("control", NEWER, ("server", "--scenario", "tools-call-image"))


def test_everything_that_is_required_of_a_server_passes_and_one_that_lacks_a_tool_fails() -> None:
    with fixture_servers() as (url, lacking):  # once for all runs
        for one in RUNS:
            if one.is_of_server:
                good, printed = run(one, url)
                assert good, f"{one.name}\n{printed}"
        good, printed = run(CONTROL, lacking)
        assert not good, printed


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=one.name, marks=() if one.name == QUICK else pytest.mark.long)
        for one in RUNS
        if not one.is_of_server
    ],
)
def test_everything_that_is_required_of_a_client_passes(one: Run) -> None:
    good, printed = run(one)
    assert good, printed
