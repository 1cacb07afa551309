"""A signal ends a command that is still importing, at once and without a traceback; an ignored SIGINT stays ignored."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.cli.terminal import ENV, MAIN, ROOT, terminal

SLOW = "import time\nprint('LOADING', flush=True)\ntime.sleep(600)\n"
IGNORING = (
    "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.execv(sys.executable, sys.argv[1:])"
)
"""A program that starts another one as a shell starts a background job of a script."""
STAGES = {
    "before any command": ("typer", ["call", "bash", "ls"]),
    "before the event loop": ("anyio", ["call", "bash", "ls"]),
    "in the event loop": ("rich", ["call", "bash", "ls"]),
    "the model, in the event loop": ("pydantic_ai", ["run", "Go", "--model", "openai:gpt-5"]),
}


@contextmanager
def started(words: list[str], path: Path, cwd: Path, *, ignoring: bool = False) -> "Iterator[subprocess.Popen[str]]":
    env = {**ENV, "PYTHONPATH": f"{path}:{ENV['PYTHONPATH']}", "HOME": str(cwd), "OPENAI_API_KEY": "none"}
    command = [sys.executable, "-c", MAIN, *words]
    if ignoring:
        command = [sys.executable, "-c", IGNORING, *command]
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=PIPE, stderr=PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_while_it_imports_ends_it_quietly(stage: str, number: signal.Signals, tmp_path: Path) -> None:
    module, words = STAGES[stage]
    fakes, work = tmp_path / "fakes", tmp_path / "work"
    fakes.mkdir()
    work.mkdir()
    (fakes / f"{module}.py").write_text(SLOW)
    with started(words, fakes, work) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "LOADING\n"
        child.send_signal(number)
        said = child.communicate(timeout=100)[1]
    assert child.returncode in (-number, 128 + number), "a shell shows the same code for both"
    assert "Traceback" not in said
    assert "Error" not in said


def test_a_command_that_was_started_with_an_ignored_sigint_goes_on_and_ends_by_term(tmp_path: Path) -> None:
    words = ["call", "bash", "touch began; sleep 1; until test -e go; do sleep 0.1; done; echo went on"]
    with started(words, tmp_path, tmp_path, ignoring=True) as child:
        until_exists(tmp_path / "began", child)
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGINT)
        (tmp_path / "go").touch()
        said, _ = child.communicate(timeout=100)
    assert (child.returncode, "went on" in said) == (0, True)
    for name in ("began", "go"):
        (tmp_path / name).unlink()
    with started(words, tmp_path, tmp_path, ignoring=True) as child:
        until_exists(tmp_path / "began", child)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=100)
    assert child.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_the_same_command_ends_by_an_interrupt_that_is_not_ignored(tmp_path: Path) -> None:
    with started(["call", "bash", "touch began; sleep 600"], tmp_path, tmp_path) as child:
        until_exists(tmp_path / "began", child)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=100)
    assert child.returncode == 130


def test_at_a_terminal_control_c_works_though_it_was_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with terminal("call", "bash", "echo began; sleep 600", cwd=tmp_path, fresh=True) as screen:
            screen.wait_for("began\n")
            screen.type("\x03")
            assert screen.end() == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_suite_works_where_sigint_is_ignored() -> None:
    test = "tests/cli/test_signals.py::test_the_same_command_ends_by_an_interrupt_that_is_not_ignored"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    ran = subprocess.run(
        [sys.executable, "-c", IGNORING, *command], cwd=ROOT, env={**os.environ}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def until_exists(path: Path, child: "subprocess.Popen[str]") -> None:
    while not path.exists():
        assert child.poll() is None, child.communicate()
        signal.sigtimedwait([], 0.05)
