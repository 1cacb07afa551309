"""The example runs as its page says, with its recorded model, through the command line."""

import subprocess
import sys
from pathlib import Path

from handrail.batch._ledger import read_results
from tests.cli.terminal import ENV, MAIN

ROOT = Path(__file__).resolve().parents[2]


def test_the_ten_tasks_of_the_example_run_with_their_recorded_model(tmp_path: Path) -> None:
    model = "recorded:examples/batch/recorded/{id}.jsonl"
    words = ["batch", "examples/batch/tasks.jsonl", "--out", str(tmp_path / "out"), "--model", model]
    env = {**ENV, "HOME": str(tmp_path)}
    argv = [sys.executable, "-c", MAIN, *words]
    ran = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "10/10" in ran.stderr
    assert "solved 90 %" in ran.stderr
    rewards = {done.id: done.reward for done in read_results(tmp_path / "out")}
    assert [id for id, reward in rewards.items() if reward == 0] == ["flatten"]
    assert sum(reward or 0 for reward in rewards.values()) == 9
