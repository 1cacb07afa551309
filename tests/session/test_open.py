"""Opening a sandbox by name: what is there, what is not, and what is said then."""

import pytest

from handrail import HandrailError, open_sandbox
from handrail.contract.errors import WeakerThanAsked
from handrail.session.open import known_drivers

pytestmark = pytest.mark.anyio


async def test_an_unknown_driver_is_refused_with_the_known_ones() -> None:
    with pytest.raises(HandrailError, match=r"no driver 'moon'; there are auto, host, jail, memory"):
        async with open_sandbox("moon"):
            raise AssertionError("nothing opens")


async def test_the_host_is_opened_only_where_that_was_allowed() -> None:
    with pytest.raises(WeakerThanAsked, match="allow_weaker=True"):
        async with open_sandbox("host"):
            raise AssertionError("nothing opens")
    async with open_sandbox("host", allow_weaker=True) as sandbox:
        assert sandbox.report.driver == "host"


async def test_the_memory_driver_is_opened_by_name_with_its_files() -> None:
    async with open_sandbox("memory", files={"a": "there"}) as sandbox:
        assert await sandbox.read_text("a") == "there"


async def test_a_missing_workspace_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"the workspace cannot be used.*does/not/exist"):
        async with open_sandbox(workspace="does/not/exist"):
            raise AssertionError("nothing opens")


async def test_elsewhere_than_linux_it_is_told_which_drivers_there_are() -> None:
    elsewhere = known_drivers("darwin")
    assert (elsewhere["jail"], elsewhere["host"]) == ("it needs Linux", "it needs Linux")
    assert not isinstance(elsewhere["memory"], str)
    assert not any(isinstance(opener, str) for opener in known_drivers("linux").values()), "the control"
