"""The worked example is a package of its own: installed, found by its entry point, and run by the kit."""

import sys
from pathlib import Path

import pytest

from tests.installing import ROOT, make_environment, must, run

EXAMPLE = ROOT / "examples" / "driver"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which the example is installed, beside what the tests use."""
    directory = tmp_path_factory.mktemp("example")
    python = make_environment(directory / "environment")
    packages = next(python.parent.parent.glob("lib/python*/site-packages"))
    here = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "here.pth").write_text("\n".join([*here, str(ROOT / "src")]) + "\n")
    must(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=EXAMPLE)
    (wheel,) = directory.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", wheel]
    must(*pip, cwd=directory)
    return python


def test_a_driver_of_another_package_is_found_by_its_entry_point_and_keeps_what_it_claims(
    python: Path, tmp_path: Path
) -> None:
    features = ("files", "atomic_write", "range_read", "exec", "stdin", "live_output", "env_isolation")
    only = [word for feature in features for word in ("--only", feature)]
    ran = run(python, "-m", "handrail", "conform", "plain", *only, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("claimed and kept") == len(features)


OPEN = """
import anyio
from handrail import HandrailError, Limits, open_sandbox

async def main():
    async with open_sandbox("plain") as sandbox:
        print((await sandbox.run("echo $((6 * 7))")).stdout, sandbox.report.network)
    try:
        async with open_sandbox("plain", limits=Limits(cpu=1.0)):
            pass
    except HandrailError as error:
        print(error)

anyio.run(main)
"""


def test_it_is_opened_by_its_name_and_refuses_only_the_options_that_were_asked_for(
    python: Path, tmp_path: Path
) -> None:
    ran = run(python, "-c", OPEN, cwd=tmp_path)
    assert ran.stdout.splitlines()[:2] == ["42", " full"], ran.stdout + ran.stderr
    assert "the plain driver has no option 'limits'" in ran.stdout


def test_its_own_tests_are_three_lines(python: Path, tmp_path: Path) -> None:
    test = EXAMPLE / "tests" / "test_plain.py"
    ran = run(
        python, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "byte_by_byte", test, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout
