"""`handrail chat` in a real terminal: turns, approvals, what runs now, Ctrl-C, jobs, and conversations that go on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from handrail import Message, Success, Turn, Usage
from tests.cli.story import bash, called, chatting, recorded
from tests.cli.terminal import ENV, MAIN, begun, plain, say, terminal

WAIT = "until [ -e go ]; do sleep 0.05; done"


def test_a_turn_shows_the_sandbox_the_calls_the_answer_and_the_tokens(work: Path, home: dict[str, str]) -> None:
    said = Turn("# Title\n\nIt **said** hi.\n\n- one", usage=Usage(1200, 34, cost=0.0123))
    model = recorded(work.parent / "r", ("Say hi", [bash("echo hi; exit 3"), said]))
    with terminal("chat", "--model", model, cwd=work, env=home) as screen:
        begun(screen)
        for word in ("jail: ", "promises enforced", "network none", "policy contained", "ScriptedModel"):
            screen.wait_until(lambda word=word: word in screen.shown.replace("\n", " "), word)
        say(screen, "Say hi")
        screen.wait_shown("1,200 tokens in, 34 out · $0.0123")
        for text in ("• one", "✗ bash echo hi; exit 3 · exit 3 · ", "It said hi."):
            screen.wait_shown(text)
        screen.press_control_d()
        assert screen.end() == 0
    assert "to go on: handrail chat --resume " in screen.shown.replace("\n", " ")
    assert "Traceback" not in screen.seen


@pytest.mark.parametrize(
    ("typed", "made", "told"),
    [
        (["y"], 1, "✓ bash"),
        (["a"], 2, "approval: remember"),
        (["n", "Why not?", "not now"], 0, "not now"),
        (["s"], 0, "skip"),
        (["what", "is not an answer", "y"], 1, "✓ bash"),
    ],
    ids=str,
)
def test_each_answer_to_an_approval(typed: list[str], made: int, told: str, work: Path, home: dict[str, str]) -> None:
    first, *asked_again = typed
    twice = [bash("echo x >> made"), bash("echo x >> made")] if made == 2 else [bash("echo x >> made")]
    with chatting(work, home, "Go", [*twice, "Done with it."], "--mode", "ask") as screen:
        for text in ("s left)", "May bash run?", "always means: bash(echo x >> made)", "time left: "):
            screen.wait_shown(text)
        screen.type(f"{first}\r")
        for question, answer in zip(asked_again[::2], asked_again[1::2], strict=True):
            screen.wait_shown(question)
            screen.type(f"{answer}\r")
        screen.wait_shown("Done with it.")
        screen.wait_shown(told)
    text = (work / "made").read_text() if (work / "made").exists() else ""
    assert text == "x\n" * made


def test_edited_arguments_are_run_and_a_change_is_shown_as_a_difference(work: Path, home: dict[str, str]) -> None:
    (work / "f").write_text("one\ntwo\n")
    editor = work.parent / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/THREE/four/ "$1"\n')
    editor.chmod(0o755)
    change = called(("edit", {"path": "f", "old": "one\ntwo\n", "new": "one\nTHREE\n"}))
    model = recorded(work.parent / "r", ("Go", [called(("read", {"path": "f"})), change, "Done with it."]))
    env = {**home, "EDITOR": str(editor)}
    with terminal("chat", "--model", model, "--mode", "ask", cwd=work, env=env) as screen:
        begun(screen)
        say(screen, "Go")
        for text in ("s left)", "-two", "+THREE"):
            screen.wait_shown(text)
        screen.type("e\r")
        screen.wait_shown("Done with it.")
    assert (work / "f").read_text() == "one\nfour\n"


def test_the_tail_of_a_running_command_is_shown_and_a_message_is_queued(work: Path, home: dict[str, str]) -> None:
    talks = [("Go", [bash(f"echo alpha; {WAIT}"), "First done."]), ("And now?", ["Second done."])]
    model = recorded(work.parent / "r", *talks)
    with terminal("chat", "--model", model, cwd=work, env=home) as screen:
        begun(screen)
        say(screen, "Go")
        screen.wait_shown("| alpha")
        screen.wait_shown("… bash echo alpha")
        for command in ("/resume last", "/model person"):
            say(screen, command)
        screen.wait_until(lambda: screen.shown.count("when it has answered") == 2, "that neither can be had now")
        say(screen, "And now?")
        screen.wait_shown("1 queued")
        (work / "go").touch()
        # the second is drawn while it is written, perhaps before the first is printed above it
        screen.wait_until(lambda: -1 < screen.shown.find("First done.") < screen.shown.find("Second done."), "both")


def test_control_c_once_ends_the_call_and_the_turn_goes_on(work: Path, home: dict[str, str]) -> None:
    with chatting(work, home, "Go", [bash("echo began; sleep 99"), "It was stopped."]) as screen:
        screen.wait_shown("| began")
        screen.press_control_c()
        screen.wait_shown("It was stopped.")
        screen.wait_shown("✗ bash echo began; sleep 99 · cancelled")


def test_control_c_twice_ends_the_turn_and_the_conversation_goes_on(work: Path, home: dict[str, str]) -> None:
    with chatting(work, home, "Go", [bash("echo began; sleep 99"), "Never said."]) as screen:
        screen.wait_shown("| began")
        screen.type("\x03\x03")
        screen.wait_shown("The run ended: cancelled")
        say(screen, "!echo still $((40 + 2))")
        screen.wait_shown("still 42")
        assert "Never said." not in screen.shown


def test_control_c_three_times_ends_the_program_and_loses_nothing(work: Path, home: dict[str, str]) -> None:
    with chatting(work, home, "Go", [bash("echo $$ > pid; echo began; sleep 99"), "Never said."]) as screen:
        screen.wait_shown("| began")
        screen.type("\x03\x03\x03")
        while not screen.ended(0.2):
            screen.press_control_c()  # while it closes everything
        assert screen.end() == 0
    assert "Traceback" not in screen.seen
    shown = plain("sessions", "show", "last", cwd=work, env=home).stdout
    assert "> Go" in shown
    assert "✗ bash" in shown
    assert "The run ended: cancelled" in shown


@pytest.mark.parametrize(("presses", "ends"), [(1, "Understood."), (2, "The run ended: cancelled")])
def test_control_c_at_an_approval_is_no_answer_to_it(presses: int, ends: str, work: Path, home: dict[str, str]) -> None:
    with chatting(work, home, "Go", [bash("touch made"), "Understood."], "--mode", "ask") as screen:
        screen.wait_shown(" left)")
        screen.type("\x03" * presses)
        screen.wait_shown(ends)
        begun(screen)
        screen.wait_shown("✗ bash touch made · cancelled")
        screen.wait_until(lambda: " left)" not in screen.shown, "that nobody is asked any more")
        say(screen, "!echo still $((40 + 2))")
        screen.wait_shown(" left)")
        screen.type("y\r")
        screen.wait_shown("still 42")
    assert not (work / "made").exists()


@pytest.mark.parametrize("often", [False, True], ids=["once", "again and again"])
def test_control_c_in_a_terminal_that_only_prints_lines(often: bool, work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", [bash("touch began; sleep 99"), "It was stopped."]))
    with terminal("chat", "--model", model, cwd=work, env={**home, "TERM": "dumb"}) as screen:
        screen.wait_shown("lists the commands")
        screen.type("Go\r")
        while not (work / "began").exists():
            time.sleep(0.05)
        screen.press_control_c()
        while often and not screen.ended(0.2):  # also while it closes everything
            screen.press_control_c()
        if not often:
            screen.wait_shown("It was stopped.")
            screen.wait_shown("tokens unknown")
            screen.press_control_d()
        assert screen.end() == 0
    assert "to go on: handrail chat --resume" in screen.shown
    assert "Traceback" not in screen.seen
    assert "✗ bash touch began" in plain("sessions", "show", "last", cwd=work, env=home).stdout


def test_a_conversation_goes_on_after_its_program_was_killed(work: Path, home: dict[str, str]) -> None:
    waits = bash("touch began; sleep 99")
    with chatting(work, home, "Go", [waits, "Never said."]) as screen:
        while not (work / "began").exists():
            time.sleep(0.05)
        os.kill(screen.pid, signal.SIGKILL)
        screen.end()
    before = [Message("user", "Go"), Message("assistant", calls=waits.calls), Message("tool", results=(Success(1),))]
    model = recorded(work.parent / "again", ("And?", ["I do not know how it ended."]), before=before)
    (work / "began").unlink()
    with terminal("chat", "--model", model, "--resume", "last", cwd=work, env=home) as screen:
        begun(screen)
        say(screen, "And?")
        screen.wait_shown("I do not know how it ended.")
    assert not (work / "began").exists(), "nothing runs again by itself"
    assert "unknown_outcome" in plain("sessions", "show", "last", "--json", cwd=work, env=home).stdout


def test_the_commands(work: Path, home: dict[str, str]) -> None:
    (work / "f.txt").write_text("content of f\n")
    mentioned = "Read @f.txt\n\nf.txt:\n```\ncontent of f\n\n```"
    talks = [("Go", [bash("sleep 99", background=True), "Started."]), (mentioned, ["I have read it."])]
    model = recorded(work.parent / "r", *talks)
    with terminal("chat", "--model", model, cwd=work, columns=100, env=home) as screen:
        begun(screen)
        say(screen, "Go")
        screen.wait_shown("Started.")
        say(screen, "/jobs")
        screen.wait_shown("job-1  runs  sleep 99")
        say(screen, "/jobs stop job-1")
        screen.wait_shown("job-1  ended, exit")
        say(screen, "Read @f.txt")
        screen.wait_shown("I have read it.")
        for command, told in (
            ("/tools", "read_artifact"),
            ("/sessions", "running"),
            ("/report", "enforced  file_isolation"),
            ("/mode strict", "policy strict"),
            ("/mode opne", "opne"),
            ("/model person", "model person"),
            ("/resume nothing", "there is no session 'nothing'"),
            ("/nonsense", "there is no /nonsense"),
            ("/help", "Alt-Enter"),
        ):
            say(screen, command)
            screen.wait_shown(told)
        screen.type("/exit\r")
        assert screen.end() == 0
    assert "Traceback" not in screen.seen


def test_several_lines_are_one_message_and_history_is_private(work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("one\ntwo", ["Both."]), ("three\nfour", ["Pasted."]))
    with terminal("chat", "--model", model, cwd=work, env=home) as screen:
        begun(screen)
        screen.type("one\x1b\rtwo")
        screen.wait_shown("two")
        screen.type("\r")
        screen.wait_shown("Both.")
        screen.type("\x1b[200~three\nfour\x1b[201~")
        screen.wait_shown("four")
        screen.type("\r")
        screen.wait_shown("Pasted.")
    with terminal("chat", "--model", model, cwd=work, env=home) as screen:
        begun(screen)
        screen.type("\x1b[A")
        screen.wait_shown("three\n  four")
    history = Path(home["HOME"], ".local/state/handrail/chat_history")
    assert (oct(history.stat().st_mode)[-3:], "four" in history.read_text()) == ("600", True)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_person_may_be_the_model(term: str, work: Path, home: dict[str, str]) -> None:
    with terminal("chat", "--model", "person", cwd=work, env={**home, "TERM": term}) as screen:
        screen.wait_shown("lists the commands")
        screen.wait_until(lambda: screen.shown.splitlines()[-1:] == [">"], "the prompt")
        screen.type("Make it\r")
        screen.wait_until(lambda: "\nMake it\n" in screen.shown and screen.shown.endswith("\n>"), "the question")
        screen.type("bash command='touch made'\r")
        screen.wait_until(lambda: '{"ok":true' in screen.shown and screen.shown.endswith("\n>"), "the result")
        screen.type("It is made.\r")
        screen.wait_shown("did not count them\n>")
        screen.press_control_d()
        assert screen.end() == 0
    assert (work / "made").exists()
    assert "It is made." in plain("sessions", "show", "last", cwd=work, env=home).stdout


def test_a_conversation_without_a_word_is_not_kept_and_not_said_to_be(work: Path, home: dict[str, str]) -> None:
    with terminal("chat", "--model", "person", cwd=work, env=home) as screen:
        begun(screen)
        screen.press_control_d()
        assert screen.end() == 0
    assert "--resume" not in screen.shown
    assert "no sessions yet" in plain("sessions", "list", cwd=work, env=home).stderr


def test_resume_in_a_conversation_takes_up_another(work: Path, home: dict[str, str]) -> None:
    first = recorded(work.parent / "r", ("One", ["First answer."]))
    plain("run", "One", "--model", first, cwd=work, env=home)
    before = [Message("user", "One"), Message("assistant", "First answer.")]
    model = recorded(work.parent / "again", ("Two", ["Second answer."]), before=before)
    with terminal("chat", "--model", model, cwd=work, env=home) as screen:
        begun(screen)
        say(screen, "/resume last")
        screen.wait_until(lambda: screen.shown.count("/help lists") == 2, "the other conversation")
        say(screen, "Two")
        screen.wait_shown("Second answer.")


def test_two_chats_on_one_session_are_refused(work: Path, home: dict[str, str]) -> None:
    with chatting(work, home, "One", ["First answer."]) as screen:
        screen.wait_shown("First answer.")
        with terminal("chat", "--model", f"recorded:{work.parent}/r", "--resume", "last", cwd=work, env=home) as second:
            assert second.end() == 2
        assert f"in use by process {screen.pid}" in second.shown.replace("\n", " ")


@pytest.mark.parametrize("columns", [40, 200])
def test_a_narrow_window_a_resize_and_foreign_escape_sequences_break_nothing(
    columns: int, work: Path, home: dict[str, str]
) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\x1b[31mred"
    talk = [bash(f"printf '%s\\n' '{hostile}'; {WAIT}"), f"Saw {hostile}"]
    with chatting(work, home, "Go", talk, columns=columns) as screen:
        screen.wait_shown("| \\x1b]0")
        screen.resize(60)
        (work / "go").touch()
        screen.wait_shown("Saw \\x1b]0")
        screen.press_control_d()
        assert screen.end() == 0
    assert ("\x1b]0;owned" in screen.seen, "\x1b[2J" in screen.seen) == (False, False)
    assert "Traceback" not in screen.seen


@pytest.mark.parametrize(
    "env", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"LC_ALL": "C"}, {"HOME": "/proc/nowhere"}], ids=str
)
def test_plain_terminals_work_too(env: dict[str, str], work: Path, home: dict[str, str]) -> None:
    model = recorded(work.parent / "r", ("Go", [bash("touch made"), "Done é."]))
    with terminal("chat", "--model", model, "--mode", "ask", cwd=work, env={**home, **env}) as screen:
        screen.wait_shown("lists the commands")
        screen.type("Go\r")
        screen.wait_shown("kip?")
        screen.type("y\r")
        screen.wait_shown("Done ")
        screen.wait_shown("tokens unknown")
        screen.press_control_d()
        assert screen.end() == 0
    assert (work / "made").exists()
    assert "Traceback" not in screen.seen


def test_without_a_terminal_or_a_model_it_says_what_to_type(work: Path, home: dict[str, str]) -> None:
    ran = plain("chat", cwd=work, env=home)
    assert (ran.returncode, "handrail run" in ran.stderr) == (2, True)
    with terminal("chat", "--resume", "nosuch", "--model", "person", cwd=work, env=home) as screen:
        assert screen.end() == 2
    assert "there is no session 'nosuch'" in screen.shown
    with terminal("chat", cwd=work, env=home) as screen:
        assert screen.end() == 2
    for word in ("ANTHROPIC_API_KEY", "ollama:", "gguf:", "handrail demo", "person"):
        assert word in screen.shown
    closed = subprocess.run(
        ["sh", "-c", f'exec {sys.executable} -c "{MAIN}" chat <&-'],
        cwd=work,
        env={**ENV, **home},
        capture_output=True,
        check=False,
    )
    assert (closed.returncode, b"Traceback" in closed.stderr) == (2, False)
