"""A jail shows what it should wherever things lie, and what it is made of is not for its commands to change."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError, Unavailable, WeakerThanAsked
from handrail.drivers.jail import open_jail
from handrail.drivers.open import open_sandbox
from handrail.drivers.scratch import directory_outside
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
    print("copies", *(place for place in places if glob.glob(f"{place}/handrail-{os.getpid()}-*/passwd")))
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


FIND = "find {work} -name passwd; touch {work}/tmp/mine; ls {work}/tmp"


NO_MEMORY = "mount -t tmpfs -o size=4m none /dev/shm;"
"""Then the usual places are taken."""


async def test_the_copy_of_etc_is_not_in_a_workspace_that_holds_the_temporary_files(work: Path) -> None:
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
    assert directory_outside([]) == usual
    assert directory_outside([f"{usual}/below", f"{usual}-beside"]) == usual
    for top in (usual, os.path.dirname(usual)):
        found = directory_outside([top])
        assert found is None or not f"{found}/".startswith(f"{top.rstrip('/')}/")
    assert directory_outside(["/"]) is None


async def test_the_guard_runs_where_nothing_can_be_run_from_temporary_files(work: Path) -> None:
    closed = f"mount -t tmpfs -o noexec none /dev/shm; mount -t tmpfs -o noexec none {work}/tmp;"
    other = work.parent / "other"
    other.mkdir()
    assert elsewhere(closed, other, "echo it runs", tmp=work / "tmp")[:3] == ["/run/handrail/guard", "it", "runs"]


@pytest.mark.parametrize("target", ["/etc", "/etc/handrail"])
async def test_a_mount_in_etc_is_seen_and_hides_nothing_that_is_needed(opened: Open, target: str) -> None:
    jail = await opened("jail", mounts=[Mount("/usr/share", target)])
    ran = await run(jail, f"echo STARTED; ls -d {target}/doc")
    assert ran.stdout.decode().split() == ["STARTED", f"{target}/doc"], ran


async def test_a_mount_can_appear_in_a_system_directory_that_is_empty(work: Path) -> None:
    empty = "mount -t tmpfs none /opt;"
    assert elsewhere(empty, work, "ls -d /opt/* /opt/there/doc", "/opt/there")[1:3] == ["/opt/there", "/opt/there/doc"]


async def test_what_a_system_directory_holds_is_there_though_it_was_empty_before(work: Path) -> None:
    filled = "mount -t tmpfs none /opt; touch /opt/tool;"
    assert elsewhere(filled, work, "ls /opt; touch /opt/x 2>/dev/null || echo closed")[1:3] == ["tool", "closed"]


REWRITES = """
import pathlib, sys, anyio
from handrail.contract.driver import Command
from handrail.drivers.jail import open_jail
from handrail.drivers.guard.build import PROGRAM

async def say(driver, line):
    process = await driver.start(Command(line=line))
    async for chunk in process.output():
        print(chunk.data.decode(), end="")
    await driver.close()

async def main(work):
    driver = await open_jail(workspace=work)
    line = f"rm {PROGRAM} && echo 'exit 1' > {PROGRAM} && chmod +x {PROGRAM} && echo rewritten"
    await say(driver, f"echo STARTED; {line}")
    assert PROGRAM.read_text() == "exit 1\\n"
    await say(await open_jail(workspace=work, network="full"), "echo it runs")

anyio.run(main, sys.argv[1])
"""


async def test_a_command_that_rewrites_the_guards_file_changes_no_guard_of_this_process(tmp_path: Path) -> None:
    package = tmp_path / "work" / "src" / "handrail"
    shutil.copytree(SOURCES / "handrail", package, ignore=shutil.ignore_patterns("__pycache__"))
    env = {"PYTHONPATH": os.pathsep.join([str(package.parent), *sys.path])}
    command = [sys.executable, "-B", "-c", REWRITES, str(tmp_path / "work")]
    ran = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    assert ran.stdout.split("\n") == ["STARTED", "rewritten", "it runs", ""], ran


async def test_an_environment_below_the_workspace_is_read_only_while_handrail_runs_in_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(work / ".venv")], check=True)
    line = "touch .venv/x; touch .venv/pyvenv.cfg; mv .venv old; touch mine; ls -A"
    command = [str(work / ".venv/bin/python"), "-c", OPEN, str(work), f"( {line} ) 2>&1"]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join([str(SOURCES), *sys.path])}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    assert ran.stdout.startswith("STARTED"), ran
    assert ran.stdout.count("Read-only file system") + ran.stdout.count("busy") == 3, ran
    assert ran.stdout.splitlines()[-3:-1] == [".venv", "mine"], ran


async def test_an_environment_that_is_a_link_in_the_workspace_works_and_is_read_only(tmp_path: Path) -> None:
    work, real = tmp_path / "work", tmp_path / "real"
    work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(real)], check=True)
    (work / ".venv").symlink_to(real)
    line = ".venv/bin/python -c 'import sys; print(sys.prefix)'; touch .venv/x 2>&1"
    command = [str(work / ".venv/bin/python"), "-c", OPEN, str(work), line]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join([str(SOURCES), *sys.path])}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    assert ran.stdout.splitlines()[1:2] == [str(work / ".venv")], ran
    assert "Read-only file system" in ran.stdout


async def test_a_link_that_a_command_left_on_the_way_to_a_mount_is_refused(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "cache").mkdir()
    for target in ("/workspace/a/b", "{0}/a/b"):
        jail = await opened("jail")
        mounts = [Mount(str(tmp_path / "cache"), target.format(jail.workspace), writable=True)]
        first = await open_jail(workspace=jail.workspace, mounts=mounts)
        assert (await run(first, "echo STARTED; touch a/b/x && ls a/b")).stdout.split() == [b"STARTED", b"x"]
        assert (await run(first, "mv a old && mkdir a && ln -s /newroot/etc a/b && echo left")).stdout == b"left\n"
        await first.close()
        with pytest.raises(HandrailError, match="a link on the way"):
            await open_jail(workspace=jail.workspace, mounts=mounts)
        shutil.rmtree(Path(jail.workspace, "a"))


SYSTEM_PLACES = ["/usr", "/etc", "/run", "/dev", "/proc", "/proc/1", "/sys", "/var"]


@pytest.mark.parametrize("place", SYSTEM_PLACES)
async def test_a_directory_that_the_jail_needs_itself_is_no_workspace(place: str) -> None:
    with pytest.raises(HandrailError, match="choose a directory of its own"):
        await open_jail(workspace=place)


@pytest.mark.parametrize(
    "target", ["//run", "//dev", "//proc", "/run/handrail/dev/x/y", "/proc/x", "/sys/x", "/dev/null"]
)
async def test_a_mount_where_the_jail_itself_is_made_is_refused(work: Path, target: str) -> None:
    with pytest.raises(HandrailError, match="cannot appear"):
        await open_jail(workspace=str(work), mounts=[Mount("/usr/share", target)])


async def test_a_workspace_that_holds_temporary_files_says_so_and_shows_no_copy(opened: Open) -> None:
    jail = await opened("jail")
    assert not any("temporary" in note for note in jail.report.notes), "the control"
    wide = await open_jail(workspace="/dev/shm")
    try:
        ran = await run(wide, f"echo STARTED; cat /dev/shm/handrail-{os.getpid()}-*/passwd; id -u")
        assert ran.stdout.split() == [b"STARTED", str(os.geteuid()).encode()], ran
        assert any("temporary" in note for note in wide.report.notes)
    finally:
        await wide.close()


FORKS = """
import os, sys, time
from handrail.drivers.jail._etc import copies, etc_copy
top = etc_copy("none")
pid = os.fork()
if pid == 0:
    sys.exit(0)
os.waitpid(pid, 0)
assert os.path.exists(f"{top}/passwd"), "a child took it away"
assert etc_copy("none") == top
os.rename(top, top + "x")
os.mkdir(top)
other = etc_copy("none")
assert other != top and os.path.exists(f"{other}/passwd"), "another's directory was taken for ours"
os.rmdir(top)
os.rename(top + "x", top)
print("held")
"""


def test_a_copy_outlives_a_forked_child_and_is_made_again_when_it_is_no_longer_ours(tmp_path: Path) -> None:
    env = {"PYTHONPATH": os.pathsep.join([str(SOURCES), *sys.path]), "TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", FORKS], env=env, capture_output=True, text=True, check=False)
    assert ran.stdout == "held\n", ran.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root; the half that runs as root did not run")
async def test_no_private_file_of_etc_is_copied_even_for_root(work: Path) -> None:
    key = "/etc/ssl/certs/handrail-test.key"
    copy = (
        f"mount -t tmpfs none /mnt; cp -a /etc/ssl/certs /mnt/; mount --bind /mnt/certs /etc/ssl/certs; echo x > {key};"
    )
    look = "cat /etc/ssl/certs/handrail-test.key 2>/dev/null || echo none"
    assert elsewhere(f"{copy} chmod 600 {key};", work, look)[1] == "none"
    assert elsewhere(f"{copy} chmod 644 {key};", work, look)[1] == "x", "the control: a public one is"


@pytest.mark.parametrize("source", ["/proc", "/proc/sys", "/sys", "/"])
async def test_a_mount_that_would_show_the_machine_itself_is_refused(work: Path, source: str) -> None:
    with pytest.raises(HandrailError, match="the machine itself"):
        await open_jail(workspace=str(work), mounts=[Mount(source, "/srv/x", writable=True)])


async def test_a_mount_of_var_leaves_its_place_for_temporary_files_private(opened: Open) -> None:
    jail = await opened("jail", mounts=[Mount("/var", "/var")])
    ran = await run(jail, "ls -d /var/lib && echo x > /var/tmp/mine && cat /var/tmp/mine; touch /var/x 2>&1")
    assert ran.stdout.split()[:2] == [b"/var/lib", b"x"], ran
    assert b"Read-only" in ran.stdout
    assert not os.path.exists("/var/tmp/mine")


async def test_a_mount_of_another_var_without_such_a_place_works_too_or_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "var" / "lib").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    options = {"workspace": str(tmp_path / "work"), "mounts": [Mount(str(tmp_path / "var"), "/var")]}
    if str(tmp_path).startswith("/var/"):  # the workspace itself has no place in it then
        with pytest.raises(HandrailError, match="choose a target"):
            await open_jail(**options)  # type: ignore[arg-type]
        return
    jail = await open_jail(**options)  # type: ignore[arg-type]
    assert (await run(jail, "ls /var")).stdout == b"lib\n"
    await jail.close()


@pytest.mark.parametrize(("source", "target"), [("/usr/share", "/etc/hosts"), ("/etc/hostname", "/etc/ssl")])
async def test_a_mount_of_another_kind_than_what_is_there_is_refused_in_plain_words(
    work: Path, source: str, target: str
) -> None:
    with pytest.raises(HandrailError, match=f"cannot appear at {target}") as raised:
        await open_jail(workspace=str(work), mounts=[Mount(source, target)])
    assert "/dev/shm" not in str(raised.value)


async def test_a_misplaced_mount_never_ends_in_a_weaker_sandbox(work: Path) -> None:
    mounts = [Mount("/usr/share", "/usr/nowhere/at/all")]
    with pytest.raises(HandrailError, match="choose a target") as raised:
        async with open_sandbox(workspace=str(work), mounts=mounts, allow_weaker=True):
            pass
    assert not isinstance(raised.value, Unavailable | WeakerThanAsked)


async def test_a_sandbox_on_the_host_says_why_there_is_no_jail(work: Path) -> None:
    async with open_sandbox(workspace=str(work), bubblewrap="/nowhere/bwrap", allow_weaker=True) as sandbox:
        assert sandbox.report.driver == "host"
        assert any("no jail" in note and "/nowhere/bwrap" in note for note in sandbox.report.notes), sandbox.report


async def test_an_empty_path_is_no_workspace() -> None:
    with pytest.raises(HandrailError, match="empty path"):
        async with open_sandbox(workspace=""):
            pass


async def test_a_link_below_a_read_only_mount_or_above_the_workspace_is_refused_too(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for name in ("ws", "sub", "u/ws"):
        (top / name).mkdir(parents=True)
    (top / "sub" / "cache").symlink_to("/newroot/run/handrail/dev")
    mounts = [Mount(str(top / "sub"), "/mnt/ro"), Mount(str(top / "ws"), "/mnt/ro/cache", writable=True)]
    with pytest.raises(HandrailError, match="a link on the way"):
        await open_jail(workspace=str(tmp_path), mounts=mounts)
    jail = await open_jail(workspace=str(top / "u/ws"), mounts=[Mount(str(top), str(top), writable=True)])
    assert (await run(jail, "echo STARTED; pwd")).stdout.split() == [b"STARTED", str(top / "u/ws").encode()], (
        "the control"
    )
    await jail.close()


async def test_a_source_that_a_link_leads_out_of_the_workspace_is_refused(tmp_path: Path, work: Path) -> None:
    (tmp_path / "secret").mkdir()
    (work / "inner").mkdir()
    (work / "data").symlink_to(tmp_path / "secret")
    (work / "near").symlink_to(work / "inner")
    with pytest.raises(HandrailError, match="leads out of"):
        await open_jail(workspace=str(work), mounts=[Mount(str(work / "data"), "/data", writable=True)])
    jail = await open_jail(workspace=str(work), mounts=[Mount(str(work / "near"), "/data", writable=True)])
    assert (await run(jail, "touch /data/x && ls inner")).stdout == b"x\n", "the control: within it a link may lead"
    await jail.close()


DAEMON = """
import os, sys, anyio
from handrail.contract.driver import Command
from handrail.drivers.guard.sealed import open_sealed
from handrail.drivers.jail import open_jail
from handrail.drivers.scratch import make_scratch, remove_scratch

os.close(open_sealed())
scratch = make_scratch()
os.closerange(3, 1000)
others = [os.open("/bin/true", os.O_RDONLY) for _ in range(20)]
remove_scratch(scratch)
[os.fstat(fd) for fd in others]

async def main(work):
    driver = await open_jail(workspace=work)
    process = await driver.start(Command(line="echo it runs"))
    async for chunk in process.output():
        print(chunk.data.decode(), end="")
    await driver.close()

anyio.run(main, sys.argv[1])
"""


async def test_a_process_that_closed_all_its_descriptors_still_starts_the_guard_and_nothing_else(work: Path) -> None:
    env = {"PYTHONPATH": os.pathsep.join([str(SOURCES), *sys.path])}
    command = [sys.executable, "-c", DAEMON, str(work)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    assert ran.stdout == "it runs\n", ran.stderr
