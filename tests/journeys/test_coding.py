"""A day's work in the jail, as root and as an ordinary user: a project in a home directory with its own environment."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Failure, Session, builtin_tools, open_sandbox
from tests.drivers.test_ordinary_user import PACKAGES, entered, missing, place  # noqa: F401 - a fixture

CODE = "def add(a, b):\n    return a - b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
SERVER = """
import http.server, calc

class Sum(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"sum {calc.add(2, 3)}".encode())

print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", 8123), Sum).serve_forever()
"""
ASK = "python -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8123\", timeout=5).read().decode())'"


def origin(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def make_project(root: Path) -> None:
    """Sources, and a virtual environment that has pytest."""
    root.mkdir(parents=True)
    (root / "calc.py").write_text(CODE)
    (root / "test_calc.py").write_text(TEST)
    (root / "server.py").write_text(SERVER)
    (root / ".gitignore").write_text(".venv/\n__pycache__/\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")], check=True, timeout=120)
    packages = next((root / ".venv/lib").glob("python*/site-packages"))
    shutil.copy(origin("py"), packages)
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(origin(name).parent, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    script = root / ".venv/bin/pytest"
    script.write_text(
        f"#!{root}/.venv/bin/python\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
    )
    script.chmod(0o755)


async def value(session: Session, name: str, /, **arguments: Any) -> Any:
    result = await session.call(name, arguments)
    assert result.ok, result
    return result.value


@pytest.mark.anyio
async def test_a_project_is_read_mended_tested_served_and_shared(tmp_path: Path) -> None:
    project = tmp_path / "home" / "project"
    make_project(project)
    with anyio.fail_after(120):
        async with (
            open_sandbox("jail", workspace=str(project)) as sandbox,
            Session(builtin_tools(), sandbox=sandbox) as session,
        ):
            await mend(session, project)
            await serve(session)
            shared = await value(session, "share_artifact", path="calc.py", filename="mended.py")
            assert await session.artifacts.read(shared["artifact"].ref) == (project / "calc.py").read_bytes()
    assert {name for name in os.listdir(project) if not name.startswith((".", "__"))} == {
        "calc.py", "test_calc.py", "server.py",
    }  # fmt: skip


async def mend(session: Session, project: Path) -> None:
    listing = await value(session, "read", path=".")
    assert "calc.py" in {entry["name"] for entry in listing["entries"]}
    assert sorted((await value(session, "glob", pattern="*.py"))["paths"]) == ["calc.py", "server.py", "test_calc.py"]
    # without compiled files: Python takes a file of the same size, changed within the same second, for the same file
    quiet = "export PYTHONDONTWRITEBYTECODE=1"
    red = await value(session, "bash", command=f"{quiet}; source .venv/bin/activate && pytest -q", timeout=60)
    assert (red["exit_code"], "1 failed" in red["stdout"]) == (1, True)
    found = (await value(session, "grep", pattern=r"return a \S b"))["matches"][0]
    assert (found["path"], found["line"]) == ("calc.py", 2)
    assert (await value(session, "read", path=found["path"]))["text"] == CODE
    await value(session, "edit", path=found["path"], edits=[{"old": "a - b", "new": "a + b"}])
    green = await value(session, "bash", command=f"{quiet}; .venv/bin/pytest -q", timeout=60)
    assert (green["exit_code"], "1 passed" in green["stdout"]) == (0, True)
    assert (project / "calc.py").read_text() == CODE.replace("-", "+")


async def serve(session: Session) -> None:
    job = (await value(session, "bash", command=".venv/bin/python server.py", background=True))["job"]
    while "serving" not in (await value(session, "process", action="tail", job=job))["text"]:
        assert (await value(session, "process", action="poll", job=job))["running"]
        await anyio.sleep(0.05)
    for _ in range(50):
        session.begin_run()
        answered = await value(session, "bash", command=f"source .venv/bin/activate; {ASK}")
        if answered["exit_code"] == 0:
            break
    assert answered["stdout"] == "sum 5\n"
    killed = await value(session, "process", action="kill", job=job)
    assert (killed["killed"], killed["running"]) == (True, False)
    refused = await value(session, "bash", command=f"source .venv/bin/activate; {ASK}")
    assert (refused["exit_code"], "refused" in refused["stderr"]) == (1, True)


@pytest.mark.anyio
async def test_what_is_beside_the_project_is_out_of_reach(tmp_path: Path) -> None:
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    (tmp_path / "home" / "secret").write_text("key\n")
    async with (
        open_sandbox("jail", workspace=str(project)) as sandbox,
        Session(builtin_tools(), sandbox=sandbox) as session,
    ):
        outside = await session.call("read", {"path": "../secret"})
        looked = await value(session, "bash", command="cat ../secret; ls -A ..")
    assert isinstance(outside, Failure)
    assert "key" not in looked["stdout"]
    assert looked["stdout"].split() == ["project"]


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_an_ordinary_user_can_do_all_of_this(place: Path) -> None:  # noqa: F811 - the fixture
    """Also what root cannot show: a file that may not be read."""
    base, version = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    tests = [str(place / "tests" / name) for name in ("journeys/test_coding.py", "tools/test_bad_input.py")]
    command = [
        *entered(place, base), str(base / "bin" / version), "-B", "-m", "pytest", "-p", "no:cacheprovider", "-rs",
        "--basetemp", str(place / "tmp/pytest"), "-k", "project or may_not_be_read", *tests,
    ]  # fmt: skip
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": f"{place}/src{os.pathsep}{place}/{PACKAGES}",
        "HOME": str(place / "tmp"), "TMPDIR": str(place / "tmp"),
    }  # fmt: skip
    ran = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed, ran.stdout
    assert (int(passed[1]), "skipped" in ran.stdout) == (4, False), "the control: they ran"
