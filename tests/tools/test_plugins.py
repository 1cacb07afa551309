"""Packages offer tools by entry point; a broken one is reported, and does not stop the rest."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from handrail import Session, builtin_tools, plugin_tools
from handrail.cli.tools import list_tools
from handrail.tools.plugins import plugins

MODULE = '''
from handrail import Tool, tool

print("the plugin is here")

@tool(effects=["reads"])
def look_up(word: str) -> str:
    """Look a word up."""
    return word.upper()

def spell(word: str) -> list[str]:
    """Spell a word."""
    return list(word)

TOOLS = [spell]
TAKEN = Tool("bash", {"type": "object"}, lambda context, arguments: 1)
NOTHING = None

class Late: ...

class Refuses:
    def __getattr__(self, name):
        raise RuntimeError("not " + name)

REFUSES = Refuses()
'''
POINTS = """[handrail.tools]
a_dictionary = words_plugin:look_up
broken = words_plugin:missing
ends = words_plugin_that_exits
gone = no_such_module:TOOLS
malformed = words plugin:x
nothing = words_plugin:NOTHING
panics = words_plugin_that_panics
refuses = words_plugin:REFUSES
speller = words_plugin:TOOLS
taken = words_plugin:TAKEN
twice as ödd = words_plugin:TOOLS
twice = words_plugin:look_up
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with plugins, as an installer leaves it."""
    (tmp_path / "words_plugin.py").write_text(MODULE)
    (tmp_path / "words_plugin_that_exits.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "words_plugin_that_panics.py").write_text("class Panic(BaseException): ...\nraise Panic\n")
    info = tmp_path / "words-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: words\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    damaged = tmp_path / "damaged-1.dist-info"
    damaged.mkdir()
    (damaged / "METADATA").write_text("no metadata")
    (damaged / "entry_points.txt").write_text("[handrail.tools]\nwithout a package = words_plugin:Late\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("words_plugin", None)
    return tmp_path


BROKEN = [
    "broken", "ends", "gone", "malformed", "nothing", "panics", "refuses", "taken", "twice", "twice as ödd",
    "without a package",
]  # fmt: skip


@pytest.mark.anyio
async def test_tools_of_plugins_are_offered_and_broken_plugins_are_reported(installed: Path) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = plugin_tools()
    assert [tool.name for tool in found] == ["look_up", "spell"]
    reported = sorted(str(each.message).partition(" (")[0].removeprefix("the tools of ") for each in said)
    assert reported == BROKEN
    assert "the tools of without a package (words_plugin:Late) are left out" in str(said[-1].message)
    assert "has the name of one of Handrail" in " ".join(str(each.message) for each in said)
    assert "has the name of one of words 1.2" in " ".join(str(each.message) for each in said)
    async with Session([*builtin_tools("read_only"), *found][-2:]) as session:
        assert (await session.call("look_up", {"word": "a"})).value == "A"


def test_without_plugins_there_are_no_tools_and_no_warnings() -> None:
    assert plugins() == []
    assert plugin_tools() == []


def test_the_command_tells_where_each_tool_comes_from(installed: Path) -> None:
    lines = list_tools(None, "all").splitlines()
    by_name = {line.split()[0]: line for line in lines if not line.startswith("!")}
    assert "words 1.2" in by_name["look_up"]
    assert "built in" in by_name["bash"]
    broken = [line for line in lines if line.startswith("!")]
    assert [name for name, line in zip(BROKEN, broken, strict=True) if not line.startswith(f"! {name} ")] == []
    assert "look_up" not in list_tools(None, "read_only")
    env = {**os.environ, "PYTHONPATH": str(installed)}
    shown = subprocess.run(
        [sys.executable, "-m", "handrail", "tools"], env=env, capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == lines, "what a plugin prints is not there"
    assert "the plugin is here" in shown.stderr
