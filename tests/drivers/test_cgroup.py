"""Cgroups are made where they can be, keep what they say, and go; a machine without them has the watch instead."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from handrail.contract.limits import Limits
from handrail.drivers import _cgroup, _reaper
from handrail.drivers._cgroup import Hierarchy, can_keep, hierarchies, make_group, reap_cgroups
from handrail.drivers.jail import open_jail
from handrail.drivers.scratch import process_tag, temporary_directories
from tests.drivers.watching import PATIENCE

pytestmark = pytest.mark.anyio
MIB = 1 << 20
ALL = Limits(memory=64 * MIB, processes=20)
needs_cgroups = pytest.mark.skipif(
    os.geteuid() != 0 or not can_keep("processes") or not can_keep("memory"), reason="no cgroup can be made here"
)


def ours() -> set[Path]:
    """The cgroups of Handrail on this machine."""
    return {path for hierarchy in hierarchies().values() for path in _cgroup._tagged(hierarchy.top)}


def own() -> set[Path]:
    return {path for path in ours() if path.name.startswith(f"{process_tag()}-")}


@needs_cgroups
async def test_a_sandbox_has_its_cgroups_while_it_is_open(tmp_path: Path) -> None:
    before = own()
    jail = await open_jail(workspace=str(tmp_path), limits=ALL)
    made = own() - before
    assert len(made) == 2
    assert {(path / "cgroup.procs").read_text() != "" for path in made} == {True}
    await jail.close()
    assert own() == before


@needs_cgroups
async def test_without_a_limit_no_cgroup_is_made(tmp_path: Path) -> None:
    before = own()
    jail = await open_jail(workspace=str(tmp_path), limits=Limits(processes=None))
    assert own() == before
    await jail.close()


@needs_cgroups
async def test_a_jail_that_cannot_be_made_leaves_no_cgroup(tmp_path: Path) -> None:
    before = own()
    bad = tmp_path / "bwrap"
    bad.write_text("#!/bin/sh\necho bubblewrap 0.9; exit 1\n")
    bad.chmod(0o755)
    with pytest.raises(Exception, match="did not start"):
        await open_jail(workspace=str(tmp_path), limits=ALL, bubblewrap=str(bad))
    assert own() == before


DIES = """
import anyio, os, signal, sys
from handrail.contract.driver import Command
from handrail.contract.limits import Limits
from handrail.drivers import _cgroup, jail

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(stage):
    if stage == "made":
        _cgroup.Group.add = die
    if stage == "moved":
        jail.view_arguments = die
    driver = await jail.open_jail(workspace=sys.argv[2], limits=Limits(memory=1 << 30, processes=20, tmp=None))
    if stage == "running":
        await driver.start(Command(line="sleep 1000 & setsid sleep 1000"))
    if stage == "closing":
        _cgroup.remove_cgroup = die
        await driver.close()
    die()

anyio.run(main, sys.argv[1])
"""


@needs_cgroups
@pytest.mark.parametrize("stage", ["made", "moved", "open", "running", "closing"])
async def test_what_a_killed_runtime_left_is_gone_after_the_next_start(tmp_path: Path, stage: str) -> None:
    living = await open_jail(workspace=str(tmp_path), limits=ALL)
    mine = own()
    code = [sys.executable, "-c", DIES, stage, str(tmp_path)]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(code, env=env) as child:
        child.wait(PATIENCE)
        tag = f"handrail-{child.pid}-"
    left = {path for path in ours() if path.name.startswith(tag)}
    assert left, "the control: something was left"
    with anyio.fail_after(PATIENCE):
        while any(path.exists() for path in left):  # its processes end within moments
            reap_cgroups()
            await anyio.sleep(0.02)
    assert mine <= own(), "those of a living process are not touched"
    await living.close()


def directories(tag: str) -> list[Path]:
    return [path for place in temporary_directories() for path in Path(place).glob(f"{tag}*")]


async def test_directories_of_a_killed_runtime_are_gone_after_the_next_start(tmp_path: Path) -> None:
    code = [sys.executable, "-c", DIES, "running", str(tmp_path)]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(code, env=env) as child:
        child.wait(PATIENCE)
    assert directories(f"handrail-{child.pid}-"), "the control: something was left"
    with anyio.fail_after(PATIENCE):
        while directories(f"handrail-{child.pid}-"):
            _reaper._reap_all()
            await anyio.sleep(0.02)


START = """
import anyio, sys
from handrail.drivers import _reaper
from handrail.drivers.jail import open_jail

async def main():
    driver = await open_jail(workspace=sys.argv[1])
    await driver.close()
    assert _reaper.reaped(20)

anyio.run(main)
"""


@needs_cgroups
async def test_two_runtimes_that_start_at_once_remove_what_a_third_left(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    name = f"handrail-{dead.stdout.decode().strip()}-1-1"
    left = [hierarchy.top / name for hierarchy in hierarchies().values()]
    for path in left:
        path.mkdir()
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    both = [subprocess.Popen([sys.executable, "-c", START, str(tmp_path)], env=env) for _ in range(2)]
    assert [child.wait(PATIENCE) for child in both] == [0, 0]
    assert not any(path.exists() for path in left)


@needs_cgroups
async def test_a_leftover_with_processes_in_it_is_not_touched(tmp_path: Path) -> None:
    top = hierarchies()["pids"].top
    path = top / "handrail-999999999-1-1"
    path.mkdir()
    with subprocess.Popen(["sleep", "1000"]) as other:
        (path / "cgroup.procs").write_text(str(other.pid))
        reap_cgroups()
        assert path.exists()
        assert other.poll() is None, "and nothing is killed"
        (top / "cgroup.procs").write_text(str(other.pid))
        other.kill()
    reap_cgroups()
    assert not path.exists()


V1 = "35 31 0:32 / {top}/memory rw - cgroup cgroup rw,memory\n39 31 0:36 / {top}/pids rw - cgroup cgroup rw,pids\n"
V2 = "41 31 0:38 / {top}/unified rw - cgroup2 cgroup2 rw\n"


def second_version(top: Path, *, shared: str, own: str = "/user/scope") -> dict[str, Hierarchy]:
    """A directory that looks like a hierarchy of version 2, in which this process is at `own`."""
    place = Path(f"{top}/unified{own}")
    place.mkdir(parents=True)
    for each in (place, place.parent):
        (each / "cgroup.controllers").write_text("memory pids\n")
    (place.parent / "cgroup.subtree_control").write_text(shared)
    (place / "cgroup.subtree_control").write_text("")
    return _cgroup._located(V2.format(top=top), f"0::{own}\n")


async def test_version_2_is_made_beside_our_own_where_controllers_are_shared_out(tmp_path: Path) -> None:
    found = second_version(tmp_path, shared="memory pids\n")
    assert {(each.version, each.own) for each in found.values()} == {(2, tmp_path / "unified/user/scope")}
    assert _cgroup._parent(found["memory"], "memory") == tmp_path / "unified/user"
    path = _cgroup._made(found["memory"], "handrail-1-1-1", "memory", 64 * MIB)
    assert int((path / "memory.max").read_text()) == 64 * MIB + _cgroup.GUARD_ROOM
    assert (path / "memory.swap.max").read_text() == "0"


@pytest.mark.parametrize("shared", ["", "cpu\n"])
async def test_version_2_that_shares_nothing_out_is_not_used(tmp_path: Path, shared: str) -> None:
    assert make_group(ALL, second_version(tmp_path, shared=shared)).kept == {}


async def test_a_hybrid_machine_takes_the_version_that_has_the_controller(tmp_path: Path) -> None:
    for name in ("memory/own", "pids", "unified"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "unified" / "cgroup.controllers").write_text("\n")
    found = _cgroup._located((V2 + V1).format(top=tmp_path), "9:memory:/own\n8:pids:/\n0::/\n")
    assert {name: (each.version, each.own) for name, each in found.items()} == {
        "memory": (1, tmp_path / "memory" / "own"),
        "pids": (1, tmp_path / "pids"),
    }


@pytest.mark.parametrize(
    ("mounts", "own"),
    [("", "0::/\n"), (V1, ""), (V1, "9:memory:/gone\n8:pids:/gone\n"), ("junk\n\n - \n", "junk\n:\n::\n")],
)
async def test_a_machine_without_usable_cgroups_has_none(tmp_path: Path, mounts: str, own: str) -> None:
    assert _cgroup._located(mounts.format(top=tmp_path), own) == {}


async def test_cgroups_that_cannot_be_written_keep_nothing(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    read_only = Hierarchy(1, Path("/proc"), Path("/proc"))
    assert make_group(ALL, {"memory": read_only, "pids": read_only}).kept == {}


@pytest.mark.parametrize("number", [1, 60, 1 << 22, 1 << 62])
async def test_every_number_of_processes_is_one_that_the_kernel_takes(number: int) -> None:
    text = _cgroup._value("processes", number)
    assert text == "max" or int(text) < _cgroup.MAX_PROCESSES
