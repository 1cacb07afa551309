"""A person approves calls in a real terminal: every answer, their own editor, and no answer at all."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.terminal import WIDTHS, Terminal, terminal

ASK = ["call", "bash", "printf one > made", "--mode", "ask"]


def editor(directory: Path, *bodies: str) -> dict[str, str]:
    """An editor: its first use runs the first body, its second the second; `$1` is the file."""
    for number, body in enumerate(bodies):
        (directory / f"body{number}").write_text(body)
    program = directory / "an editor"
    program.write_text(
        f"#!/bin/sh\ncd {directory}\nn=$(cat count 2>/dev/null || echo 0)\necho $((n + 1)) > count\n"
        'cp "$1" "seen$n"\n. ./body$n\n'
    )
    program.chmod(0o755)
    return {"EDITOR": f"'{program}'", "VISUAL": ""}


@pytest.mark.parametrize(
    ("typed", "code", "made"),
    [
        ("y\n", 0, True),
        ("YES\n", 0, True),
        ("n\nnot today\n", 125, False),
        ("n\n\n", 125, False),
        ("s\n", 125, False),
        ("\n", 125, False),
        ("\x04", 125, False),
        ("y\x04\x04", 125, False),
        ("n\n\x04", 125, False),
        ("\x03", 130, False),
    ],
)
def test_a_person_is_asked_in_the_terminal(typed: str, code: int, made: bool, tmp_path: Path) -> None:
    with terminal(*ASK, cwd=tmp_path) as screen:
        screen.wait_for("kip? ")
        screen.wait_shown("printf one > made")
        assert not (tmp_path / "made").exists()
        screen.type(typed)
        assert screen.end() == code
    assert (tmp_path / "made").exists() == made
    assert ("not today" in screen.shown.rpartition("user_denied")[2]) == ("today" in typed)
    assert "Traceback" not in screen.seen
    assert "Fatal" not in screen.seen


def test_a_long_difference_is_cut_in_its_middle_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"old {n}\n" for n in range(300)))
    content = "".join(f"new\t{n}\n" for n in range(300))
    call = ("call", "write", json.dumps({"path": "a.txt", "content": content, "overwrite": True}))
    with terminal(*call, "--mode", "ask", cwd=tmp_path) as screen:
        screen.wait_shown("kip?")
        lines = screen.shown.splitlines()
        screen.type("n\n\n")
        screen.end()
    boxed = [line.strip("│ ") for line in lines if line.startswith("│")]
    about = boxed.index(next(line for line in boxed if line.startswith("why: ")))
    assert about <= 41
    assert any("lines left out" in line for line in boxed)
    assert "-old 0" in boxed
    assert "+new\\t299" in boxed


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_heading_comes_first_and_everything_fits(columns: int, tmp_path: Path) -> None:
    command = "echo " + "word " * 30 + "> made"
    with terminal("call", "bash", command, "--mode", "ask", cwd=tmp_path, columns=columns) as screen:
        screen.wait_shown("kip?")
        lines = screen.shown.splitlines()
        screen.type("y\n")
        assert screen.end() == 0
    heading = next(number for number, line in enumerate(lines) if "May bash run?" in line)
    why = next(number for number, line in enumerate(lines) if "why: " in line)
    assert heading < why < len(lines) - 1
    assert " ".join(lines[-2:]).endswith("[n]o, [s]kip?")
    assert not any(re.search(r"\[\w?$", line) for line in lines), "no choice is broken in two"
    boxed = [line for line in lines if line[:1] in "╭│╰"]
    assert len({len(line) for line in boxed}) == 1, "the frame is whole"
    assert len(boxed[0]) <= min(columns, 100)
    assert "".join(line.strip("│ ") for line in boxed).count("word") == 30


def test_a_single_call_does_not_offer_always(tmp_path: Path) -> None:
    with terminal(*ASK, cwd=tmp_path) as screen:
        asked = screen.wait_for("kip? ")
        assert "lways" not in asked
        screen.type("a\n")
        screen.wait_for("'a' is not an answer; type one of yes, edit, no, skip")
        screen.type("what \x1b[2J?\n")
        screen.wait_until(lambda: screen.seen.count("is not an answer") == 2, "that it is none either")
        screen.type("y\n")
        assert screen.end() == 0
    assert "\x1b[2J" not in screen.seen.replace("what \x1b[2J", "")


def test_what_was_typed_before_the_question_answers_nothing(tmp_path: Path) -> None:
    with terminal(*ASK, cwd=tmp_path) as screen:
        screen.type("y\ny\ny\n")
        screen.wait_for("kip? ")
        assert not (tmp_path / "made").exists()
        screen.type("n\n\n")
        assert screen.end() == 125


def test_edit_opens_the_persons_editor(tmp_path: Path) -> None:
    env = editor(tmp_path, """printf '{"command": "printf two > made"}' > "$1" """)
    with terminal(*ASK, cwd=tmp_path, env=env) as screen:
        screen.wait_for("kip? ")
        screen.type("e\n")
        assert screen.end() == 0
    assert (tmp_path / "made").read_text() == "two"
    assert json.loads((tmp_path / "seen0").read_text()) == {"command": "printf one > made"}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"command": "printf two > made"', "That is not JSON"),
        ('["printf two > made"]', "are an object"),
        ('{"comand": "printf two > made"}', "is missing"),
        ('{"command": "printf one > made"}', "Nothing was changed"),
    ],
)
def test_a_broken_edit_is_asked_about_again_and_loses_nothing(written: str, said: str, tmp_path: Path) -> None:
    env = editor(tmp_path, f"""printf '%s' '{written}' > "$1" """, """printf '{"command": "echo 3 > made"}' > "$1" """)
    with terminal(*ASK, cwd=tmp_path, env=env) as screen:
        screen.wait_for("kip? ")
        screen.type("e\n")
        screen.wait_for(said)
        assert not (tmp_path / "made").exists()
        screen.type("e\n")
        assert screen.end() == 0
    assert (tmp_path / "seen1").read_text() == written
    assert (tmp_path / "made").read_text() == "3\n"


@contextmanager
def edited_in_vain(directory: Path, body: str) -> Iterator[Terminal]:
    """The terminal while an editor is open that changes nothing; then the person says yes, and the call runs."""
    with terminal(*ASK, cwd=directory, env=editor(directory, body)) as screen:
        screen.wait_for("kip? ")
        screen.type("e\n")
        yield screen
        screen.wait_for("Nothing was changed")
        screen.type("y\n")
        assert screen.end() == 0
    assert (directory / "made").read_text() == "one"


def test_an_editor_that_fails_changes_nothing(tmp_path: Path) -> None:
    with edited_in_vain(tmp_path, 'echo broken > "$1"; exit 1'):
        pass
    assert (tmp_path / "seen0").exists(), "the control: it was opened"


def test_control_c_belongs_to_the_editor_while_it_is_open(tmp_path: Path) -> None:
    body = """trap 'echo HEARD' INT; echo OPEN; while [ ! -e go ]; do sleep 0.1; done"""
    with edited_in_vain(tmp_path, body) as screen:
        screen.wait_for("OPEN")
        screen.press_control_c()
        screen.wait_for("HEARD")
        (tmp_path / "go").touch()


def test_without_an_editor_the_arguments_are_typed(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "EDITOR": "/nowhere/editor", "VISUAL": "'"}
    with terminal(*ASK, cwd=tmp_path, env=env) as screen:
        screen.wait_for("kip? ")
        screen.type("e\n")
        screen.wait_for("as JSON: ")
        screen.type('{"command": "printf two > made"}\n')
        assert screen.end() == 0
    assert (tmp_path / "made").read_text() == "two"


def test_waiting_for_the_person_is_not_counted(tmp_path: Path) -> None:
    with edited_in_vain(tmp_path, "sleep 3") as screen:
        pass
    took = re.search(r"bash · exit 0 · (\d+) ms", screen.shown)
    assert took, screen.shown
    assert int(took[1]) < 3_000


def test_a_question_of_a_tool_is_put_to_the_person(tmp_path: Path) -> None:
    arguments = json.dumps({"question": "Which \x1b[2Jcolour?", "choices": ["red", "blue"]})
    with terminal("call", "ask_user", arguments, cwd=tmp_path) as screen:
        assert "2. blue" in screen.wait_for("\n> ")
        screen.type("2\n")
        assert screen.end() == 0
    assert "\nblue\n" in screen.shown
    assert "\x1b[2J" not in screen.seen


def test_control_d_at_a_tools_question_is_no_answer(tmp_path: Path) -> None:
    with terminal("call", "ask_user", "Which?", cwd=tmp_path) as screen:
        screen.wait_for("\n> ")
        screen.press_control_d()
        assert screen.end() == 125
    assert "The user did not answer" in screen.shown


def test_the_demo_shows_its_heading_before_it_asks(tmp_path: Path) -> None:
    def answered(screen: Terminal) -> str:
        screen.wait_for("kip? ")
        screen.type("y\n")
        screen.end()
        return screen.seen

    with terminal("demo", cwd=tmp_path) as screen:
        seen = answered(screen)
    assert 0 < seen.index("People: a call") < seen.index("May publish run?")
