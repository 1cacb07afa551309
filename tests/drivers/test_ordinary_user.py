"""Everything that holds for the local drivers as root holds for an ordinary user too: the same tests, run as one."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USER = 61234
SUITE = (
    "test_trees.py", "test_files.py", "test_jail.py", "test_jail_isolation.py", "test_jail_bad_input.py",
    "test_jail_project.py", "test_jail_view.py", "test_selftest.py", "test_guard.py", "test_jail_propagation.py",
    "test_limits.py", "test_limits_crossed.py", "test_cgroup.py",
    "test_closing.py", "test_home.py", "test_jail_project_python.py",
)  # fmt: skip
LESS_CONCERNED = (
    "drivers/test_commands.py",
    "drivers/test_protocol.py",
    "drivers/test_explain.py",
    "sandbox/test_local.py",
)
"""What asks the system for nothing that only root may do; the kit tries the same promises."""
BROKEN = "testing/test_broken.py::test_a_broken_driver_fails_exactly_what_it_names_of_its_promise"
PACKAGES = "venv/lib/python/packages"
"""Where packages find their programs in venv/bin, as they do where they are installed."""
BESIDES = (
    "testing/test_conformance.py",
    f"{BROKEN}[forgets the limit on processes]",  # for root, and for memory too, a cgroup keeps it
    f"{BROKEN}[forgets the limit on memory]",
    f"{BROKEN}[does not watch memory]",
    f"{BROKEN}[lets commands write to /usr]",  # these two let a command do what this user may do
    f"{BROKEN}[runs programs of the workspace beside itself]",
)
LEAVE_OUT = "not hundred_thousand and not slow_reader"
"""What does not depend on who runs it, and takes long."""
PURELIB, SCRIPTS = sysconfig.get_path("purelib"), sysconfig.get_path("scripts")
ENTER = """
set -e
mount --make-rprivate /
mount --bind "$2" "$1/python"
mount --bind "$3" "$1/venv/lib/python/packages"
mount --bind "$4" "$1/venv/bin"
if [ -n "$5" ]; then
    mount -t tmpfs -o mode=755 tmpfs "$5"
    mkdir -p "$2"
    mount --bind "$1/python" "$2"
fi
shift 5
exec setpriv --reuid 61234 --regid 61234 --clear-groups --bounding-set -all --inh-caps -all -- "$@"
"""


def entered(place: Path, base: Path, packages: str = PURELIB, programs: str = SCRIPTS) -> list[str]:
    """How a command is begun as an ordinary user: with the Python of `base`, and these packages and programs."""
    mounted = [str(place), str(base), packages, programs, closed_above(base)]
    return ["unshare", "--mount", "sh", "-c", ENTER, "enter", *mounted]


def missing() -> str | None:
    if os.geteuid() != 0:
        return "these tests already run as an ordinary user; the half that runs as root did not run"
    absent = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    return f"the half that runs as an ordinary user did not run: {', '.join(absent)} missing" if absent else None


def closed_above(path: Path) -> str:
    """The highest directory above `path` that only its owner may enter, or nothing."""
    return next((str(parent) for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), "")


@pytest.fixture
def place() -> Iterator[Path]:
    """A copy that everybody can read, below directories that everybody can enter."""
    place = Path("/var/tmp") / f"handrail-ordinary-{os.getpid()}"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", place)
    for name in ("python", PACKAGES, "venv/bin", "tmp"):
        (place / name).mkdir(parents=True)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", str(place / "tmp")], check=True)
    subprocess.run(["chmod", "-R", "a+rX", str(place)], check=True)
    yield place
    shutil.rmtree(place)


def as_ordinary_user(place: Path, *tests: str) -> int:
    """How many of these tests passed; none may fail."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    command = [
        *entered(place, base), str(base / "bin" / version), "-B", "-m", "pytest",
        "-p", "no:cacheprovider", "--basetemp", str(place / "tmp/pytest"), "-k", LEAVE_OUT,
        *(str(place / "tests" / name) for name in tests),
    ]  # fmt: skip
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": f"{place}/src{os.pathsep}{place}/{PACKAGES}",
        "HOME": str(place / "tmp"),
        "TMPDIR": str(place / "tmp"),
    }
    ran = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed, ran.stdout
    return int(passed[1])


@pytest.mark.timeout(3600)  # a suite of its own, in which each test has its own limit
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_drivers_keep_their_promises_for_an_ordinary_user(place: Path) -> None:
    passed = as_ordinary_user(place, *(f"drivers/{name}" for name in SUITE), *BESIDES)
    assert passed > 400, "the control: they ran"


@pytest.mark.long
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_commands_and_the_sandbox_over_them_are_the_same_for_an_ordinary_user(place: Path) -> None:
    assert as_ordinary_user(place, *LESS_CONCERNED) > 230, "the control: they ran"


@pytest.mark.long
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_each_broken_driver_is_caught_for_an_ordinary_user(place: Path) -> None:
    assert as_ordinary_user(place, BROKEN) > 180, "the control: they ran"
