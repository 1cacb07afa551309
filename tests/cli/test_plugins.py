"""The tools of a plugin can be used wherever the built-in tools can."""

from pathlib import Path

import pytest

from handrail import Call, Turn
from tests.cli.story import recorded
from tests.cli.terminal import ROOT, plain, terminal

MODULE = '''
from handrail import tool

@tool(effects=["reads"])
def look_up(word: str) -> str:
    """Look a word up."""
    return word.upper()
'''
POINTS = "[handrail.tools]\nbroken = words_plugin:missing\nwords = words_plugin:look_up\n"
ANSWER = Turn(calls=(Call("c1", "look_up", {"word": "quiet"}),), stop="tool_use")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which a package with a plugin is installed, beside a broken one."""
    place = tmp_path / "site"
    info = place / "words-1.2.dist-info"
    info.mkdir(parents=True)
    (place / "words_plugin.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: words\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "work").mkdir()
    return {"PYTHONPATH": f"{place}:{ROOT / 'src'}", "HOME": str(tmp_path)}


def test_call_runs_it_and_names_a_broken_plugin(env: dict[str, str], tmp_path: Path) -> None:
    ran = plain("call", "look_up", "word=quiet", cwd=tmp_path / "work", env=env)
    assert (ran.returncode, "QUIET" in ran.stdout) == (0, True), ran.stderr
    assert "the tools of broken (words 1.2) are left out" in ran.stderr
    built_in = plain("call", "bash", "true", cwd=tmp_path / "work", env=env)
    assert "left out" not in built_in.stderr, "no plugin is loaded for it"


def test_shell_runs_it(env: dict[str, str], tmp_path: Path) -> None:
    ran = plain("shell", cwd=tmp_path / "work", env=env, given="look_up word=quiet\n")
    assert (ran.returncode, "QUIET" in ran.stdout) == (0, True), ran.stderr


def test_run_offers_it_to_the_model(env: dict[str, str], tmp_path: Path) -> None:
    model = recorded(tmp_path / "r", ("Go", [ANSWER, "Done."]))
    ran = plain("run", "Go", "--json", "--model", model, cwd=tmp_path / "work", env=env)
    assert (ran.returncode, "QUIET" in ran.stdout) == (0, True), ran.stderr


def test_chat_offers_it_to_the_model(env: dict[str, str], tmp_path: Path) -> None:
    model = recorded(tmp_path / "r", ("Go", [ANSWER, "Done."]))
    with terminal("chat", "--model", model, cwd=tmp_path / "work", env=env) as screen:
        screen.wait_shown("/help")
        screen.type("Go\r")
        screen.wait_shown("Done.")
        screen.type("\x04")
        assert screen.end() == 0
    assert "look_up" in screen.seen
    assert "no tool" not in screen.seen
