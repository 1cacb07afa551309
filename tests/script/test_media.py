"""Files under media/ come back from a script, also where one of them cannot be read."""

from pathlib import Path
from typing import Any

import pytest

from handrail import Policy, Sandbox, Session, Unavailable, builtin_tools
from handrail.drivers.host import open_host

pytestmark = pytest.mark.anyio


class Forgetful:
    """A driver that cannot read one file once."""

    def __init__(self, driver: Any, path: str) -> None:
        self._driver, self._path = driver, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def read(self, path: str, **options: Any) -> bytes:
        if path == self._path:
            self._path = ""
            raise Unavailable("the sandbox does not answer")
        data: bytes = await self._driver.read(path, **options)
        return data


async def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    driver: Any = Forgetful(await open_host(workspace=str(tmp_path)), str(tmp_path / "media" / "made"))
    code = "tools.bash(command='echo x >> ticks; echo x > media/made')['exit_code']"
    async with (
        Sandbox(driver) as sandbox,
        Session(builtin_tools("all"), sandbox=sandbox, policy=Policy(mode="open")) as session,
    ):
        result = await session.call("script", {"code": code})
        again = await session.call("script", {"code": code})
    assert (tmp_path / "ticks").read_text() == "x\nx\n", "once by each script"
    assert result.ok, result
    assert result.value["media"][0]["unreadable"] == "the sandbox does not answer"
    assert again.value["media"] == [{"path": "media/made", "size": 2}], "the control"
