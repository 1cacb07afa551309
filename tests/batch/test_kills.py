"""SIGKILL of a batch loses no line, repeats none, starts no task again that has one, and leaves no jail."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from handrail.batch._ledger import RESULTS, read_results

ROOT = Path(__file__).resolve().parents[2]
KILLS = [20, pytest.param(500, marks=pytest.mark.long)]


def marked(mark: str) -> list[int]:
    """Processes that have this mark in their environment or command line."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                if mark.encode() in (each / "environ").read_bytes() + (each / "cmdline").read_bytes():
                    found.append(int(each.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("kills", KILLS)
def test_killed_again_and_again_a_batch_comes_to_its_end_with_every_line_once(tmp_path: Path, kills: int) -> None:
    out, begun, count, chance = tmp_path / "out", tmp_path / "begun", kills * 3, random.Random(kills)
    begun.touch()
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    argv = [sys.executable, "-m", "tests.batch.kill_program", str(out), str(begun), str(count)]
    env = {**os.environ, "TMPDIR": str(scratch), "HANDRAIL_TEST": str(tmp_path)}
    lines: list[bytes] = []
    killed = 0
    for _ in range(kills * 20):
        before, known = len(begun.read_text().split()), {done.id for done in read_results(out)} if lines else set()
        running = subprocess.Popen(argv, cwd=ROOT, env=env)
        try:  # at some moment after it has begun a task
            while running.poll() is None and len(begun.read_text().split()) == before:
                time.sleep(0.005)
            running.wait(chance.uniform(0, 0.15) if killed < kills else 60)
        except subprocess.TimeoutExpired:
            running.kill()
            killed += 1
        code = running.wait()
        now = (out / RESULTS).read_bytes().splitlines(keepends=True)
        assert now[: len(lines)] == lines, "a line was lost or changed"
        lines = [line for line in now if line.endswith(b"\n")]
        assert not known & set(begun.read_text().split()[before:]), "a task with a line was started again"
        if code == 0:
            break
    assert code == 0
    assert killed >= min(kills, 15)
    results = read_results(out)
    assert len(lines) == len(results) == count
    assert {done.reward for done in results} == {1.0}
    end = time.monotonic() + 20
    while (left := marked(str(tmp_path))) and time.monotonic() < end:
        time.sleep(0.1)
    assert left == []
    assert [each.name for each in scratch.iterdir() if each.name.startswith("handrail-")] == []
