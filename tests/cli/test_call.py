"""`handrail call` in a real terminal: approval, live output, Ctrl-C; and without one, where nothing ever waits."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import randbelow
from time import monotonic, sleep
from typing import Any

import pytest
from typer.testing import CliRunner

from handrail.cli._commands import app
from tests.cli.terminal import WIDTHS, Terminal, plain, terminal

DRIVERS = {"jail": ["--driver", "jail"], "host": ["--driver", "host", "--allow-weaker", "--mode", "open"]}


def bash(command: str) -> list[str]:
    return ["call", "bash", json.dumps({"command": command})]


def in_process(*words: str) -> Any:
    """Quicker, where nothing is started."""
    return CliRunner().invoke(app, words)


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
        assert screen.end() == 130
        assert sleeper.gone()
    assert screen.shown.count("STARTED") == 1
    assert "✗ bash · cancelled" in screen.shown
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


@pytest.mark.parametrize("columns", WIDTHS)
def test_output_is_shown_once_as_it_comes_and_then_one_line(columns: int, tmp_path: Path) -> None:
    command = "echo alpha; until [ -e go ]; do sleep 0.05; done; printf omega; exit 3"
    with terminal(*bash(command), cwd=tmp_path, columns=columns) as screen:
        screen.wait_shown("alpha")
        assert "omega" not in screen.shown
        (tmp_path / "go").touch()
        assert screen.end() == 3
    *_, alpha, omega, last = screen.shown.splitlines()
    assert (alpha, omega) == ("alpha", "omega")
    assert last.startswith("✗ bash · exit 3 · ")
    assert screen.seen.count("alpha") == screen.seen.count("omega") == 1
    assert '"ok"' not in screen.seen


def test_what_a_command_prints_cannot_command_the_terminal(tmp_path: Path) -> None:
    command = r"printf 'a\033[2J\033]0;owned\007b\233c\bd\n10%%\r20%%\r\nend\n'; touch $'f\033[31m'"
    with terminal(*bash(command), cwd=tmp_path) as screen:
        assert screen.end() == 0
    assert "a\\x1b[2J\\x1b]0;owned\\x07b" in screen.shown
    assert "\n10%\n20%\nend\n" in screen.shown
    for words in (["glob", "*"], ["read", "f\x1b[31m"], ["read", "."], ["read", "\x1b[31mgone"], ["\x1b[2Jtool"]):
        with terminal("call", *words, cwd=tmp_path, env={"NO_COLOR": "1", "TERM": "dumb"}) as screen:
            screen.end()
        assert "\x1b" not in screen.seen, words
        assert "\x9b" not in screen.seen


def test_a_return_before_a_line_feed_is_not_shown_and_a_lone_one_is(tmp_path: Path) -> None:
    (tmp_path / "dos").write_bytes(b"one\r\ntwo\rthree\r\n")
    calls = (["read", "dos"], ["edit", "path=dos", "old=one", "new=ONE"], ["grep", "two"])
    for words in calls:
        with terminal("call", *words, cwd=tmp_path) as screen:
            assert screen.end() == 0
        assert "two\\x0dthree" in screen.shown, "the control"
        assert screen.shown.count("\\x0d") == 1, words
    assert (tmp_path / "dos").read_bytes() == b"ONE\r\ntwo\rthree\r\n"


def test_json_in_a_terminal_cannot_command_it_either(tmp_path: Path) -> None:
    with terminal(*bash(r"printf '\302\233 2J \342\200\256 x'"), "--json", cwd=tmp_path) as screen:
        assert screen.end() == 0
    envelope = json.loads(screen.seen[screen.seen.index("{\n") :])
    assert envelope["result"]["stdout"] == "\x9b 2J \u202e x"
    assert not {"\x9b", "\u202e"} & set(screen.seen)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["bash", "exit 7"], 7),
        (["bash", "kill -9 $$"], 137),
        (["bash", "true"], 0),
        (["bash", "sleep 30", "timeout=1"], 124),
        (["run_code", "import sys; sys.exit(5)"], 5),
        (["bash", "--mode", "ask", "true"], 125),
        (["bash", "cwd=nowhere", "true"], 125),
        (["bash"], 125),
        (["nothing"], 125),
        (["read", "nowhere"], 1),
        (["read", "."], 0),
        (["read", "x", "y"], 125),
        (["read", ".", "--mode", "silly"], 125),
        (["read", ".", "--nonsense"], 125),
        (["read", ".", "--driver", "host"], 125),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_exit_code_is_the_commands_own_or_says_what_happened(words: list[str], code: int, tmp_path: Path) -> None:
    assert plain("call", *words, cwd=tmp_path).returncode == code


@pytest.mark.parametrize(
    ("words", "stdout"),
    [
        (["bash", "echo hi"], "hi\n"),
        (["bash", 'command=echo "a  b"'], "a  b\n"),
        (["bash", "FOO=bar; echo $FOO"], "bar\n"),
        (["bash", "{ echo group; }"], "group\n"),
        (["bash", '{"command": "echo json"}'], "json\n"),
        (["bash", "cwd=sub", "pwd | sed s,.*/,,"], "sub\n"),
        (["bash", "--", "-x"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_arguments_are_fields_json_or_one_text(words: list[str], stdout: str | None, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    ran = plain("call", *words, cwd=tmp_path)
    assert json.loads(ran.stdout)["ok"], ran.stderr
    assert stdout is None or json.loads(ran.stdout)["result"]["stdout"] == stdout


def test_a_field_may_come_from_a_file_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes("näme\r\n'x'\n".encode())
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert plain("call", "write", "path=made", "content=@given", cwd=tmp_path).returncode == 0
    assert (tmp_path / "made").read_bytes() == (tmp_path / "given").read_bytes()
    assert plain("call", "write", "path=at", "content=@@given", cwd=tmp_path).returncode == 0
    assert (tmp_path / "at").read_text() == "@given"
    assert plain("call", "write", "path=in", "content=@-", cwd=tmp_path, given="typed").returncode == 0
    assert (tmp_path / "in").read_text() == "typed"
    for name, said in (("nowhere", "No such file"), ("binary", "not UTF-8")):
        ran = plain("call", "write", "path=no", f"content=@{name}", cwd=tmp_path)
        assert (ran.returncode, ran.stderr.count("\n")) == (125, 1)
        assert said in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["read", "pth=x"], "did you mean path=?"),
        (["bash", "comand=ls"], "did you mean command=?"),
        (["bash", "echo", "hi"], "'echo hi'"),
        (["write", "text"], "name=value"),
        (["write", "x=1"], "it has path, content, overwrite"),
        (["bash", "command=a", "command=b"], "given twice"),
        (["read", "{}", "--mode", "silly"], "contained, ask, strict, open"),
        (["read", "{}", "--driver", "nope"], "auto"),
        (["read", "{}", "--driver", "host"], "--allow-weaker"),
        (["read", "{}", "--network", "wifi"], "none or full"),
        (["read", "{}", "--workspace", "/nowhere\x1b[2J"], "workspace"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_there_is(words: list[str], said: str) -> None:
    ran = in_process("call", *words)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (125, "", 1)
    assert said in ran.stderr
    assert "\x1b" not in ran.stderr


@pytest.mark.parametrize(("words", "said"), [(["--schema", "nope"], "anthropic"), (["--profile", "nope"], "coding")])
def test_a_mistake_about_the_tools_is_one_line_too(words: list[str], said: str) -> None:
    ran = in_process("tools", *words)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert said in ran.stderr


@pytest.mark.parametrize("words", [["--network", "full"], ["--mode", "ask"]])
def test_without_a_terminal_a_call_that_needs_approval_names_the_way_out(words: list[str], tmp_path: Path) -> None:
    denied = plain(*bash("touch made"), *words, cwd=tmp_path)
    assert (denied.returncode, json.loads(denied.stdout)["kind"]) == (125, "rejected")
    assert "--yes" in denied.stderr
    assert "--mode open" in denied.stderr
    assert not (tmp_path / "made").exists()
    for way in (["--yes"], ["--mode", "open"]):
        agreed = plain(*bash("touch made"), *words, *way, cwd=tmp_path)
        assert (agreed.returncode, (tmp_path / "made").exists()) == (0, True)
        (tmp_path / "made").unlink()


def test_without_a_terminal_no_question_waits(tmp_path: Path) -> None:
    asked = plain("call", "ask_user", '{"question": "Which?"}', cwd=tmp_path)
    assert (asked.returncode, json.loads(asked.stdout)["kind"]) == (125, "unavailable")


@pytest.mark.parametrize("words", [["--workspace", "/nowhere"], ["--mount", "nowhere"]], ids=lambda words: words[0])
def test_a_path_that_is_not_there_is_told_without_the_numbers_of_errors(words: list[str], tmp_path: Path) -> None:
    told = plain(*bash("true"), *words, cwd=tmp_path)
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (125, "", 1)
    assert "nowhere'" in told.stderr
    assert "Errno" not in told.stderr


def test_the_envelope_goes_to_standard_output_alone(tmp_path: Path) -> None:
    ran = plain("call", "bash", "-", cwd=tmp_path, given='{"command": "echo out; echo err >&2; exit 3"}')
    assert json.loads(ran.stdout)["result"]["exit_code"] == 3
    assert (ran.returncode, sorted(ran.stderr.splitlines())) == (3, ["err", "out"])


def test_a_note_about_something_weaker_is_printed(tmp_path: Path) -> None:
    ran = plain("call", "read", ".", "--driver", "host", "--allow-weaker", cwd=tmp_path)
    assert "note: No isolation: commands run as this user, on this machine.\n" in ran.stderr
    assert "cpu time" not in ran.stderr


def test_what_holds_in_every_jail_is_printed_on_request_alone(tmp_path: Path) -> None:
    assert plain("call", "read", ".", cwd=tmp_path).stderr == ""
    asked = plain("call", "read", ".", "--verbose", cwd=tmp_path)
    assert "note: Commands of one sandbox share its loopback" in asked.stderr
    assert "note: The limit on cpu time counts each process" in asked.stderr


def test_a_background_job_is_said_to_end_with_a_single_call(sleeper: Sleeper, tmp_path: Path) -> None:
    ran = plain("call", "bash", "background=true", f"sleep {sleeper.seconds}", cwd=tmp_path)
    assert (ran.returncode, json.loads(ran.stdout)["result"]["job"]) == (0, "job-1")
    assert "job-1 ends now" in ran.stderr
    assert "handrail shell" in ran.stderr


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX"}], ids=str)
def test_an_ascii_terminal_gets_ascii_and_loses_nothing(env: dict[str, str], tmp_path: Path) -> None:
    with terminal(*bash("printf 'na\u00efve\\n'; exit 1"), "--mode", "ask", cwd=tmp_path, env=env) as screen:
        screen.wait_for("kip? ")
        screen.type("y\n")
        assert screen.end() == 1
    assert screen.seen.isascii()
    assert "na\\xefve" in screen.seen
    assert "\nx bash - exit 1 - " in screen.shown


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}], ids=str)
def test_an_envelope_in_ascii_loses_nothing(env: dict[str, str], tmp_path: Path) -> None:
    ran = plain(*bash("printf 'na\u00efve \\360\\237'"), cwd=tmp_path, env=env)
    assert ran.stdout.isascii()
    assert json.loads(ran.stdout)["result"]["stdout"] == "naïve \ufffd"


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}], ids=str)
def test_no_color_and_dumb_terminals_are_respected(env: dict[str, str], tmp_path: Path) -> None:
    with terminal(*bash("exit 1"), "--mode", "ask", cwd=tmp_path, env=env, columns=40) as screen:
        screen.wait_for("kip? ")
        screen.type("y\n")
        screen.end()
    assert ("\x1b[3" in screen.seen) == (env == {}), "colours, and the control"
    if env.get("TERM") == "dumb":
        assert "\x1b" not in screen.seen
    assert max(len(line) for line in screen.seen.splitlines() if "\x1b" not in line) <= 40


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
