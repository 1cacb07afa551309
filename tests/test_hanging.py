"""A test that hangs ends its process with every stack, and the run is red."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
PLANTED = """
import anyio, pytest

@pytest.mark.anyio
async def test_that_cannot_be_cancelled():
    while True:
        try:
            await anyio.sleep(1)
        except BaseException:
            pass

def test_that_passes():
    pass
"""


def run(tmp_path: Path, name: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_planted.py").write_text(PLANTED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "1", "--timeout-method", "signal"]
    return subprocess.run(
        [*words, *options, f"test_planted.py::{name}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_hung_async_test_ends_its_worker_with_a_stack_dump(tmp_path: Path, options: tuple[str, ...]) -> None:
    ran = run(tmp_path, "test_that_cannot_be_cancelled", *options)
    assert ran.returncode == 1
    assert "most recent call first" in ran.stderr
    assert not options or "crashed" in ran.stdout


def test_a_test_that_ends_is_not_ended(tmp_path: Path) -> None:
    ran = run(tmp_path, "test_that_passes")
    assert (ran.returncode, ran.stderr) == (0, "")
