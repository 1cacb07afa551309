"""A jail shows what it should wherever temporary files lie, and what runs as its guard is nobody's to change."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from handrail.contract.driver import Mount
from handrail.drivers.scratch import place_outside
from tests.drivers.conftest import Open
from tests.drivers.watching import PATIENCE, run

pytestmark = pytest.mark.anyio
SOURCES = Path(__file__).resolve().parents[2] / "src"
OPEN = """
import glob, os, sys, tempfile, anyio
from handrail.contract.driver import Command, Mount
from handrail.drivers.jail import open_jail

async def main(work, line, *targets):
    driver = await open_jail(workspace=work, mounts=[Mount("/usr/share", target) for target in targets])
    process = await driver.start(Command(line=f"echo STARTED {driver.program}; {line}"))
    async for chunk in process.output():
        (sys.stdout if chunk.stream == "stdout" else sys.stderr).write(chunk.data.decode())
    places = [tempfile.gettempdir(), "/dev/shm", "/var/tmp"]
    print("copies", *(place for place in places if glob.glob(f"{place}/handrail-{os.getpid()}-*/handrail/guard")))
    await driver.close()

anyio.run(main, *sys.argv[1:])
"""


def elsewhere(before: str, work: Path, line: str, *targets: str, tmp: Path | None = None) -> list[str]:
    """What a jail says that is made by another process, after some commands in mounts of its own."""
    program = [sys.executable, "-c", OPEN, str(work), line, *targets]
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{before} exec "$@"', "sh", *program]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": os.pathsep.join([str(SOURCES), *sys.path])}
    env |= {"TMPDIR": str(tmp)} if tmp else {}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    assert ran.stdout.startswith("STARTED"), ran
    return ran.stdout.removeprefix("STARTED").split()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / "tmp").mkdir(parents=True)
    return tmp_path / "work"


FIND = "find {work} -name guard; touch {work}/tmp/mine; ls {work}/tmp"


NO_MEMORY = "mount -t tmpfs -o noexec none /dev/shm;"
"""Then the usual places are taken."""


async def test_the_copy_of_the_guard_is_not_in_a_workspace_that_holds_the_temporary_files(work: Path) -> None:
    find, tmp = FIND.format(work=work), work / "tmp"
    assert elsewhere(NO_MEMORY, work, find, tmp=tmp)[1:] == ["mine", "copies", "/var/tmp"]
    other = work.parent / "other"
    other.mkdir()
    assert elsewhere(NO_MEMORY, other, "true", tmp=tmp)[1:] == ["copies", str(tmp)], "the control: else it is there"


async def test_the_copy_is_in_memory_where_there_is_room_and_it_is_not_the_workspace(work: Path) -> None:
    room, none = (
        "mount -t tmpfs -o size=64m none /dev/shm; mkdir /dev/shm/work;",
        "mount -t tmpfs -o size=4m none /dev/shm;",
    )
    assert elsewhere(room, work, "true")[1:] == ["copies", "/dev/shm"]
    assert elsewhere(room, Path("/dev/shm/work"), "true")[1:] == ["copies", "/dev/shm"]
    for full, workspace in ((none, work), (room, Path("/dev/shm"))):
        assert "/dev/shm" not in elsewhere(full, workspace, "true")[1:]


def test_a_place_for_temporary_files_is_found_outside() -> None:
    usual = os.path.realpath(tempfile.gettempdir())
    assert place_outside([]) == usual
    assert place_outside([f"{usual}/below", f"{usual}-beside"]) == usual
    for top in (usual, os.path.dirname(usual)):
        found = place_outside([top])
        assert found is None or not f"{found}/".startswith(f"{top.rstrip('/')}/")
    assert place_outside(["/"]) is None


async def test_the_guard_runs_where_nothing_can_be_run_from_temporary_files(work: Path) -> None:
    closed = f"{NO_MEMORY} mount -t tmpfs -o noexec none {work}/tmp;"
    assert elsewhere(closed, work.parent / "work", "id -u", tmp=work / "tmp")[0] == "/etc/handrail/guard"
    other = work.parent / "other"
    other.mkdir()
    assert elsewhere(closed, other, "echo it runs", tmp=work / "tmp")[:3] == ["/run/handrail/guard", "it", "runs"]


@pytest.mark.parametrize("target", ["/etc", "/etc/handrail"])
async def test_a_mount_over_the_copy_of_the_guard_does_not_hide_it(opened: Open, target: str) -> None:
    jail = await opened("jail", mounts=[Mount("/usr/share", target)])
    ran = await run(jail, f"echo STARTED; ls -d {target}/doc")
    assert ran.stdout.decode().split() == ["STARTED", f"{target}/doc"], ran
    assert jail.program == "/run/handrail/guard"


async def test_a_mount_can_appear_in_a_system_directory_that_is_empty(work: Path) -> None:
    empty = "mount -t tmpfs none /opt;"
    assert elsewhere(empty, work, "ls -d /opt/* /opt/there/doc", "/opt/there")[1:3] == ["/opt/there", "/opt/there/doc"]


async def test_what_a_system_directory_holds_is_there_though_it_was_empty_before(work: Path) -> None:
    filled = "mount -t tmpfs none /opt; touch /opt/tool;"
    assert elsewhere(filled, work, "ls /opt; touch /opt/x 2>/dev/null || echo closed")[1:3] == ["tool", "closed"]
