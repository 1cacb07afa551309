"""HOME is of the sandbox's own: private, with a size in the jail, with an identity for commits, and gone with it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.drivers import _home
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.jail._view import HOME
from handrail.drivers.open import open_sandbox
from handrail.drivers.scratch import remove_scratch, sweep_scratch
from tests.drivers.conftest import Open
from tests.drivers.watching import PATIENCE, run

pytestmark = pytest.mark.anyio
NO_SIZE = Limits(tmp=None)
ADA = ("Ada Lovelace", "ada@example.org")


def homes() -> set[str]:
    """The homes of this process that exist."""
    return {os.path.join(parent, name) for parent, _ in _home._parents.values() for name in os.listdir(parent)}


async def home_of(driver: GuardedDriver) -> str:
    return (await run(driver, "printf %s $HOME")).stdout.decode()


async def test_home_is_empty_private_writable_and_not_the_workspace(driver: GuardedDriver) -> None:
    ran = await run(driver, "cd && test $PWD = $HOME && ls -A && stat -c %a . && echo kept > f && cat ~/f")
    assert ran.stdout.split() == [b"700", b"kept"], ran
    assert not os.listdir(driver.workspace)
    home = await home_of(driver)
    assert home != driver.workspace
    assert await driver.read(f"{home}/f") == b"kept\n", "file operations reach it too"


async def test_home_is_the_same_path_in_every_jail(opened: Open) -> None:
    assert await home_of(await opened("jail")) == HOME == "/home/sandbox"


async def test_home_without_a_limit_is_on_disk_and_not_in_memory(kind: str, opened: Open) -> None:
    before = homes()
    driver = await opened(kind, limits=NO_SIZE)
    (home,) = homes() - before
    assert not home.startswith("/dev/shm")
    assert os.stat(home).st_dev == os.stat("/var/tmp").st_dev
    assert (await run(driver, "stat -c %d ~")).stdout.decode().strip() == str(os.stat(home).st_dev)


async def test_home_goes_with_its_sandbox_whatever_is_in_it(kind: str, opened: Open) -> None:
    before = homes()
    driver = await opened(kind, limits=NO_SIZE)
    assert len(homes() - before) == 1, "the control: it has one"
    await run(driver, "mkdir -p ~/a/b && touch ~/a/b/c && ln -s / ~/link && chmod 0 ~/a/b ~/a")
    await driver.close()
    assert homes() == before
    assert os.path.isdir("/usr")


async def test_home_has_a_size_and_is_nothing_of_the_machine(opened: Open) -> None:
    before = homes()
    driver = await opened("jail", limits=Limits(tmp=4 << 20))
    assert homes() == before
    assert (await run(driver, "stat -f -c '%T %b %S' ~")).stdout.split() == [b"tmpfs", b"1024", b"4096"]


async def test_two_sandboxes_have_two_homes(kind: str, opened: Open) -> None:
    one, other = await opened(kind), await opened(kind)
    await run(one, "touch ~/mine")
    assert (await run(other, "ls -A ~")).stdout == b""


async def test_a_jail_that_cannot_be_made_leaves_no_home(opened: Open, tmp_path: Path) -> None:
    before = homes()
    (tmp_path / "file").touch()
    with pytest.raises(HandrailError):
        await opened("jail", mounts=[Mount(str(tmp_path), "/usr/no/such/place")])
    assert homes() == before


DIES = """
import anyio, os, signal, sys
from handrail.drivers.jail import open_jail
from handrail.contract.driver import Command
from handrail.contract.limits import Limits
from handrail.drivers import _home

async def main():
    driver = await open_jail(workspace=sys.argv[1], limits=Limits(tmp=None))
    await (await driver.start(Command(line="mkdir ~/deep && touch ~/deep/file && chmod 0 ~/deep"))).wait()
    print(*(parent for parent, _ in _home._parents.values()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


async def test_what_a_dead_process_left_as_home_is_swept(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, timeout=PATIENCE,
    )  # fmt: skip
    left = Path(ran.stdout.strip())
    assert len(list(left.glob("home-*/deep"))) == 1, "the control: it was left"
    with anyio.fail_after(PATIENCE):
        while left.exists():  # the lock is free when the last process of it is dead
            sweep_scratch(str(left.parent))
            await anyio.sleep(0.05)


async def test_a_home_that_was_given_wins(kind: str, opened: Open) -> None:
    before = homes()
    driver = await opened(kind, env={"HOME": "/elsewhere"})
    assert (await run(driver, "echo $HOME; echo $PATH")).stdout.split()[0] == b"/elsewhere"
    assert b"/elsewhere/.local/bin" in (await run(driver, "echo $PATH")).stdout
    if kind == "jail":
        assert homes() == before, "none is made that nobody uses"


async def test_a_mount_may_be_home(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    driver = await opened("jail", mounts=[Mount(str(tmp_path / "own"), "/home/sandbox", writable=True)])
    await run(driver, "echo kept > ~/f")
    assert (tmp_path / "own" / "f").read_text() == "kept\n"


async def test_nothing_is_made_in_a_mount_that_holds_the_path_of_home(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "people" / "ada").mkdir(parents=True)
    driver = await opened("jail", mounts=[Mount(str(tmp_path / "people"), "/home", writable=True)])
    assert (await run(driver, "ls /home; touch ~/x && echo made")).stdout == b"ada\nmade\n"
    assert os.listdir(tmp_path / "people") == ["ada"]


async def test_programs_that_are_installed_for_the_user_are_found(driver: GuardedDriver) -> None:
    program = "#!/bin/sh\necho own"
    make = f"mkdir -p ~/.local/bin && printf '{program}' > ~/.local/bin/frob && chmod +x ~/.local/bin/frob"
    ran = await run(driver, f"{make} && frob")
    assert ran.stdout == b"own\n", ran


async def test_the_programs_of_the_workspaces_environment_come_first(driver: GuardedDriver) -> None:
    await driver.write(f"{driver.workspace}/.venv/bin/python", b"#!/bin/sh\necho own\n", mode=0o755)
    assert (await run(driver, "python; cd /; python")).stdout == b"own\nown\n"
    path = (await run(driver, "echo $PATH")).stdout.decode().split(":")
    assert path[:2] == [f"{driver.workspace}/.venv/bin", os.path.dirname(sys.executable)]


GIT = "git init -q . && git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'"


async def test_commits_have_the_identity_that_was_given_unless_the_repository_has_its_own(
    kind: str, opened: Open
) -> None:
    driver = await opened(kind, git_identity=ADA)
    assert (await run(driver, GIT)).stdout == b"Ada Lovelace <ada@example.org>\n"
    own = "git config user.name Grace && git commit -q --allow-empty -m y && git log -1 --format='%an <%ae>'"
    assert (await run(driver, own)).stdout == b"Grace <ada@example.org>\n"
    nobody = await opened(kind)
    assert (await run(nobody, f"cd $(mktemp -d) && {GIT}")).code != 0, "the control"


@pytest.mark.parametrize("name", ['a "b" \\', "#;[x]", "back\\slash", "é 名", " a ", "x = y", "'", "$(id) `id`"])
async def test_git_reads_every_name_back_as_it_was_given(name: str) -> None:
    home = _home.make_home([], (name, "a@b"))
    try:
        command = ["git", "config", "--file", f"{home}/.gitconfig", "--list", "--null"]
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        assert listed == f"user.name\n{name}\0user.email\na@b\0"
        assert stat.S_IMODE(os.stat(home).st_mode) == 0o700
    finally:
        remove_scratch(home)


@pytest.mark.parametrize(
    "identity",
    [("a\n[core]\n\tpager = id", "b"), ("a", "b\r"), ("a\0", "b"), ("", "b"), ("a", " "), ("a", None), "ab", ("a",),
     ("a" * 501, "b"), ("a\x85b", "c"), ("a\u2028b", "c")],
)  # fmt: skip
async def test_an_identity_that_is_not_two_lines_of_text_is_refused(kind: str, opened: Open, identity: object) -> None:
    with pytest.raises(HandrailError, match="git_identity"):
        await opened(kind, git_identity=identity)


async def test_the_identity_is_an_option_of_a_sandbox(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path), git_identity=ADA) as sandbox:
        assert "Ada Lovelace" in await sandbox.read_text(f"{HOME}/.gitconfig")
    with pytest.raises(HandrailError, match="leave HOME or git_identity out"):
        async with open_sandbox("jail", workspace=str(tmp_path), git_identity=ADA, env={"HOME": "/x"}):
            pass
