"""`handrail sessions` lists, shows, exports, replays, goes on with, branches and removes stored conversations."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from handrail import Message, Store, Success
from tests.cli.story import bash, called, recorded
from tests.cli.terminal import ENV, MAIN, plain, terminal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one stored conversation, and a workspace in it."""
    home = tmp_path_factory.mktemp("home")
    (home / "work").mkdir()
    model = recorded(home / "r", ("Say\x1b[2J hi", [bash("echo hi; touch ran"), "It **said** hi."]))
    ran = plain("run", "Say\x1b[2J hi", "--model", model, cwd=home / "work", env={"HOME": str(home)})
    assert ran.returncode == 0, ran.stderr
    return home


def sessions(place: Path, *words: str) -> str:
    ran = plain("sessions", *words, cwd=place / "work", env={"HOME": str(place)})
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout


def test_the_list_has_a_line_for_each_and_json_for_programs(place: Path) -> None:
    first = sessions(place, "list").splitlines()[0]
    assert "done" in first
    assert "1 calls  ~/work  Say\\x1b[2J hi" in first
    listed = json.loads(sessions(place, "list", "--json"))
    assert (listed[0]["state"], listed[0]["calls"], listed[0]["id"] in first) == ("done", 1, True)


def test_show_tells_the_conversation_and_its_events(place: Path) -> None:
    shown = sessions(place, "show", "last")
    assert shown.index("> Say\\x1b[2J hi") < shown.index("✓ bash echo hi; touch ran") < shown.index("It said hi.")
    events = [json.loads(line)["type"] for line in sessions(place, "show", "last", "--json").splitlines()]
    assert (events[0], events[-1], "call_ended" in events) == ("session_started", "run_ended", True)


def test_replay_shows_the_same_in_its_time_and_runs_nothing(place: Path) -> None:
    (place / "work" / "ran").unlink()
    assert sessions(place, "replay", "last", "--speed", "0") == sessions(place, "show", "last")
    assert not (place / "work" / "ran").exists()
    times = [json.loads(line)["time"] for line in sessions(place, "show", "last", "--json").splitlines()]
    began = time.monotonic()
    sessions(place, "replay", "last", "--speed", "0.5")
    assert time.monotonic() - began >= (times[-1] - times[0]) / 0.5


def test_an_export_is_read_by_another_store_and_a_file_is_not_overwritten(place: Path, tmp_path: Path) -> None:
    lines = sessions(place, "export", "last").splitlines()
    loaded = Store(tmp_path / "other.db")
    assert [event.type for event in loaded.events(loaded.load(lines))][-1] == "run_ended"
    sessions(place, "export", "last", str(tmp_path / "out"))
    assert (tmp_path / "out").read_text().splitlines() == lines
    ran = plain("sessions", "export", "last", str(tmp_path / "out"), cwd=place, env={"HOME": str(place)})
    assert (ran.returncode, "exists already" in ran.stderr) == (2, True)


def test_fork_copies_and_rm_removes(place: Path) -> None:
    before = len(json.loads(sessions(place, "list", "--json")))
    made = [sessions(place, "fork", "last").strip(), sessions(place, "fork", "last", "--at", "3").strip()]
    assert len(json.loads(sessions(place, "list", "--json"))) == before + 2
    assert len(sessions(place, "show", made[1], "--json").splitlines()) < len(
        sessions(place, "show", made[0], "--json").splitlines()
    )
    assert f"removed {made[0]}" in sessions(place, "rm", *made)
    assert len(json.loads(sessions(place, "list", "--json"))) == before


@pytest.mark.parametrize("words", [("show",), ("export",), ("replay",), ("fork",), ("rm",), ("resume", "x")], ids=str)
def test_an_unknown_session_is_told(words: tuple[str, ...], place: Path) -> None:
    command, *more = words
    ran = plain("sessions", command, "nothing", *more, cwd=place / "work", env={"HOME": str(place)})
    assert (ran.returncode, "there is no session 'nothing'; `handrail sessions list`" in ran.stderr) == (2, True)


def test_resume_goes_on_where_it_was(place: Path) -> None:
    told = bash("echo hi; touch ran")
    before = [
        Message("user", "Say\x1b[2J hi"),
        Message("assistant", calls=told.calls),
        Message("tool", results=(Success(None),)),
        Message("assistant", "It **said** hi."),
    ]
    model = recorded(place / "again", ("And?", [called(("read", {"path": "."})), "More."]), before=before)
    copy = sessions(place, "fork", "last").strip()
    ran = plain("sessions", "resume", copy, "And?", "--model", model, cwd=place / "work", env={"HOME": str(place)})
    assert (ran.returncode, ran.stdout) == (0, "More.\n"), ran.stderr
    assert sessions(place, "show", copy).count("\n> ") == 2
    sessions(place, "rm", copy)


def test_a_session_in_use_names_who_has_it(place: Path) -> None:
    model = recorded(place / "busy", ("Wait", [bash("touch began; until [ -e go ]; do sleep 0.05; done"), "Done."]))
    work, env = place / "work", {"HOME": str(place)}
    with terminal("run", "Wait", "--model", model, cwd=work, env=env) as screen:
        screen.wait_for("jail: ")
        while not (work / "began").exists():
            time.sleep(0.05)
        ran = plain("run", "More", "--resume", "last", "--model", model, cwd=work, env=env)
        assert (ran.returncode, f"in use by process {screen.pid}" in ran.stderr) == (2, True), ran.stderr
        (work / "go").touch()
        assert screen.end() == 0
    sessions(place, "rm", "last")


def test_no_sessions_are_no_mistake(tmp_path: Path) -> None:
    ran = plain("sessions", "list", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert (ran.returncode, ran.stdout, "no sessions yet" in ran.stderr) == (0, "", True)
    assert os.listdir(tmp_path) == []


def test_resume_without_a_prompt_is_a_chat(place: Path) -> None:
    copy = sessions(place, "fork", "last").strip()
    model = recorded(place / "unused", ("Never", []))
    words = ("sessions", "resume", copy, "--model", model)
    with terminal(*words, cwd=place / "work", env={"HOME": str(place)}) as screen:
        screen.wait_until(lambda: screen.shown.splitlines()[-1:] == [">"], "the prompt")
        screen.wait_shown("It said hi.")  # what was said before
        screen.press_control_d()
        assert screen.end() == 0
    sessions(place, "rm", copy)


@pytest.mark.parametrize("words", ["list", "show last", "show last --json"])
def test_output_into_a_reader_that_has_gone_is_no_mistake(words: str, place: Path) -> None:
    line = f"{sys.executable} -c '{MAIN}' sessions {words} | true"
    env = {**ENV, "HOME": str(place)}
    ran = subprocess.run(["sh", "-c", line], cwd=place, env=env, capture_output=True, text=True, check=False)
    assert ran.stderr == ""


def checked(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return plain("sessions", "check", *words, cwd=home / "work", env={"HOME": str(home)})


def test_check_finds_no_damage_where_there_is_none(place: Path) -> None:
    for words in ((), ("last",)):
        ran = checked(place, *words)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "  ok  " in ran.stdout
        assert "DAMAGED" not in ran.stdout
    told = json.loads(checked(place, "--json").stdout)
    assert told["file"] == []
    assert {(each["damage"], each["missing"], each["end_mark"]) for each in told["sessions"]} == {("", 0, "fits")}


def test_check_tells_damage_by_its_code_and_what_to_type_works(place: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(place, home)
    (path,) = home.rglob("sessions.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET event = replace(event, 'echo hi', 'echo ho') WHERE key & 4294967295 > 1")
    ran = checked(home)
    assert (ran.returncode, "DAMAGED" in ran.stdout) == (1, True)
    told = json.loads(checked(home, "last", "--json").stdout)["sessions"][0]
    assert told["missing"] > 0
    command = ran.stdout.partition("`handrail sessions ")[2].partition("`")[0].split()
    assert command[:1] == ["fork"]
    for words in (("show", told["id"]), ("export", told["id"], str(tmp_path / "out")), ("fork", told["id"])):
        refused = plain("sessions", *words, cwd=home / "work", env={"HOME": str(home)})
        assert (refused.returncode, "is damaged" in refused.stderr) == (2, True)
    assert not (tmp_path / "out").exists()
    forked = plain("sessions", *command, cwd=home / "work", env={"HOME": str(home)})
    assert (forked.returncode, forked.stderr) == (0, "")
    assert checked(home, forked.stdout.strip()).returncode == 0


def test_check_of_a_file_that_is_no_store_says_so(place: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(place, home)
    (path,) = home.rglob("sessions.db")
    path.write_bytes(b"nothing of the kind" * 1_000)
    ran = checked(home)
    assert (ran.returncode, "is damaged, or is not a store" in ran.stdout) == (1, True)


def test_check_without_sessions_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    ran = checked(tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_store_whose_file_is_gone_is_told(place: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(place, home)
    (file,) = home.rglob("sessions.db")
    for each in file.parent.glob("sessions.db*"):
        if each.is_file():
            each.unlink()
    for words, code in (("list", 0), ("check", 1)):
        ran = plain("sessions", words, cwd=home, env={"HOME": str(home)})
        assert (ran.returncode, "sessions.db is gone" in ran.stdout + ran.stderr) == (code, True), ran.stderr
        assert "no sessions yet" not in ran.stderr
