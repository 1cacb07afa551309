"""The interpreter of the project's own environment is there, and what pyvenv.cfg says is not believed any further."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Mount
from handrail.drivers._home import make_home
from handrail.drivers.open import open_sandbox
from handrail.drivers.scratch import remove_scratch
from handrail.sandbox import Sandbox
from tests.drivers.watching import PATIENCE

pytestmark = pytest.mark.anyio
SECRET = "the key"


def make_python(prefix: Path) -> Path:
    """What looks like a Python: an interpreter and its library. It is a copy, because a link leads elsewhere."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / "python3.99").mkdir(parents=True)
    (prefix / "lib" / "python3.99" / "os.py").touch()
    program = prefix / "bin" / "python3.99"
    program.write_text("#!/bin/sh\necho a python of its own\n")
    program.chmod(0o755)
    return prefix


def make_venv(workspace: Path, home: object, *, program: str | None = None) -> Path:
    """An environment whose configuration names `home`."""
    venv = workspace / ".venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.99\n")
    if program is not None:
        (venv / "bin" / "python").symlink_to(program)
    return venv


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with a key and a Python in it."""
    person = tmp_path / "people" / "ada"
    (person / ".ssh" / "bin").mkdir(parents=True)
    (person / ".ssh" / "key").write_text(SECRET)
    monkeypatch.setenv("HOME", str(person))
    make_python(person / ".pyenv" / "versions" / "3.99")
    return person


async def shown(sandbox: Sandbox, path: object) -> bool:
    return (await sandbox.run(["test", "-e", str(path)])).exit_code == 0


async def test_the_interpreter_of_the_workspaces_environment_is_shown_read_only(work: Path, person: Path) -> None:
    python = person / ".pyenv" / "versions" / "3.99"
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert not await shown(sandbox, python), "the control: without an environment it is not there"
    make_venv(work, python / "bin", program=f"{python}/bin/python3.99")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert (await sandbox.run("python")).stdout == "a python of its own\n"
        assert "Read-only" in (await sandbox.run(f"touch {python}/x; touch {python}/bin/python3.99")).stderr
        assert not await shown(sandbox, person / ".ssh")
        assert (await sandbox.run(["ls", "-A", str(person)])).stdout == ".pyenv\n"
    assert not (python / "x").exists()


async def test_an_interpreter_that_is_known_by_a_link_is_found(work: Path, person: Path) -> None:
    """As uv names the newest of a version."""
    versions = person / ".pyenv" / "versions"
    (versions / "3").symlink_to("3.99")
    make_venv(work, versions / "3" / "bin", program=f"{versions}/3/bin/python3.99")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert (await sandbox.run("python")).stdout == "a python of its own\n"


PLANTED = {
    "a directory of keys": "{home}/.ssh",
    "a directory of keys, as a prefix": "{home}/.ssh/bin",
    "the home directory": "{home}",
    "the home directory, as a prefix": "{home}/bin",
    "the directory above": "{home}/../bin",
    "a way through /proc": "/proc/self/root/{home}/.ssh/bin",
    "the whole machine": "/bin/..",
    "a tilde": "~/.ssh/bin",
    "no path": "bin",
    "nothing": "",
    "much": "/x" * 30_000,
    "another directory of the person": "{home}/project/bin",
    "a NUL": "{home}/.ssh\0/bin",
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
async def test_what_is_not_a_python_is_not_shown(work: Path, person: Path, planted: str) -> None:
    make_python(person / "project" / "deeper")  # below it, not it
    (person / "project" / "bin").mkdir()
    (person / "bin").mkdir()
    make_venv(work, planted.format(home=person))
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        for path in (person, person / ".ssh" / "key", person.parent):
            assert not await shown(sandbox, path), path
        assert SECRET not in (await sandbox.run(f"grep -r '{SECRET}' {person.parent} /home")).stdout
        assert (await sandbox.run("echo works")).stdout == "works\n"


@pytest.mark.parametrize("where", [".", "..", ".local"])
async def test_a_python_that_holds_a_home_directory_or_its_private_part_is_not_shown(
    work: Path, person: Path, where: str
) -> None:
    prefix = make_python((person / where).resolve())
    make_venv(work, prefix / "bin")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert not await shown(sandbox, person / ".ssh")
        assert not await shown(sandbox, prefix / "bin")
        assert any("holds a home directory" in note for note in sandbox.report.notes), sandbox.report.notes


async def test_a_home_directory_of_somebody_else_is_not_shown(work: Path, person: Path) -> None:
    other = make_python(person.parent / "grace")
    make_venv(work, other / "bin")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert await shown(sandbox, other / "bin" / "python3.99"), "the control: only a Python is there"
    (other / ".ssh").mkdir()
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert not await shown(sandbox, other)


async def test_files_that_links_borrow_from_elsewhere_make_no_python(work: Path, person: Path) -> None:
    real = make_python(person / "real")
    for kind in ("bin", "lib"):
        fake = person / f"fake-{kind}"
        shutil.copytree(real, fake)
        shutil.rmtree(fake / kind)
        (fake / kind).mkdir()
        for entry in (real / kind).iterdir():
            (fake / kind / entry.name).symlink_to(entry)
        make_venv(work, fake / "bin")
        async with open_sandbox("jail", workspace=str(work)) as sandbox:
            assert not await shown(sandbox, fake), kind


async def test_a_base_where_commands_write_stays_as_writable_as_it_is(work: Path, tmp_path: Path) -> None:
    make_venv(work, make_python(work / "python") / "bin")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert (await sandbox.run("touch python/bin/x")).exit_code == 0


async def test_a_link_from_the_workspace_leads_to_nothing_that_is_not_a_python(work: Path, person: Path) -> None:
    (work / "python").symlink_to(person / ".ssh")
    make_venv(work, work / "python" / "bin")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert not await shown(sandbox, person)
    shutil.rmtree(work / ".venv")
    venv = make_venv(person / "project", person / ".pyenv" / "versions" / "3.99" / "bin")
    (work / ".venv").symlink_to(venv)
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert not await shown(sandbox, person), "an environment that a link leads out to is not the workspace's own"


async def test_a_base_in_another_directory_that_commands_write_is_not_shown(work: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    make_venv(work, make_python(kept / "python") / "bin")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert await shown(sandbox, kept / "python"), "the control"
    mounts = [Mount(str(kept), "/kept", writable=True)]
    async with open_sandbox("jail", workspace=str(work), mounts=mounts) as sandbox:
        assert not await shown(sandbox, kept / "python")
        assert await shown(sandbox, "/kept/python")


async def test_a_base_in_the_home_of_another_sandbox_is_not_shown(work: Path) -> None:
    home = make_home([])
    try:
        make_venv(work, make_python(Path(home) / "python") / "bin")
        async with open_sandbox("jail", workspace=str(work)) as sandbox:
            assert not await shown(sandbox, home)
            assert any("commands may write there" in note for note in sandbox.report.notes)
    finally:
        remove_scratch(home)


async def test_a_base_that_holds_the_workspace_is_not_shown(tmp_path: Path) -> None:
    prefix = make_python(tmp_path / "python")
    (prefix / "private").mkdir()
    work = prefix / "work"
    make_venv(work, prefix / "bin")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        assert not await shown(sandbox, prefix / "private")
        assert any("commands may write there" in note for note in sandbox.report.notes)


@pytest.mark.parametrize("planted", ["fifo", "link", "directory", "endless", "binary"])
async def test_a_configuration_that_is_no_plain_file_neither_blocks_nor_breaks(
    work: Path, person: Path, planted: str
) -> None:
    good = person / ".pyenv" / "versions" / "3.99" / "bin"
    configuration = make_venv(work, good) / "pyvenv.cfg"
    text = configuration.read_text()
    configuration.unlink()
    if planted == "fifo":
        os.mkfifo(configuration)
    elif planted == "link":
        (work / "other").write_text(text)
        configuration.symlink_to(work / "other")
    elif planted == "directory":
        configuration.mkdir()
    elif planted == "endless":
        configuration.write_text("x = y\n" * 1_000_000 + text)
    else:
        configuration.write_bytes(bytes(range(256)) * 100)
    with anyio.fail_after(PATIENCE):
        async with open_sandbox("jail", workspace=str(work)) as sandbox:
            assert not await shown(sandbox, person)


async def test_the_report_says_why_an_interpreter_is_not_shown_and_never_advises_to_show_it(
    work: Path, person: Path
) -> None:
    make_venv(work, f"{person}/.ssh/bin")
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        (note,) = [note for note in sandbox.report.notes if ".venv" in note]
        assert f"{person}/.ssh/bin" in note
        assert "it holds a home directory" in note
        assert "Mount" not in note


@pytest.fixture
def swapping(work: Path, person: Path) -> Iterator[None]:
    """Somebody who goes on changing what the environment names: a Python, and a directory of keys."""
    good, bad = f"{person}/.pyenv/versions/3.99/bin", f"{person}/.ssh/bin"
    stop = threading.Event()
    link = work / "link"

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for home in (good, bad, f"{link}/bin"):
                with suppress(OSError):
                    new = work / f"new{number}"
                    new.symlink_to(os.path.dirname(bad if number % 2 else good))
                    new.replace(link)
                with suppress(OSError):
                    text = work / "cfg"
                    text.write_text(f"home = {home}\n")
                    text.replace(work / ".venv" / "pyvenv.cfg")

    make_venv(work, good)
    thread = threading.Thread(target=swap)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.usefixtures("swapping")
async def test_what_is_swapped_meanwhile_never_shows_more(work: Path, person: Path) -> None:
    seen = set()
    for _ in range(40):
        async with open_sandbox("jail", workspace=str(work)) as sandbox:
            assert not await shown(sandbox, person / ".ssh")
            seen.add(await shown(sandbox, person / ".pyenv"))
        if seen == {True, False}:
            break
    assert True in seen, "the control: it is believed when it names a Python"


async def test_a_real_environment_made_with_another_interpreter_works(tmp_path: Path) -> None:
    """A Python of another version, wherever this machine has one outside of the system's directories."""
    found = [path for path in Path(os.path.expanduser("~")).glob(".pyenv/versions/3.1?.*/bin/python3") if other(path)]
    if not found:
        pytest.skip("there is no other interpreter in ~/.pyenv on this machine")
    work = tmp_path / "work"
    subprocess.run([str(found[-1]), "-m", "venv", "--without-pip", str(work / ".venv")], check=True)
    asked = "import sys, ssl, sqlite3; print(*sys.version_info[:2], sys.prefix)"
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        done = await sandbox.run(["python", "-c", asked])
        version = found[-1].parents[1].name.split(".")[:2]
        assert done.stdout.split() == [*version, str(work / ".venv")], done


def other(python: Path) -> bool:
    return not sys.version.startswith(python.parents[1].name) and sys.base_prefix != str(python.parents[1])
