"""Its commands set themselves up anywhere, and a test that hangs is ended."""

import os
import platform
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ("dev.py", "pyproject.toml", "constraints.txt", "hatch_build.py", "README.md", "LICENSE", "src")


def run(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


# Commit subjects


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository with a copy of dev.py, a first commit of any length, and a tag `old` on it."""
    shutil.copy(ROOT / "dev.py", tmp_path)
    run("git", "init", "-q", cwd=tmp_path)
    commit(tmp_path, "x" * 100)
    run("git", "tag", "old", cwd=tmp_path)
    return tmp_path


def commit(repository: Path, message: str) -> None:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = run("git", *who, "commit", "-q", "--allow-empty", "-m", message, cwd=repository)
    assert done.returncode == 0, done.stderr


def subjects(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "dev.py", "commits", *words, cwd=repository)


def test_a_subject_of_72_characters_is_short_enough_however_long_its_body(history: Path) -> None:
    commit(history, "é" * 72 + "\n\n" + "because " * 30)
    assert subjects(history, "old..HEAD").returncode == 0


def test_a_subject_of_73_characters_is_named_and_older_commits_are_not(history: Path) -> None:
    commit(history, "guard: " + "y" * 66)
    done = subjects(history, "old..HEAD")
    assert done.returncode == 1
    assert "guard: yyy" in done.stdout
    assert "xxx" not in done.stdout


def test_a_range_that_does_not_exist_is_an_error(history: Path) -> None:
    assert subjects(history, "nowhere..HEAD").returncode == 1


# The limit of a test


HANGING = """
import threading, time, anyio, pytest

def test_sleeps():
    time.sleep(600)

def test_cannot_be_interrupted():
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

@pytest.mark.anyio
async def test_shields_itself():
    with anyio.CancelScope(shield=True):
        await anyio.sleep(600)

def test_waits_for_a_thread():
    thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
    thread.start()
    thread.join()

def test_is_quick():
    pass
"""


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """An empty suite with this project's own configuration."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    return tmp_path


def test_a_hanging_test_is_ended_and_the_others_still_run(configured: Path) -> None:
    (configured / "tests" / "test_hanging.py").write_text(HANGING)
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "-o", "timeout=3"]
    done = run(sys.executable, *words, cwd=configured)
    assert "4 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "test_cannot_be_interrupted" in done.stderr, "the stack of what could not be interrupted"
    assert done.stdout.count("Timeout (>3.0s)") >= 3


LIMITS = """
import pytest

@pytest.mark.parametrize("wanted", [
    120,
    pytest.param(3600, marks=pytest.mark.long),
    pytest.param(7, marks=[pytest.mark.long, pytest.mark.timeout(7)]),
])
def test_limit(request, wanted):
    marker = request.node.get_closest_marker("timeout")
    assert float(marker.args[0] if marker else request.config.getini("timeout")) == wanted
"""


def test_a_test_has_two_minutes_and_a_long_one_an_hour_unless_it_says_otherwise(configured: Path) -> None:
    (configured / "tests" / "test_limits.py").write_text(LIMITS)
    done = run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--long", cwd=configured)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


# Set-up


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """The project as a newcomer has it: nothing built, nothing installed."""
    for name in PROJECT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=what_was_made)
        else:
            shutil.copy(ROOT / name, tmp_path)
    yield tmp_path
    shutil.rmtree(tmp_path / ".venv", ignore_errors=True)


def what_was_made(at: str, names: list[str]) -> set[str]:
    built = {"guard"} if Path(at).name == "guard" else set()
    return {name for name in names if name == "__pycache__"} | (built & set(names))


RECORDS = '#!/bin/sh\necho "$0" "$@" >> "$RECORD"\n'


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A tree that is set up, on a machine without ripgrep whose apt-get and Python only record their arguments."""
    for name in ("dev.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("bin/apt-get", ".venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(RECORDS)
        (tmp_path / name).chmod(0o755)
    stamp = "import runpy, sys; print(runpy.run_path(sys.argv[1])['fingerprint'](), end='')"
    wanted = run(sys.executable, "-c", stamp, tmp_path / "dev.py", cwd=tmp_path).stdout
    (tmp_path / ".venv" / "installed").write_text(wanted)
    return tmp_path


def record_of(tree: Path, *words: str) -> tuple[list[str], str]:
    """What `dev.py` with these words ran, and what it printed."""
    env = {"PATH": str(tree / "bin"), "RECORD": str(tree / "record")}
    done = run(sys.executable, "dev.py", *words, cwd=tree, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return (tree / "record").read_text().replace(f"{tree}/", "").splitlines(), done.stdout


def test_bench_installs_the_ripgrep_that_it_measures_against(recorded: Path) -> None:
    (*installed, ran), said = record_of(recorded, "bench", "tools")
    assert ran == ".venv/bin/python -m bench tools"
    if os.geteuid() == 0:
        assert installed[-1].endswith(" install -y --no-install-recommends ripgrep")
    else:
        assert "sudo apt-get install ripgrep" in said


def test_tests_install_every_program_that_they_run(recorded: Path) -> None:
    for words, wanted in {("test",): {"git", "curl", "ripgrep"}, ("test", "--long"): {"gcc-aarch64-linux-gnu"}}.items():
        ran, said = record_of(recorded, *words)
        if os.geteuid() == 0:
            (installs,) = [line for line in ran if " install -y " in line]
            assert wanted <= set(installs.split())
            assert "dev: installing " in said
            assert wanted <= set(said.partition("dev: installing ")[2].split())
        else:
            assert wanted <= set(said.partition("sudo apt-get install ")[2].split())
        (recorded / "record").unlink()


def test_docs_are_built_strictly_unless_mkdocs_is_told_what_to_do(recorded: Path) -> None:
    ran, said = record_of(recorded, "docs")
    assert ran[-1] == ".venv/bin/python -m mkdocs build --strict --quiet"
    assert "site/index.html" in said
    assert record_of(recorded, "docs", "serve")[0][-1] == ".venv/bin/python -m mkdocs serve"


def test_tests_run_two_at_once_and_named_ones_alone_and_coverage_only_when_asked_for(recorded: Path) -> None:
    assert record_of(recorded, "test")[0][-1] == ".venv/bin/python -m pytest -n 4"
    assert record_of(recorded, "test", "--cover")[0][-1] == ".venv/bin/python -m pytest -n 4 --cov=handrail"
    assert record_of(recorded, "test", "--cover", "a.py")[0][-1] == ".venv/bin/python -m pytest --cov=handrail a.py"


# Progress

UV = """#!/bin/sh
case "$1 $2" in
"venv "*)
    mkdir -p .venv/bin
    echo '#!/bin/sh
        case "$*" in *hatchling* | "-m pip install"*) echo unreachable; exit 1;; esac' > .venv/bin/python
    echo '#!/bin/sh
        echo demo' > .venv/bin/handrail
    chmod +x .venv/bin/*;;
"pip install")
    echo "Downloading large (10MiB)"
    while [ ! -e go-on ]; do sleep 0.1; done
    exit $(cat go-on);;
esac
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A project that is not set up yet, beside a uv that installs nothing, and only when the file `go-on` is there."""
    shutil.copy(ROOT / "dev.py", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(UV)
    (tmp_path / "bin" / "uv").chmod(0o755)
    return tmp_path


def test_in_a_terminal_the_first_run_shows_what_it_does_and_for_how_long(slow: Path) -> None:
    master, slave = pty.openpty()
    env = {**os.environ, "PATH": f"{slow / 'bin'}:{SYSTEM}", "COLUMNS": "70"}
    argv = [sys.executable, "dev.py", "demo"]
    seen = b""
    with subprocess.Popen(argv, cwd=slow, env=env, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        try:
            while len(set(re.findall(rb"2/3 installing the build tools \S+ (\d+) s \S+ Downloading", seen))) < 3:
                seen += os.read(master, 4096)
            (slow / "go-on").write_text("0")
            with suppress(OSError):  # the other side is closed
                while data := os.read(master, 4096):
                    seen += data
        finally:
            process.kill()
    os.close(master)
    screen = seen.decode().replace("\r\n", "\n")
    assert process.returncode == 0, screen
    lines = [line.rpartition("\r")[2].removeprefix("\x1b[K") for line in screen.strip().split("\n")]
    assert [re.sub(r"\(\d+\.\d s\)$", "(T)", line) for line in lines] == [
        f"dev: 1/3 making .venv with Python {platform.python_version()}: done (T)",
        "dev: 2/3 installing the build tools: done (T)",
        "dev: 3/3 installing handrail and its tools: done (T)",
        "demo",
    ]
    assert max(map(len, screen.splitlines())) < 70 + len("\x1b[K")


def test_elsewhere_the_first_run_prints_one_line_for_each_step_that_is_needed(slow: Path) -> None:
    (slow / "go-on").write_text("0")
    first, second = (run(sys.executable, "dev.py", "demo", cwd=slow, PATH=f"{slow / 'bin'}:{SYSTEM}") for _ in range(2))
    assert first.stdout.splitlines() == [
        f"dev: 1/3 making .venv with Python {platform.python_version()}",
        "dev: 2/3 installing the build tools",
        "dev: 3/3 installing handrail and its tools",
        "demo",
    ]
    assert second.stdout.splitlines() == ["demo"]
    (slow / "pyproject.toml").write_text("# changed")
    (slow / ".venv" / "bin" / "python").write_text("#!/bin/sh\n")  # it has the build tools
    third = run(sys.executable, "dev.py", "demo", cwd=slow, PATH=f"{slow / 'bin'}:{SYSTEM}")
    assert third.stdout.splitlines() == ["dev: 1/1 installing handrail and its tools", "demo"]


def test_where_nothing_can_be_installed_the_last_line_says_what_is_needed(slow: Path) -> None:
    (slow / "go-on").write_text("1")
    done = run(sys.executable, "dev.py", "demo", cwd=slow, PATH=f"{slow / 'bin'}:{SYSTEM}")
    assert done.returncode == 1
    assert "uv could not do it, so pip tries:\nDownloading large" in done.stdout
    unreachable, *_, last = done.stderr.splitlines()
    assert unreachable == "unreachable", "what pip printed"
    assert last.startswith("dev: installing the build tools failed. The first run needs a package index")
    assert not (slow / ".venv" / "installed").exists()


SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
VERSIONS = "import importlib.metadata as m; print(*sorted(f'{d.name}=={d.version}' for d in m.distributions()))"


def searched(installer: str) -> str:
    """A PATH on which there is uv, or none."""
    uv = shutil.which("uv")
    if installer == "pip":
        assert shutil.which("uv", path=SYSTEM) is None, "the control: uv is out of sight"
        return SYSTEM
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    return f"{Path(uv).parent}:{SYSTEM}"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_fresh_copy_sets_itself_up_at_the_pinned_versions_and_again_without_network(
    fresh: Path, installer: str
) -> None:
    path = searched(installer)
    first = run(sys.executable, "dev.py", "demo", "--help", cwd=fresh, PATH=path)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "pip tries" not in first.stdout
    python = fresh / ".venv" / "bin" / "python"
    assert ("uv = " in (fresh / ".venv" / "pyvenv.cfg").read_text()) == (installer == "uv")
    assert run(python, "-m", "pip", "--version", cwd=fresh).returncode == 0
    installed = run(python, "-c", VERSIONS, cwd=fresh).stdout.split()
    pinned = [line.split(" ")[0] for line in (fresh / "constraints.txt").read_text().splitlines()]
    names = {line.split("==")[0].replace("-", "_").lower(): line for line in pinned if "==" in line}
    found = {line.split("==")[0].replace("-", "_").replace(".", "_").lower(): line.split("==")[1] for line in installed}
    assert {"pytest", "ruff", "pydantic"} <= set(found)
    assert {n: v for n, v in found.items() if n in names and v != names[n].split("==")[1]} == {}
    assert set(found) - set(names) <= {"handrail", "pip", "setuptools", "wheel"}

    with (fresh / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    again = run("unshare", "--net", "--map-root-user", sys.executable, "dev.py", "demo", "--help", cwd=fresh, PATH=path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "installing handrail" in again.stdout, "the control: it did install again"


@pytest.mark.parametrize(("code", "found"), [(0, True), (127, False)], ids=["runs", "does-not-run"])
def test_uv_is_used_where_it_runs(tmp_path: Path, code: int, found: bool) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\nexit {code}\n")
    uv.chmod(0o755)
    program = "import runpy, sys; print(runpy.run_path(sys.argv[1])['find_uv']())"
    done = run(sys.executable, "-c", program, ROOT / "dev.py", cwd=tmp_path, PATH=f"{tmp_path}:{SYSTEM}")
    assert done.stdout.strip() == (str(uv) if found else "None"), done.stderr


# Programs for Node


def test_without_node_the_tests_that_need_it_say_so(tmp_path: Path) -> None:
    shutil.copy(ROOT / "dev.py", tmp_path)
    (tmp_path / ".venv").mkdir()
    said = run(
        sys.executable, "-c", "import dev; print(dev.node_modules(*dev.AIMOCK)[1])", cwd=tmp_path, PATH=str(tmp_path)
    )
    assert "need Node" in said.stdout
