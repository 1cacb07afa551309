"""`handrail run` does one task, says by its code how it ended, and keeps it in the store of sessions."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import Turn
from handrail.cli._which_model import model_name
from handrail.models.open import DEFAULTS
from tests.cli.story import bash, called, recorded
from tests.cli.terminal import ENV, MAIN, plain, terminal
from tests.models.wire import always, serving, status


def test_the_answer_goes_to_standard_output_and_a_line_for_each_call_to_standard_error(
    work: Path, home: dict[str, str]
) -> None:
    model = recorded(work.parent / "r", ("Say hi", [bash("echo hi; exit 3"), "It **said** hi."]))
    ran = plain("run", "Say hi", "--model", model, cwd=work, env=home)
    assert (ran.returncode, ran.stdout) == (0, "It **said** hi.\n"), ran.stderr
    assert "jail: " in ran.stderr.splitlines()[0]
    assert "network none · policy contained · ScriptedModel" in ran.stderr.splitlines()[0]
    assert "✗ bash echo hi; exit 3 · exit 3 · " in ran.stderr
    assert "tokens unknown" in ran.stderr


def test_what_is_piped_in_is_added_to_the_prompt(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Count\n\none\ntwo", ["2"]))
    ran = plain("run", "Count", "--model", model, cwd=work, env=home, given="one\ntwo\n")
    assert (ran.returncode, ran.stdout) == (0, "2\n"), ran.stderr
    model = recorded(work.parent / "r2", ("one", ["2"]))
    assert plain("run", "--model", model, cwd=work, env=home, given="one\n").stdout == "2\n"
    ran = plain("run", "--model", model, cwd=work, env=home)
    assert (ran.returncode, "there is no task" in ran.stderr) == (2, True)


def test_with_json_every_event_is_a_line(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", [bash("printf 'a\\033[2Jb'"), "Done."]))
    ran = plain("run", "Go", "--json", "--model", model, cwd=work, env=home)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [each["seq"] for each in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("session_started", "run_ended")
    assert events[-1]["data"]["reason"] == "done"
    assert "\x1b" not in ran.stdout


@pytest.mark.parametrize(
    ("answers", "more", "code"),
    [
        (["Done."], (), 0),
        ([], (), 1),
        ([Turn("half", stop="max_tokens")], (), 1),
        ([Turn("no", stop="refused")], (), 1),
        ([Turn("")], (), 1),
        ([called(("ask_user", {"question": "Which one?"}))], (), 3),
        ([bash("true"), "Done."], ("--rounds", "1"), 4),
        ([bash("true"), bash("true"), "Done."], ("--calls", "1"), 4),
        (["Done."], ("--rounds", "0"), 2),
        (["Done."], ("--mode", "opne"), 2),
        (["Done."], ("--resume", "nothing"), 2),
    ],
    ids=str,
)  # fmt: skip
def test_the_exit_code_says_how_it_ended(
    answers: list[Turn | str], more: tuple[str, ...], code: int, work: Path, home: dict[str, str]
) -> None:
    model = recorded(work.parent / "r", ("Go", answers))
    ran = plain("run", "Go", "--model", model, *more, cwd=work, env=home)
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_question_is_the_answer_and_the_next_run_may_answer_it(work: Path, home: dict[str, str]) -> None:
    asked = recorded(work.parent / "r", ("Go", [called(("ask_user", {"question": "Red or blue?"}))]))
    ran = plain("run", "Go", "--model", asked, cwd=work, env=home)
    assert "Red or blue?" in ran.stdout
    assert "handrail run --resume " in ran.stderr


def test_control_c_ends_the_run_and_what_it_started(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", [bash("echo $$ > pid; touch began; sleep 99"), "Done."]))
    command = [sys.executable, "-c", MAIN, "run", "Go", "--json", "--model", model]
    with subprocess.Popen(
        command, cwd=work, env={**ENV, **home}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line)["type"] == "call_running":
                break
        child.send_signal(signal.SIGINT)
        last = [json.loads(line) for line in child.stdout][-1]
    assert (child.returncode, last["type"], last["data"]["reason"]) == (130, "run_ended", "cancelled")


def test_without_a_model_five_lines_say_how_to_get_one(work: Path, home: dict[str, str]) -> None:
    ran = plain("run", "Go", cwd=work, env=home)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 5)
    for word in ("ANTHROPIC_API_KEY", "ollama:", "gguf:", "handrail demo", "person"):
        assert word in ran.stderr
    ran = plain("run", "Go", "--model", "antropic:x", cwd=work, env=home)
    assert (ran.returncode, "did you mean anthropic:x?" in ran.stderr) == (2, True)


def test_a_key_in_the_environment_chooses_the_model_and_is_sent_to_its_provider(
    work: Path, home: dict[str, str]
) -> None:
    with serving(always(status(401))) as wire:
        env = {**home, "OPENAI_API_KEY": "sk-of-a-test", "OPENAI_BASE_URL": f"{wire.url}/v1"}
        ran = plain("run", "Go", cwd=work, env=env)
    assert (ran.returncode, "openai:gpt-5" in ran.stderr.splitlines()[0]) == (1, True), ran.stderr
    assert {seen.body["model"] for seen in wire.seen} == {"gpt-5"}
    assert {seen.headers["authorization"] for seen in wire.seen} == {"Bearer sk-of-a-test"}
    assert "sk-of-a-test" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (["ANTHROPIC_API_KEY"], "anthropic:"),
        (["OPENAI_API_KEY"], "openai:"),
        (["GEMINI_API_KEY"], "google:"),
        (["GOOGLE_API_KEY"], "google:"),
        (["GOOGLE_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"], "anthropic:"),
        (["GOOGLE_API_KEY", "OPENAI_API_KEY"], "openai:"),
    ],
    ids=str,
)
def test_each_key_chooses_a_model_of_its_provider(keys: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in DEFAULTS:
        monkeypatch.setenv(key, "k-1" if key in keys else " ")
    assert model_name(None).startswith(name)
    assert model_name(None, "configured:x") == "configured:x", "the configuration comes first"
    assert model_name("named:x", "configured:x") == "named:x", "and what is named before both"


def test_a_flag_beats_the_configuration_which_beats_a_key(work: Path, home: dict[str, str]) -> None:
    configured = recorded(work.parent / "r", ("Go", ["Configured."]))
    named = recorded(work.parent / "r2", ("Go", ["Named."]))
    place = Path(home["HOME"], ".config/handrail")
    place.mkdir(parents=True)
    (place / "handrail.toml").write_text(f'model = "{configured}"\n')
    env = {**home, **dict.fromkeys(DEFAULTS, "k-1")}
    assert plain("run", "Go", cwd=work, env=env).stdout == "Configured.\n"
    assert plain("run", "Go", "--model", named, cwd=work, env=env).stdout == "Named.\n"


def test_what_nobody_can_approve_is_refused_and_yes_approves_it(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", [bash("touch made"), "Done."]))
    ran = plain("run", "Go", "--model", model, "--mode", "ask", cwd=work, env=home)
    assert ("add --yes" in ran.stderr, (work / "made").exists()) == (True, False)
    plain("run", "Go", "--model", model, "--mode", "ask", "--yes", cwd=work, env=home)
    assert (work / "made").exists()


def test_a_person_at_the_terminal_is_asked(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", [bash("touch made"), "All **done**."]))
    with terminal("run", "Go", "--model", model, "--mode", "ask", cwd=work, env=home) as screen:
        screen.wait_for("kip? ")
        screen.wait_shown("touch made")
        screen.type("y\n")
        assert screen.end() == 0
    assert (work / "made").exists()
    assert "All done." in screen.shown


def test_the_guide_of_the_workspace_is_told_and_a_link_leads_nowhere(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", ["Done."]))
    (work / "AGENTS.md").write_text("Use tabs.\n")
    ran = plain("run", "Go", "--json", "--model", model, cwd=work, env=home)
    assert "Use tabs." in json.loads(ran.stdout.splitlines()[0])["data"]["system"]
    (work.parent / "secret").write_text("SECRET")
    (work / "AGENTS.md").unlink()
    (work / "AGENTS.md").symlink_to(work.parent / "secret")
    ran = plain("run", "Go", "--json", "--model", model, cwd=work, env=home)
    assert (ran.returncode, "SECRET" in ran.stdout) == (0, False), ran.stderr


@pytest.mark.parametrize("env", [{"HOME": "/proc/nowhere"}, {"HOME": "/dev/null"}], ids=str)
def test_a_home_that_cannot_be_written_only_keeps_no_session(env: dict[str, str], work: Path) -> None:
    model = recorded(work.parent / "r", ("Go", ["Done."]))
    ran = plain("run", "Go", "--model", model, cwd=work, env=env)
    assert (ran.returncode, ran.stdout, "not kept" in ran.stderr) == (0, "Done.\n", True), ran.stderr


def test_output_into_a_closed_pipe_ends_the_run_quietly(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", [bash("until [ -e go ]; do sleep 0.05; done"), bash("true"), "Done."]))
    command = [sys.executable, "-c", MAIN, "run", "Go", "--json", "--model", model]
    with subprocess.Popen(
        command, cwd=work, env={**ENV, **home}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        (work / "go").touch()
        told = child.stderr.read().decode()
    assert (child.returncode, "Traceback" in told) == (1, False), told


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_plain_terminals_show_it_and_no_escape_sequence_of_others(
    env: dict[str, str], work: Path, home: dict[str, str]
) -> None:
    hostile = "a\x1b]0;title\x07b\x1b[2Jc"
    model = recorded(work.parent / "r", ("Go", [bash(f"printf '%s' '{hostile}'; exit 1"), f"Saw {hostile} é"]))
    with terminal("run", "Go", "--model", model, cwd=work, columns=40, env={**home, **env}) as screen:
        assert screen.end() == 0
    assert ("\x1b]0" in screen.seen, "\x1b[2J" in screen.seen, "Saw a" in screen.shown) == (False, False, True)
    assert max(map(len, screen.lines)) <= 40


@pytest.mark.parametrize(
    ("how", "code", "printed", "told"),
    [
        ("exec HANDRAIL <&-", 0, "Done.\n", "jail: "),
        ("exec HANDRAIL >&-", 0, "", "jail: "),
        ("mkdir x && cd x && rmdir ../x && exec HANDRAIL", 2, "", "handrail: the current directory was removed"),
    ],
)
def test_a_stream_or_a_directory_that_is_gone_is_no_traceback(
    how: str, code: int, printed: str, told: str, work: Path, home: dict[str, str]
) -> None:
    model = recorded(work.parent / "r", ("Go", ["Done."]))
    line = how.replace("HANDRAIL", f"{sys.executable} -c '{MAIN}' run Go --model {model}")
    ran = subprocess.run(["sh", "-c", line], cwd=work, env={**ENV, **home}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, told in ran.stderr) == (code, printed, True), ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Exception" not in ran.stderr


def test_the_store_is_private(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", ["Done."]))
    plain("run", "Go", "--model", model, cwd=work, env=home)
    place = Path(home["HOME"], ".local/state/handrail")
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(place / "sessions.db").st_mode) == 0o600
