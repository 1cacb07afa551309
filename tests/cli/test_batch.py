"""`handrail batch`: tasks from a file, results in a directory, a screen, Ctrl-C once and twice, and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from handrail.batch._ledger import RESULTS, read_results
from tests.cli.terminal import ENV, MAIN

PATIENCE = 60.0


def recording(path: Path, *turns: dict[str, Any]) -> None:
    said = {"role": "user", "text": "x", "calls": [], "results": [], "images": []}
    lines: list[dict[str, Any]] = [{"recording": 1, "model": "m"}]
    told: list[dict[str, Any]] = [said]
    for turn in turns:
        whole = {"text": "", "calls": [], "stop": "end", "usage": {"cost": 0.5}, "keep": None, **turn}
        lines.append({"after": 0, "messages": list(told), "pieces": [], "turn": whole})
        results = [{"ok": True, "tool": "", "result": {}}] * len(whole["calls"])
        told.append({**said, "role": "assistant", "text": whole["text"], "calls": whole["calls"]})
        told.append({**said, "role": "tool", "text": "", "results": results})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def place(tmp_path: Path, count: int, seconds: float = 0) -> list[str]:
    """Tasks whose model sleeps for so long and is done. Returns the words of the command."""
    call = {"id": "1", "name": "bash", "arguments": {"command": f"sleep {seconds}"}}
    recording(tmp_path / "r.jsonl", {"calls": [call], "stop": "tool_use"}, {"text": "Done."})
    tasks = [{"id": f"t{n}", "prompt": "x", "check": f"exit {n % 2}"} for n in range(count)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in tasks))
    return ["batch", "tasks.jsonl", "--out", "out", "--model", "recorded:r.jsonl", "--jobs", "2"]


def start(tmp_path: Path, words: list[str]) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    argv = [sys.executable, "-c", MAIN, *words]
    return subprocess.Popen(argv, cwd=tmp_path, env={**ENV, "HOME": str(tmp_path)}, text=True, **streams)  # type: ignore[call-overload, no-any-return]


def run(tmp_path: Path, words: list[str]) -> tuple[int, str, str]:
    running = start(tmp_path, words)
    out, err = running.communicate(timeout=PATIENCE)
    return running.returncode, out, err


def until_begun(tmp_path: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not (tmp_path / "out" / "sessions.db").exists() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(1)


def test_a_batch_is_done_counted_and_resumed(tmp_path: Path) -> None:
    words = place(tmp_path, 4)
    code, _, err = run(tmp_path, words)
    assert code == 0, err
    assert "4/4 · 0 running" in err
    assert "solved 50 %" in err
    assert "$4.00, about $4.00 in all" in err
    assert "mean reward 0.500" in err
    before = (tmp_path / "out" / RESULTS).read_bytes()
    code, out, _ = run(tmp_path, [*words, "--json"])
    assert (code, json.loads(out)["done"]) == (0, 4)
    assert (tmp_path / "out" / RESULTS).read_bytes() == before
    code, out, _ = run(tmp_path, ["sessions", "list", "--store", "out", "--json"])
    assert len(json.loads(out)) == 4


def test_ctrl_c_once_lets_the_running_tasks_finish(tmp_path: Path) -> None:
    running = start(tmp_path, place(tmp_path, 20, seconds=2))
    until_begun(tmp_path)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, err
    assert "those that run finish" in err
    assert 0 < len(read_results(tmp_path / "out")) <= 4


def test_ctrl_c_twice_ends_them_without_a_line(tmp_path: Path) -> None:
    running = start(tmp_path, place(tmp_path, 20, seconds=50))
    until_begun(tmp_path)
    for _ in range(2):
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, err
    assert (tmp_path / "out" / RESULTS).read_bytes() == b""


def test_lost_tasks_are_exit_code_1_with_the_command_that_retries(tmp_path: Path) -> None:
    words = place(tmp_path, 1)
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "prompt": "x", "setup": "echo broken; exit 1"}')
    code, _, err = run(tmp_path, [*words, "--tries", "2"])
    assert code == 1, err
    assert "2 × the setup exited with 1: broken" in err
    assert "handrail batch tasks.jsonl --out out --model recorded:r.jsonl --retry lost" in err
    assert '"reward":null' in (tmp_path / "out" / RESULTS).read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--samples", "0"], "greater than or equal to 1"), (["--tools", "nothing"], "MODULE:FUNCTION"),
        (["--tools", "no_such:thing"], "No module named"), (["--only", "t9"], "there is no task 't9'"),
        (["--model", "person"], "a batch asks nobody"), (["--model", "nonsense"], "not the name of a model"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_a_line(tmp_path: Path, change: list[str], said: str) -> None:
    code, _, err = run(tmp_path, [*place(tmp_path, 1), *change])
    assert code == 2, err
    assert said in err
    assert "Traceback" not in err


def test_a_file_that_is_not_there_is_told_in_a_line(tmp_path: Path) -> None:
    words = place(tmp_path, 1)
    os.unlink(tmp_path / "tasks.jsonl")
    code, _, err = run(tmp_path, words)
    assert (code, "No such file or directory: 'tasks.jsonl'" in err) == (2, True)
