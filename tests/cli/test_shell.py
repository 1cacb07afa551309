"""`handrail shell` in a real terminal and without one: one session, one call per line."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.terminal import WIDTHS, Terminal, plain, terminal

PROMPT = "handrail> "


def prompted(screen: Terminal) -> bool:
    """Whether an empty prompt is the last thing on the screen."""
    return screen.shown.splitlines()[-1:] == [PROMPT.strip()]


def entered(screen: Terminal, line: str) -> list[int]:
    """The rows at which this line was typed."""
    head = f"{PROMPT}{line}"[: screen.columns].rstrip()
    return [row for row, text in enumerate(screen.lines) if text.startswith(head)]


def enter(screen: Terminal, line: str) -> str:
    """Type a line, wait for the next prompt, and return what came between them."""
    earlier = len(entered(screen, line))
    screen.type(line + "\r")
    screen.wait_until(lambda: len(entered(screen, line)) > earlier and prompted(screen), f"the prompt after {line!r}")
    return "\n".join(screen.shown.splitlines()[entered(screen, line)[-1] + 1 : -1])


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_line_is_a_call_in_one_session(columns: int, tmp_path: Path, home: dict[str, str]) -> None:
    (tmp_path / "x").write_text("content of x\n")
    with terminal("shell", cwd=tmp_path, columns=columns, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        assert (
            screen.shown.index("Handrail shell") < screen.shown.index("Ctrl-D leaves") < screen.shown.index(PROMPT[:9])
        )
        assert enter(screen, "bash echo 'a  b' | tr a c").startswith("c  b\n✓ bash · exit 0")
        assert enter(screen, "read path=x").startswith("content of x\n✓ read")
        assert enter(screen, "read x limit=1").startswith("content of x\n✓ read")
        assert enter(screen, 'bash {"command": "exit 3"}').startswith("✗ bash · exit 3")
        assert str(tmp_path)[:columns] in enter(screen, '{"name": "bash", "arguments": {"command": "pwd"}}')
        assert "no tool 'ls'" in enter(screen, "ls -la").replace("\n", " ")
        assert "cannot be read" in enter(screen, "read 'x").replace("\n", " ")
        assert "✗ read · not_found" in enter(screen, "read nowhere")
        screen.press_control_d()
        assert screen.end() == 0
    assert "Traceback" not in screen.seen
    assert max(map(len, screen.lines)) <= columns


def test_jobs_artifacts_and_remembered_rules_stay(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", "--mode", "ask", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        screen.type("bash echo x >> made\r")
        assert "always means: bash(echo x >> made)" in screen.wait_for("kip? ")
        screen.type("a\n")
        screen.wait_until(lambda: prompted(screen), "the prompt")
        assert "exit 0" in enter(screen, "bash echo x >> made"), "nobody is asked again"
        assert (tmp_path / "made").read_text() == "x\nx\n"
        screen.type("bash background=true until [ -e go ]; do sleep 0.05; done; echo DONE; exit 6\r")
        screen.wait_until(lambda: screen.shown.count("kip?") == 2, "the question")
        screen.type("y\n")
        screen.wait_until(lambda: prompted(screen), "the prompt")
        assert "job-1  runs  until" in enter(screen, "jobs")
        (tmp_path / "go").touch()
        followed = enter(screen, "tail job-1")
        assert followed.startswith("DONE\n")
        assert followed.count("DONE") == 2, "once as output, once in the command: a job is not shown unasked"
        assert "job-1  ended, exit 6" in followed
        enter(screen, "jobs")
        screen.wait_shown("\njob-1 has ended: exit 6\n")
        screen.type("share_artifact path=made\r")
        screen.wait_until(lambda: "$artifact" in screen.shown or screen.shown.count("kip?") == 3, "the artifact")


def test_leaving_says_which_jobs_end(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        assert "job-1 runs in the background" in enter(screen, "bash background=true sleep 99")
        assert "job-1  runs  sleep 99" in enter(screen, "process poll job=job-1")
        screen.type("exit\r")
        assert screen.end() == 0
    assert "job-1 ends now, with this shell" in screen.shown


def test_control_c_ends_the_running_call_only(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        enter(screen, "bash background=true sleep 99")
        screen.type("bash echo STARTED; sleep 99\r")
        screen.wait_until(lambda: "\nSTARTED" in screen.shown, "STARTED")
        screen.press_control_c()
        screen.wait_until(lambda: prompted(screen), "the prompt")
        screen.wait_shown("✗ bash · cancelled")
        assert "job-1  runs" in enter(screen, "jobs"), "the job goes on"
        screen.type("bash echo half a line")
        screen.wait_shown("half a line")
        screen.press_control_c()
        screen.wait_until(lambda: prompted(screen), "the prompt")
        assert enter(screen, "bash echo next").startswith("next\n")


def test_an_interrupted_question_takes_nothing_from_the_next_line(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", "--mode", "ask", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        screen.type("bash touch made\r")
        screen.wait_for("kip? ")
        screen.press_control_c()
        screen.wait_until(lambda: prompted(screen), "the prompt")
        assert "x\n" not in enter(screen, "read .")
        assert not (tmp_path / "made").exists()


def test_output_is_shown_while_it_comes(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        screen.type("bash echo alpha; until [ -e go ]; do sleep 0.05; done; echo omega\r")
        screen.wait_until(lambda: "\nalpha" in screen.shown, "alpha")
        assert "\nomega" not in screen.shown
        (tmp_path / "go").touch()
        screen.wait_until(lambda: "\nomega" in screen.shown, "omega")


COMPLETED = [
    ("gre\t", "grep"),
    ("todo it\t", "todo items="),
    ("bash back\t", "bash background="),
    ("bash background=t\t", "bash background=true"),
    ("process action=po\t", "process action=poll"),
    ("process po\t", "process poll"),
    ("help ask\t", "help ask_user"),
    ("write path=a content=@unm\t", "write path=a content=@unmistakable.txt"),
    ("tail jo\t", "tail job-1"),
    ("process poll job=jo\t", "process poll job=job-1"),
    ("bash echo back\t", "bash echo back"),
]


def wait_typed(screen: Terminal, text: str) -> None:
    """Wait until the last prompt has this text."""

    def shown() -> bool:
        return [line for line in screen.lines if line.startswith(PROMPT)][-1:] == [f"{PROMPT}{text}"]

    screen.wait_until(shown, f"{PROMPT}{text}")


def test_tab_completes_tools_fields_and_values(tmp_path: Path, home: dict[str, str]) -> None:
    (tmp_path / "unmistakable.txt").touch()
    with terminal("shell", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        enter(screen, "bash background=true sleep 99")
        for typed, becomes in COMPLETED:
            screen.type(typed)
            wait_typed(screen, becomes)
            screen.type("!")  # which comes after the completion
            wait_typed(screen, f"{becomes}!")
            screen.press_control_c()
            screen.wait_until(lambda: prompted(screen), f"the prompt after {typed!r}")


def test_tab_lists_what_there_is_where_there_is_more(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        screen.type("process action=\t")
        for action in ("list", "poll", "wait", "tail", "output", "kill"):
            screen.wait_until(lambda action=action: action in map(str.strip, screen.lines), action)


def test_killing_a_job_is_shown_as_done_and_a_job_that_failed_as_failed(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        enter(screen, "bash background=true sleep 99")
        killed = enter(screen, "process action=kill job=job-1").splitlines()
        assert killed[0].startswith("job-1  ended, exit 1")
        assert killed[1].startswith("✓ process · ")
        assert "exit" not in killed[1]
        assert "\n✗ process · exit 1" in enter(screen, "process action=poll job=job-1"), "the control"


def test_asking_about_jobs_needs_no_approval_and_changing_them_does(tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", "--mode", "ask", cwd=tmp_path, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        assert enter(screen, "process action=list").startswith("no jobs\n✓ process")
        screen.type("process action=kill job=job-1\r")
        screen.wait_shown("May process run?")


def test_the_history_is_kept_in_a_private_file(tmp_path: Path, home: dict[str, str]) -> None:
    for state in ({}, {"XDG_STATE_HOME": str(tmp_path / "state")}):
        with terminal("shell", cwd=tmp_path, env={**home, **state}) as screen:
            screen.wait_shown(PROMPT.strip())
            enter(screen, "bash echo first")
            enter(screen, " bash echo secret")
            screen.press_control_d()
            assert screen.end() == 0
        place = Path(state.get("XDG_STATE_HOME", f"{home['HOME']}/.local/state")) / "handrail"
        assert stat.S_IMODE(os.stat(place / "history").st_mode) == 0o600
        assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
        assert "echo first" in (place / "history").read_text()
        assert "secret" not in (place / "history").read_text()
        with terminal("shell", cwd=tmp_path, env={**home, **state}) as screen:
            screen.wait_shown(PROMPT.strip())
            screen.type("\x1b[A")
            screen.wait_shown("handrail> bash echo first")


@pytest.mark.parametrize("home", ["/proc/nowhere", "/dev/null", ""])
def test_a_home_that_cannot_be_written_breaks_nothing(home: str, tmp_path: Path) -> None:
    with terminal("shell", cwd=tmp_path, env={"HOME": home}) as screen:
        screen.wait_shown(PROMPT.strip())
        assert enter(screen, "bash echo hi").startswith("hi\n")
        screen.type("\x1b[A")
        screen.wait_shown("handrail> bash echo hi")
        screen.press_control_c()
        screen.wait_until(lambda: prompted(screen), "the next prompt: before it is there, a Ctrl-D is lost")
        screen.press_control_d()
        assert screen.end() == 0
    assert "Traceback" not in screen.seen


@pytest.mark.parametrize("columns", WIDTHS)
def test_help_fits_and_names_every_tool_and_field(columns: int, tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", cwd=tmp_path, columns=columns, env=home) as screen:
        screen.wait_shown(PROMPT.strip())
        listed = enter(screen, "help")
        for name in ("bash: ", "read: ", "todo: ", "Ctrl-D"):
            assert name in listed
        assert "idle_timeout=" in enter(screen, "help bash")
        assert "no tool 'nothing'" in enter(screen, "help nothing")
        assert "no jobs" in enter(screen, "jobs")
    assert max(map(len, screen.lines)) <= columns


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"LC_ALL": "C"}], ids=str)
def test_plain_terminals_work_too(env: dict[str, str], tmp_path: Path, home: dict[str, str]) -> None:
    with terminal("shell", cwd=tmp_path, env={**home, **env}) as screen:
        screen.wait_shown(PROMPT.strip())
        assert enter(screen, "bash printf 'h\\303\\257\\n\\033[2J'; exit 2").startswith(
            "h\\xef\n" if "LC_ALL" in env else "hï\n"
        )
        screen.press_control_d()
        assert screen.end() == 0
    assert "\x1b[2J" not in screen.seen
    assert ("\x1b[3" in screen.seen) == ("LC_ALL" in env), "colours, and the control"


def test_piped_lines_are_calls_and_the_exit_code_is_the_last(tmp_path: Path) -> None:
    lines = "# a remark\n\nbash background=true sleep 99\nprocess list\nread nowhere\n"
    ran = plain("shell", cwd=tmp_path, given=f"{lines}bash exit 9")
    envelopes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [each["tool"] for each in envelopes] == ["bash", "process", "read", "bash"]
    assert [each["ok"] for each in envelopes] == [True, True, False, True]
    assert envelopes[1]["result"]["jobs"][0]["running"] is True, "one session"
    assert (ran.returncode, "job-1 ends now" in ran.stderr) == (9, True)
    assert "handrail>" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ("", 0, ""),
        ("bash exit 9\nbash true\n", 0, ""),
        ("nonsense\n", 125, "bash nonsense"),
        ("bash exit 9\n# end\n\n", 9, ""),
        ("bash background=true sleep 99\nprocess action=tail job=job-1\n", 0, "job-1 ends now"),
        ("bash background=true exit 3\nprocess wait job=job-1\n", 3, ""),
        ("bash exit 9\nexit\nbash exit 3\n", 9, ""),
        ("read x y\n", 125, "put it into quotes"),
        ("write path=a content=@-\n", 125, "No such file"),
        ("{\"name\": 3}\n", 125, "a call as JSON is"),
        ("bash \xff\n", 127, ""),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_read_ends_nothing(lines: str, code: int, said: str, tmp_path: Path) -> None:
    ran = plain("shell", cwd=tmp_path, given=lines)
    assert (ran.returncode, said in ran.stderr) == (code, True), ran.stderr
    assert "Traceback" not in ran.stderr


def test_piped_lines_are_never_asked_about(tmp_path: Path) -> None:
    ran = plain("shell", "--mode", "ask", cwd=tmp_path, given="bash touch made\n")
    assert (ran.returncode, "--yes" in ran.stderr, (tmp_path / "made").exists()) == (125, True, False)
    ran = plain("shell", "--mode", "ask", "--yes", cwd=tmp_path, given="bash touch made\n")
    assert (ran.returncode, (tmp_path / "made").exists()) == (0, True)


def test_calls_after_many_others_are_not_refused(tmp_path: Path) -> None:
    ran = plain("shell", cwd=tmp_path, given="read nowhere\n" * 60 + "read .\n")
    kinds = {json.loads(line).get("kind") for line in ran.stdout.splitlines()}
    assert (ran.returncode, kinds) == (0, {"not_found", None}), "each line is a run of its own"
