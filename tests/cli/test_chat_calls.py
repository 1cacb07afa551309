"""What a chat shows of calls: those of scripts and tasks inside theirs, what an approval is about, other servers."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from handrail import Message, Turn
from tests.cli.story import after, bash, called, chatting, recorded, recorded_answers
from tests.cli.terminal import Terminal, begun, plain, say, terminal

WAIT = "until [ -e go ]; do sleep 0.05; done"
RAW = Path(__file__).parents[1] / "mcp" / "raw_server.py"


def test_the_calls_of_scripts_and_tasks_stand_inside_theirs(work: Path, home: dict[str, str]) -> None:
    (work / "f").write_text("content")
    script = called(("script", {"code": "return tools.read(path='f')['text']"}))
    task = called(("task", {"prompt": "Look at f."}))
    inner = called(("bash", {"command": "cat f"}))
    go, look = Message("user", "Go"), Message("user", "Look at f.")
    asked: list[tuple[list[Message], Turn | str]] = [
        ([go], script),
        ([go, *after(script)], task),
        ([look], inner),
        ([look, *after(inner)], "It says content."),
        ([go, *after(script), *after(task)], "All **done**."),
    ]
    model = recorded_answers(work.parent / "r", asked)
    with terminal("chat", "--model", model, cwd=work, env=home) as screen:
        begun(screen)
        say(screen, "Go")
        screen.wait_shown("All done.")
        lines = [line for line in screen.lines if line.lstrip().startswith(("▸", "✓", "✗"))]
    begins = ["  ▸ script return tools", "    ✓ read f · ", "  ✓ script return tools", "  ▸ task Look at f."]
    begins += ["    ✓ bash cat f · ", "  ✓ task Look at f. · "]
    assert [line.startswith(begin) for line, begin in zip(lines, begins, strict=True)] == [True] * 6, lines
    assert screen.shown.count("It says content.") == 1, "as the result of the task, not as an answer"


def question(screen: Terminal) -> str:
    """The last thing that a person was asked, without its frame."""
    return "\n".join(line.strip("│ ") for line in screen.shown.rpartition("May ")[2].splitlines())


def test_an_approval_shows_the_change_the_command_the_repairs_the_rule_and_the_time(
    work: Path, home: dict[str, str]
) -> None:
    (work / "f").write_text("".join(f"line {number}\n" for number in range(20)))
    changed = "".join(f"line {number}\n" for number in range(20) if number != 10) + "more\n"
    edits = [{"old": "line 3\n", "new": "line three\n"}, {"old": "line", "new": "LINE", "replace_all": True}]
    calls = [
        called(("write", {"path": "f", "content": changed, "overwrite": True})),
        called(("write", {"path": "new", "content": "first\nsecond\n"})),
        called(("edit", {"path": "f", "edits": edits})),
        called(("bash", {"command": "echo \u0430 > made", "timeout": "7"})),
    ]
    model = recorded(work.parent / "r", ("Go", [*calls, "Done with it."]))
    with terminal("chat", "--model", model, "--mode", "ask", cwd=work, columns=100, env=home) as screen:
        begun(screen)
        say(screen, "Go")
        told = []
        for number in range(1, 5):

            def asked(number: int = number) -> bool:
                shown = question(screen)
                return screen.shown.count("May ") == number and "time left: " in shown and "s left)" in shown

            screen.wait_until(asked, f"question {number}")
            told.append(question(screen))
            screen.type("y\r")
        screen.wait_shown("Done with it.")
    overwritten, created, edited, ran = told
    assert "-line 10" in overwritten
    assert "+more" in overwritten
    assert "line 5\n" not in overwritten, "what stays is not shown"
    assert "+first\n+second\n" in created
    assert "-line 3\n+line three\n@ 2 of 2, every occurrence\n-line\n+LINE\n" in edited
    assert "path: f" in edited
    for text in ("repaired: timeout: '7' became 7", "U+0430", "why: ", "always means: bash(", "time left: "):
        assert text in ran, ran
    assert (work / "made").exists()
    assert re.search(r"\x1b\[[\d;]+mecho\x1b\[", screen.seen), "the command is highlighted"
    assert "Traceback" not in screen.seen


def servers(home: dict[str, str], **words: list[str]) -> None:
    """Write these servers into the person's own file."""
    place = Path(home["HOME"], ".config/handrail")
    place.mkdir(parents=True)
    lines = (
        f"[mcp.servers.{name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
        for name, (command, *args) in words.items()
    )
    (place / "handrail.toml").write_text("\n".join(lines))


def test_configured_servers_serve_and_one_that_cannot_be_reached_is_left_out(work: Path, home: dict[str, str]) -> None:
    servers(
        home,
        gone=["/no/such\x1bprogram"],
        dead=[sys.executable, str(RAW), "DiesAtOnce"],
        raw=[sys.executable, str(RAW), "ChangesBetweenStarts", str(work.parent)],
    )
    (work.parent / "description").write_text("Say \x1b]0;owned\x07 it.")
    model = recorded(work.parent / "r", ("Go", [called(("raw__echo", {"text": "heard"})), "Done with it."]))
    ran = plain("run", "Go", "--yes", "--json", "--model", model, cwd=work, env=home)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (ran.returncode, events[-1]["data"]["reason"]) == (0, "done"), ran.stderr
    [ended] = [event["data"]["result"] for event in events if event["type"] == "call_ended"]
    assert (ended["ok"], "heard" in str(ended["result"])) == (True, True)
    left = [line for line in ran.stderr.splitlines() if "is left out" in line]
    assert [line.split()[4] for line in left] == ["gone", "dead"], ran.stderr
    assert "no key was given" in left[1], "what it printed"
    assert "\x1b" not in ran.stderr
    with terminal("chat", "--model", model, cwd=work, columns=100, env=home) as screen:
        begun(screen)
        assert "MCP server gone is left out" in screen.shown.replace("\n", " ")
        say(screen, "/tools")
        screen.wait_shown("raw__echo")
        say(screen, "Go")
        screen.wait_shown("May raw__echo run?")
        screen.wait_shown("s left)")
        screen.type("y\r")
        screen.wait_shown("Done with it.")
        screen.wait_shown("✓ raw__echo")
        screen.press_control_d()
        assert screen.end() == 0
    assert "\x1b]0;owned" not in screen.seen
    assert re.search("raw__echo  Say .*owned.* it", screen.shown)


def told(work: Path, home: dict[str, str]) -> list[Any]:
    """What the server was told, in the stored conversation."""
    lines = plain("sessions", "show", "last", "--json", cwd=work, env=home).stdout.splitlines()
    ended = [event["data"]["result"] for event in map(json.loads, lines) if event["type"] == "call_ended"]
    return [json.loads(result["result"]["text"]) for result in ended]


def test_what_a_server_asks_is_shown_and_answered_in_a_chat(work: Path, home: dict[str, str]) -> None:
    servers(home, raw=[sys.executable, str(RAW), "Asks"])
    asks = [called(("raw__echo", {"text": "form"})), called(("raw__echo", {"text": "again"}))]
    model = recorded(work.parent / "r", ("Go", [*asks, "Done with it."]))
    with terminal("chat", "--yes", "--model", model, cwd=work, columns=100, env=home) as screen:
        begun(screen)
        say(screen, "Go")
        screen.wait_shown("Who are you?")
        screen.wait_shown("The MCP server raw asks")
        screen.wait_shown("name (a string; empty: left out)")
        screen.type("Ada\r")
        screen.wait_shown("age (an integer; empty: 30)")
        screen.type("forty\r")
        screen.wait_shown("must be an integer")
        screen.type("41\r")
        screen.wait_until(lambda: screen.shown.count("Who are you?") == 2, "the second question")
        screen.wait_until(lambda: "name (" in screen.shown.rpartition("Who are you?")[2], "its field")
        screen.press_control_d()
        screen.wait_shown("Done with it.")
    accepted, declined = told(work, home)
    assert accepted == {"action": "accept", "content": {"name": "Ada", "age": 41}}
    assert declined["action"] == "decline"


def test_a_run_tells_a_server_that_nobody_can_be_asked(work: Path, home: dict[str, str]) -> None:
    servers(home, raw=[sys.executable, str(RAW), "Asks"])
    model = recorded(work.parent / "r", ("Go", [called(("raw__echo", {"text": "form"})), "Done with it."]))
    ran = plain("run", "Go", "--yes", "--json", "--model", model, cwd=work, env=home)
    ended = [json.loads(line) for line in ran.stdout.splitlines() if '"call_ended"' in line]
    assert [json.loads(each["data"]["result"]["result"]["text"]) for each in ended] == ["nobody"], ran.stderr


def test_a_line_typed_during_a_call_leaves_no_copy_of_what_runs(work: Path, home: dict[str, str]) -> None:
    with chatting(work, home, "Go", [bash(f"echo begun; {WAIT}"), "Done with it."]) as screen:
        screen.wait_shown("… bash echo begun")
        for number in range(3):
            say(screen, f"/nothing{'abc'[number]}")
            screen.wait_shown(f"there is no /nothing{'abc'[number]}")
        (work / "go").touch()
        screen.wait_shown("Done with it.")
        screen.press_control_d()
        assert screen.end() == 0
    assert "… bash" not in screen.shown
    assert "Ctrl-C ends the call" not in screen.shown
    assert screen.lines.count("> /nothinga") == 1


def test_a_long_result_is_shown_in_part_and_opened_by_its_number(work: Path, home: dict[str, str]) -> None:
    content = "".join(f"line {number}\n" for number in range(30))
    with chatting(work, home, "Go", [called(("write", {"path": "a", "content": content})), "Done with it."]) as screen:
        screen.wait_shown("Done with it.")
        screen.wait_shown("… 11 more lines · /show 1")
        assert "+line 29" not in screen.shown
        say(screen, "/show 1")
        screen.wait_shown("+line 29")
        say(screen, "/show 7")
        screen.wait_shown("no call 7 has ended here")


def test_a_question_about_a_write_shows_what_would_change(work: Path, home: dict[str, str]) -> None:
    (work / "f").write_text("one\ntwo\n")
    change = called(("write", {"path": "f", "content": "one\nthree\n"}))
    with chatting(work, home, "Go", [change, "Done with it."], "--mode", "ask") as screen:
        for text in ("May write run?", "-two", "+three"):
            screen.wait_shown(text)
