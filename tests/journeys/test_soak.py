"""Nothing stays behind: descriptors, threads, processes, directories and memory are as before."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GROWTH = 24 << 10
"""KiB that the allocator may hold in pieces too small to give back."""


def soak(tmp_path: Path, *size: int) -> dict[str, Any]:
    """In a process and a place for temporary files of its own, so that nobody else is counted."""
    program = [sys.executable, "-m", "tests.journeys.soak", *map(str, size)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    table: dict[str, Any] = json.loads(ran.stdout)
    return table


@pytest.mark.parametrize(
    "size", [(120, 12, 6), pytest.param((20_000, 2_000, 300), marks=pytest.mark.long)], ids=["small", "full"]
)
def test_calls_commands_and_cycles_cancelled_at_random_leave_nothing_behind(
    size: tuple[int, int, int], tmp_path: Path
) -> None:
    table = soak(tmp_path, *size)
    print(json.dumps(table, indent=2))  # the table itself, for whoever runs it with -s
    assert all(table["done"][what] >= count for what, count in zip(("calls", "commands", "cycles"), size, strict=True))
    before, after = table["before"], table["after"]
    kinds = [kind for kind in before if not kind.startswith("memory")]
    assert {kind: after[kind] for kind in kinds} == {kind: before[kind] for kind in kinds}
    assert before["threads"] > 1
    assert after["memory (KiB)"] - before["memory (KiB)"] < GROWTH, table
    assert list(tmp_path.iterdir()) == []
