"""`handrail call` in a real terminal: approval, live output, Ctrl-C; and without one, where nothing ever waits."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import randbelow
from time import monotonic, sleep
from typing import Any

import pytest
from typer.testing import CliRunner

from handrail.cli._app import app
from handrail.drivers.guard.build import build, stale
from tests.cli.terminal import ENV, MAIN, Terminal, terminal

DRIVERS = {"jail": ["--driver", "jail"], "host": ["--driver", "host", "--allow-weaker", "--mode", "open"]}


@pytest.fixture(scope="session", autouse=True)
def _guard() -> None:
    if stale():
        build()


def bash(command: str) -> list[str]:
    return ["call", "bash", json.dumps({"command": command})]


def in_process(*words: str) -> Any:
    """Quicker, where nothing is started."""
    return CliRunner().invoke(app, words)


def plain(*words: str, cwd: Path, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Without a terminal."""
    command = [sys.executable, "-c", MAIN, *words]
    return subprocess.run(
        command, cwd=cwd, env=ENV, input=given, capture_output=True, text=True, timeout=60, check=False
    )


def envelope(shown: str) -> Any:
    return json.loads(shown[shown.index("{\n") :])


class Sleeper:
    """A program that can be found again: it sleeps for a number of seconds that nobody else would think of."""

    def __init__(self) -> None:
        self.seconds = str(10**8 + randbelow(10**8))

    def running(self) -> int:
        return sum(self._is_one(process) for process in os.listdir("/proc") if process.isdigit())

    def _is_one(self, process: str) -> bool:
        try:
            return Path("/proc", process, "cmdline").read_bytes() == f"sleep\0{self.seconds}\0".encode()
        except OSError:
            return False

    def gone(self) -> bool:
        end = monotonic() + 60
        while self.running() and monotonic() < end:
            sleep(0.02)
        return not self.running()


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    made = Sleeper()
    yield made
    assert made.gone()


def wait_for_two(screen: Terminal, sleeper: Sleeper) -> None:
    screen.wait_for("STARTED")
    end = monotonic() + 60
    while sleeper.running() < 2 and monotonic() < end:
        sleep(0.02)
    assert sleeper.running() == 2, "the control: the whole tree ran"


@pytest.mark.parametrize("driver", DRIVERS)
def test_control_c_ends_the_whole_tree_and_shows_what_was_printed(
    driver: str, sleeper: Sleeper, tmp_path: Path
) -> None:
    command = f"setsid sleep {sleeper.seconds} & echo STARTED; sleep {sleeper.seconds}"
    with terminal(*bash(command), *DRIVERS[driver], cwd=tmp_path) as screen:
        wait_for_two(screen, sleeper)
        screen.press_control_c()
        assert screen.end() == 1
        assert sleeper.gone()
        failed = envelope(screen.seen)
    assert (failed["kind"], failed["data"]["killed_by"], failed["data"]["stdout"]) == ("cancelled", "user", "STARTED\n")
    assert "Traceback" not in screen.seen


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_second_control_c_waits_for_nothing(driver: str, sleeper: Sleeper, tmp_path: Path) -> None:
    deaf = (
        f"trap '' TERM; setsid sleep {sleeper.seconds} & sleep {sleeper.seconds} & echo STARTED; while :; do wait; done"
    )
    with terminal(*bash(deaf), *DRIVERS[driver], cwd=tmp_path) as screen:
        wait_for_two(screen, sleeper)
        screen.press_control_c()
        sleep(0.3)
        screen.press_control_c()
        assert screen.end() == 130
        assert sleeper.gone()
    assert "Traceback" not in screen.seen


def test_killing_the_command_line_itself_leaves_nothing_running(sleeper: Sleeper, tmp_path: Path) -> None:
    command = f"setsid sleep {sleeper.seconds} & echo STARTED; sleep {sleeper.seconds}"
    with terminal(*bash(command), cwd=tmp_path) as screen:
        wait_for_two(screen, sleeper)
        os.kill(screen.pid, 9)
        assert sleeper.gone()


def test_output_is_shown_while_the_command_runs_and_cannot_move_the_cursor(tmp_path: Path) -> None:
    command = r"printf 'first \033[2Jx\n'; until [ -e go ]; do sleep 0.05; done; echo second"
    with terminal(*bash(command), cwd=tmp_path) as screen:
        shown = screen.wait_for("first")
        assert '"ok"' not in shown
        (tmp_path / "go").touch()
        assert screen.end() == 0
        assert "\x1b[2J" not in screen.seen
        assert envelope(screen.seen)["result"]["stdout"] == "first \x1b[2Jx\nsecond\n"


@pytest.mark.parametrize(
    ("typed", "code", "made"),
    [
        ("y\n", 0, "one"),
        ("a\n", 0, "one"),
        ("what?\ny\n", 0, "one"),
        ("n\nnot today\n", 1, None),
        ("s\n", 1, None),
        ("\n", 1, None),
    ],
)
def test_a_person_is_asked_in_the_terminal(typed: str, code: int, made: str | None, tmp_path: Path) -> None:
    with terminal(*bash("printf one > made"), "--mode", "ask", cwd=tmp_path) as screen:
        asked = screen.wait_for("kip? ")
        assert "printf one > made" in asked
        assert "always means" in asked
        assert not (tmp_path / "made").exists()
        screen.type(typed)
        assert screen.end() == code
        result = envelope(screen.seen)
    assert (tmp_path / "made").exists() == (made is not None)
    assert result["ok"] or result["kind"] == "user_denied"
    assert ("not today" in result.get("message", "")) == ("today" in typed)


def test_a_person_may_change_the_call(tmp_path: Path) -> None:
    with terminal(*bash("printf one > made"), "--mode", "ask", cwd=tmp_path) as screen:
        screen.wait_for("kip? ")
        screen.type("e\n")
        screen.wait_for("as JSON: ")
        screen.type('{"command": "printf two > made"}\n')
        assert screen.end() == 0
    assert (tmp_path / "made").read_text() == "two"


def test_control_c_at_the_question_means_no(tmp_path: Path) -> None:
    with terminal(*bash("printf one > made"), "--mode", "ask", cwd=tmp_path) as screen:
        screen.wait_for("kip? ")
        screen.press_control_c()
        assert screen.end() == 1
        assert envelope(screen.seen)["kind"] == "cancelled"
    assert not (tmp_path / "made").exists()
    assert "Traceback" not in screen.seen
    assert "Fatal" not in screen.seen


def test_a_question_of_a_tool_is_put_to_the_person(tmp_path: Path) -> None:
    arguments = json.dumps({"question": "Which colour?", "choices": ["red", "blue"]})
    with terminal("call", "ask_user", arguments, cwd=tmp_path) as screen:
        assert "2. blue" in screen.wait_for("\n> ")
        screen.type("2\n")
        assert screen.end() == 0
        assert envelope(screen.seen)["result"] == {"answer": "blue"}


def test_without_a_terminal_nothing_waits(tmp_path: Path) -> None:
    denied = plain(*bash("touch made"), "--mode", "ask", cwd=tmp_path)
    assert (denied.returncode, json.loads(denied.stdout)["kind"]) == (1, "rejected")
    assert "has no approver" in json.loads(denied.stdout)["message"]
    asked = plain("call", "ask_user", '{"question": "Which?"}', cwd=tmp_path)
    assert json.loads(asked.stdout)["kind"] == "unavailable"
    agreed = plain(*bash("touch made"), "--mode", "ask", "--yes", cwd=tmp_path)
    assert (agreed.returncode, (tmp_path / "made").exists()) == (0, True)


def test_the_envelope_goes_to_standard_output_alone(tmp_path: Path) -> None:
    ran = plain("call", "bash", "-", cwd=tmp_path, given='{"command": "echo out; echo err >&2; exit 3"}')
    assert json.loads(ran.stdout)["result"]["exit_code"] == 3
    assert (ran.returncode, sorted(ran.stderr.split())) == (0, ["err", "out"])
    missing = plain("call", "read", '{"path": "nowhere"}', cwd=tmp_path)
    assert (missing.returncode, json.loads(missing.stdout)["kind"]) == (1, "not_found")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call", "read", "{}", "--mode", "silly"], "contained, ask, strict, open"),
        (["call", "read", "{}", "--driver", "nope"], "auto"),
        (["call", "read", "{}", "--driver", "host"], "--allow-weaker"),
        (["call", "read", "{}", "--network", "wifi"], "none or full"),
        (["call", "read", "{}", "--workspace", "/nowhere"], "workspace"),
        (["tools", "--schema", "nope"], "anthropic"),
        (["tools", "--profile", "nope"], "coding"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_that_says_what_there_is(words: list[str], said: str) -> None:
    ran = in_process(*words)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert said in ran.stderr


def test_each_tool_can_be_used_by_hand(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("apple\n")
    calls: dict[str, Any] = {
        "read": {"path": "a.txt"}, "write": {"path": "b.txt", "content": "x"}, "glob": {"pattern": "*"},
        "edit": {"path": "a.txt", "edits": [{"old": "apple", "new": "pear"}]}, "run_code": {"code": "print(1)"},
        "share_artifact": {"path": "a.txt", "content": "x"},
    }  # fmt: skip
    with ThreadPoolExecutor(3) as pool:
        ran = [
            pool.submit(plain, "call", tool, json.dumps(given), "--yes", cwd=tmp_path) for tool, given in calls.items()
        ]
    for each in ran:
        assert each.result().returncode == 0, each.result().stdout + each.result().stderr
    assert (tmp_path / "a.txt").read_text() == "pear\n"
