"""A connector's author writes three lines, and has every check of the kit as a test."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THREE_LINES = """
from handrail.testing import driver_conformance
from {module} import {opener}
test_my_driver = driver_conformance({opener}{more})
"""
BROKEN = """
from handrail.drivers.memory import open_memory
from tests.broken import BROKEN
(broken,) = [it for it in BROKEN if it.name == "writes lines as on Unix"]
open_broken = broken.over(open_memory)
"""


def run(directory: Path, *words: str, **values: str) -> tuple[int, dict[str, int], str]:
    """The exit code, how many tests passed, were skipped and failed, and what was printed."""
    values = {"more": "", **values}
    (directory / "test_mine.py").write_text(THREE_LINES.format(**values))
    argv = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist", *words]
    argv += ["-o", f"pythonpath={ROOT}"]  # the broken drivers are in tests/, which is not installed
    ran = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False, timeout=110)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped|failed)", ran.stdout)}
    return ran.returncode, counts, ran.stdout


def test_each_check_is_a_test_and_what_is_not_claimed_is_skipped(tmp_path: Path) -> None:
    memory = {"module": "handrail.drivers.memory", "opener": "open_memory"}
    code, counts, text = run(tmp_path, **memory, more=', only=["range_read", "exec", "tree_kill"]')
    assert code == 0, text
    assert counts["passed"] == 9
    assert counts["skipped"] > 60
    assert "failed" not in counts
    assert "the driver does not claim" in text


def test_a_broken_claim_fails_its_check_alone_and_says_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    chosen = ("-k", "what_is_written_is_read_byte_by_byte or an_empty_file_is_read_as_empty")
    code, counts, text = run(tmp_path, *chosen, module="mine", opener="open_broken")
    assert code == 1
    assert (counts["failed"], counts["passed"]) == (1, 1), text
    assert "files is claimed and broken: what is written is read byte by byte" in text
