"""Opening a sandbox by name: what is there, what is not, and what is said then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import HandrailError, open_sandbox
from handrail.contract.errors import WeakerThanAsked
from handrail.drivers.open import known_drivers

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
    assert elsewhere["jail"] == "it needs Linux"
    assert not isinstance(elsewhere["host"], str)
    assert not isinstance(elsewhere["memory"], str)
    assert not any(isinstance(opener, str) for opener in known_drivers("linux").values()), "the control"


def test_a_driver_that_is_installed_while_the_program_runs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" not in known_drivers(), "the control"
    staged = tmp_path / "elsewhere" / "later-1.dist-info"
    staged.mkdir(parents=True)
    (staged / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1\n")
    (staged / "entry_points.txt").write_text("[handrail.drivers]\nlater = handrail.drivers.memory:open_memory\n")
    assert "later" not in known_drivers(), "the control"
    staged.rename(tmp_path / staged.name)
    assert callable(known_drivers()["later"])


PLUGINS = """[handrail.drivers]
jail = planted:opened
host = not_there:opened
auto = planted:opened
moon = planted:opened
"""
PLANTED = """
print("the plugin was loaded")
async def opened(**options):
    raise SystemExit("the plugin was opened")
"""
OPENS = """
import anyio
from handrail import open_sandbox
from handrail.drivers.open import known_drivers

async def main():
    for name in ("jail", "host", "auto"):
        async with open_sandbox(name, allow_weaker=True) as sandbox:
            print(name, sandbox.report.driver, (await sandbox.run("echo works")).stdout.strip(), sandbox.report.notes)
    for name, opener in known_drivers().items():
        print("known", name, opener)

anyio.run(main)
"""


def test_no_plugin_takes_the_name_of_a_built_in_driver_and_one_that_tries_is_reported(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "planted-1.dist-info").mkdir()
    (tmp_path / "planted-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (tmp_path / "planted-1.dist-info/entry_points.txt").write_text(PLUGINS)
    env = {"PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])}
    ran = subprocess.run(
        [sys.executable, "-c", OPENS], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    lines = ran.stdout.splitlines()
    opened = [line for line in lines if line.startswith(("jail ", "host ", "auto "))]
    assert [line.split()[:3] for line in opened] == [
        ["jail", "jail", "works"], ["host", "host", "works"], ["auto", "jail", "works"],
    ]  # fmt: skip
    assert all("planted" in line and "built-in" in line for line in (opened[0], opened[2]))
    assert "not_there" in opened[1]
    known = {line.split()[1]: line for line in lines if line.startswith("known ")}
    assert "built-in" in known["jail=planted:opened"]
    assert "built-in" in known["host=not_there:opened"]
    assert "built-in" in known["auto=planted:opened"]
    assert "function opened" in known["moon"], "the control: another name is the plugin's own"
