"""Every example runs as a person would run it, and says what its last lines promise."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def promised(example: Path) -> str:
    """The lines after `# > ` at the end of the file."""
    lines = [line for line in example.read_text().splitlines() if line.startswith("# >")]
    return "".join(f"{line[4:]}\n" for line in lines)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_says_what_it_promises(example: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", example], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    said = "".join(f"{line.rstrip()}\n" for line in ran.stdout.splitlines())
    assert said == promised(example) != ""
