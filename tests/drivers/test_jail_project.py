"""What a project needs is in its jail: virtual environment, tests, servers; and what is missing is named."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Mount
from handrail.drivers.open import open_sandbox
from handrail.session.session import Session
from handrail.tools.builtin import builtin_tools
from tests.drivers.watching import PATIENCE, eventually

pytestmark = pytest.mark.anyio
PYTHON = os.path.basename(sys.executable)
"""Debian's own is called python3 alone."""

TEST = """
import sys
from adding import add

def test_add():
    assert add(1, 2) == 3
    assert sys.prefix.endswith("project/.venv")
"""
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
RUN = """
import sys, anyio
from handrail.drivers.open import open_sandbox
from handrail.session.session import Session
from handrail.tools.builtin import builtin_tools

async def main(project):
    async with open_sandbox("jail", workspace=project) as sandbox:
        for command in ("pytest -q -p no:cacheprovider", "python -c 'import sys; print(sys.prefix)'"):
            done = await sandbox.run(command)
            print(done.exit_code, done.stdout.replace("\\n", " "), done.stderr.replace("\\n", " "))

anyio.run(main, sys.argv[1])
"""


def make_project(home: Path) -> Path:
    """A project with a virtual environment that has pytest, as a person would have it."""
    project = home / "project"
    (project / "tests").mkdir(parents=True)
    (project / "adding.py").write_text("def add(a, b):\n    return a + b\n")
    (project / "tests" / "test_adding.py").write_text(TEST)
    (project / "conftest.py").touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    packages = next((project / ".venv").glob("lib/python3.*/site-packages"))
    for name in PYTEST:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        if spec.submodule_search_locations is None:
            shutil.copy(spec.origin, packages)
        else:
            shutil.copytree(Path(spec.origin).parent, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    script = project / ".venv" / "bin" / "pytest"
    script.write_text(f"#!{project}/.venv/bin/python\nimport sys, pytest\nsys.exit(pytest.main())\n")
    script.chmod(0o755)
    return project


async def test_the_tests_of_a_project_with_a_virtual_environment_run(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    ran = subprocess.run(
        [str(project / ".venv/bin/python"), "-c", RUN, str(project)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}, timeout=PATIENCE * 3,
    )  # fmt: skip
    assert ran.returncode == 0, ran
    tests, prefix = ran.stdout.splitlines()
    assert tests.startswith("0 ."), ran
    assert "1 passed" in tests
    assert prefix.split()[:2] == ["0", str(project / ".venv")]


async def test_the_virtual_environment_is_seen_also_where_it_is_not_in_the_project(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        asked = f"{PYTHON} -c 'import sys; print(sys.prefix)'; command -v {PYTHON}"
        done = await sandbox.run(f"{asked}; touch $(dirname $(command -v {PYTHON}))/x")
        assert done.stdout.splitlines() == [sys.prefix, sys.executable]
        assert "Read-only file system" in done.stderr
        assert not Path(sys.executable).with_name("x").exists()


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in a directory of this user's own, which is on the PATH outside."""
    path = tmp_path / "own" / "bin" / "frobnicate"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\necho frobnicated\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    (tmp_path / "work").mkdir()
    return path


async def test_a_program_that_is_outside_and_not_inside_is_explained(tmp_path: Path, tool: Path) -> None:
    assert subprocess.run(["frobnicate"], capture_output=True, check=True).stdout == b"frobnicated\n", "the control"
    expected = f"frobnicate exists outside the sandbox, at {tool}, but not inside"
    mount = f"mounts=[Mount('{tool.parent}')] (on the command line: --mount {tool.parent})"
    async with open_sandbox("jail", workspace=str(tmp_path / "work")) as sandbox:
        for line in ("frobnicate --all", "true && cd / && frobnicate | cat", "sh -c frobnicate"):
            done = await sandbox.run(line)
            assert done.exit_code == 127, done
            assert any("frobnicate exists outside the sandbox" in note for note in done.notes), done
            assert not any("Mount" in note or str(tool) in note for note in done.notes), "the model cannot do it"
            assert any(expected in advice and mount in advice for advice in done.advice), done
            assert [note for note in sandbox.report.notes if mount in note] == list(done.advice), "once"
        with pytest.raises(FileNotFoundError, match="exists outside the sandbox") as raised:
            await sandbox.run(["frobnicate"])
        assert mount in raised.value.__notes__[0]
        nowhere = await sandbox.run("no-such-program-anywhere")
        assert not any("outside" in note for note in nowhere.notes)
    mounts = [Mount(str(tool.parent))]
    async with open_sandbox("jail", workspace=str(tmp_path / "work"), mounts=mounts) as sandbox:
        assert (await sandbox.run(str(tool))).stdout == "frobnicated\n", "as the note says"
        done = await sandbox.run("frobnicate")
        assert any("not on the sandbox's PATH" in note for note in done.notes), done


async def test_what_a_person_can_change_is_an_event_of_the_call_and_not_in_its_answer(
    tmp_path: Path, tool: Path
) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path / "work")) as sandbox:
        async with Session(builtin_tools(), sandbox=sandbox) as session:
            result = await session.call("bash", {"command": "frobnicate"}, id="one")
        assert "Mount" not in str(result.to_envelope("bash"))
        (warning,) = [event for event in session.trace if event.type == "warning"]
        assert warning.call_id == "one"
        assert f"mounts=[Mount('{tool.parent}')]" in warning.data["message"]


async def test_a_script_whose_interpreter_is_hidden_is_named_as_such(tmp_path: Path) -> None:
    work, hidden = tmp_path / "work", tmp_path / "hidden" / "python3"
    (work / ".venv" / "bin").mkdir(parents=True)
    hidden.parent.mkdir()
    hidden.symlink_to("/bin/true")
    script = work / ".venv" / "bin" / "pytest"
    script.write_text(f"#!{hidden}\n")
    script.chmod(0o755)
    assert subprocess.run([str(script)], check=False).returncode == 0, "the control: outside it runs"
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        done = await sandbox.run("pytest")
        assert done.exit_code in (126, 127)
        (note,) = [note for note in done.notes if "interpreter" in note]
        assert note.startswith(f"{script} is there, but its interpreter ")
        assert f"head -n 1 {script}" in note or str(hidden) in note
        printed = f"sh: {script}: {hidden}: bad interpreter: No such file or directory"
        told = await sandbox.run(f"echo '{printed}' >&2; exit 126")
        assert any(f"its interpreter {hidden} is hidden" in note for note in told.notes), "where the shell names it"
        assert not any(str(hidden) in note for note in sandbox.report.notes), "what a script says is no advice"


FETCHES = {
    "python": "python3 -c \"import urllib.request as u; u.urlopen('http://example.org')\"",
    "an address": "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80))\"",
    "curl": "curl -sS http://example.org",
    "a quiet curl": "curl -s http://example.org",
    "git": "git clone http://example.org/x",
    "a shell": "exec 3<>/dev/tcp/192.0.2.1/80",
    "pip": "python3 -m pip install --retries 1 --disable-pip-version-check no-such-thing-anywhere",
}


@pytest.mark.parametrize("line", FETCHES.values(), ids=FETCHES.keys())
async def test_a_command_that_failed_for_want_of_a_network_is_told_so(tmp_path: Path, line: str) -> None:
    program = line.split()[0]
    needed = program == "exec" or shutil.which(program)
    assert needed, f"{program} is not installed; `python3 dev.py test` installs it as root on Debian"
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        if "pip" in line and (await sandbox.run("python3 -m pip --version")).exit_code:
            pytest.skip("there is no pip here")
        done = await sandbox.run(line)
        assert done.exit_code != 0, "the control: it failed"
        assert any("no network" in note for note in done.notes), done
        refused = await sandbox.run("exec 3<>/dev/tcp/127.0.0.1/9")
        assert refused.exit_code != 0
        assert not any("no network" in note for note in refused.notes), "its own loopback is there"
        assert not any("no network" in note for note in (await sandbox.run("echo Could not resolve host")).notes)


async def test_a_read_only_workspace_is_told_to_who_tried_to_write(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        denied = await sandbox.run("touch /usr/x")
        assert denied.exit_code != 0
        assert not any("workspace" in note for note in denied.notes), "the control: this one can be written"
    work.chmod(0o555)
    async with open_sandbox("jail", workspace=str(work)) as sandbox:
        done = await sandbox.run("touch x")
        assert done.exit_code != 0, "the control: it cannot be written"
        assert any("The workspace is read-only" in note for note in done.notes), done
        assert (await sandbox.run("touch ~/x /tmp/x")).exit_code == 0


async def test_a_server_started_as_a_job_is_reached_by_the_next_command_and_not_from_outside(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("from the server")
    asks = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/page').read().decode())"
    fetch = f'{PYTHON} -c "{asks}"'
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox, open_sandbox("jail") as other:
        job = await sandbox.start(f"{PYTHON} -um http.server 8123 --bind 127.0.0.1")
        assert await anyio.to_thread.run_sync(eventually, lambda: "Serving" in job.tail(5))
        assert (await sandbox.run(fetch)).stdout == "from the server\n"
        with socket.socket() as outside:
            assert outside.connect_ex(("127.0.0.1", 8123)) != 0
        assert "refused" in (await other.run(fetch)).stderr, "nor from another sandbox"
        assert await sandbox.terminate(job.id)
        assert "refused" in (await sandbox.run(fetch)).stderr


async def test_usual_programs_of_a_project_work(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        done = await sandbox.run("bash --version | head -1; ls /etc/ssl/certs | head -1; date; locale 2>&1")
        assert done.exit_code == 0, done
        assert "bash" in done.stdout
        as_somebody = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
        for program, line in {
            "git": f"git init -q . && {as_somebody} && git log --oneline",
            "cc": "echo 'int main(void){return 0;}' > a.c && cc a.c -o a && ./a",
            "make": "printf 'all:\\n\\techo made\\n' > Makefile && make -s",
        }.items():
            if shutil.which(program):
                done = await sandbox.run(line)
                assert done.exit_code == 0, done
