"""What `.gitignore` leaves out is what git leaves out: nested files, negation, anchors, directories, odd lines."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from handrail import Sandbox
from handrail.testing import MemoryDriver
from handrail.tools._walk import walk
from tests.tools.world import World, in_time

pytestmark = pytest.mark.anyio
FILES = [
    "a.txt", "a.log", "b.log", "build", "sub/a.log", "sub/build/x.txt", "sub/build/keep.txt", "sub/deep/a.txt",
    "doc/frotz/x",
    "doc/a/b/c.txt", "#hash", "!bang", "sp ", "tab\t", "back\\slash", "[set]", "star*", "x/y/z/foo/bar.c", "foo/bar.c",
    "foo/keep/bar.c", ".hidden", "sub/.env", "ÄÖÜ.txt", "build2/x", "node_modules/p/index.js", "sub/node_modules/q.js",
]  # fmt: skip
CASES: dict[str, dict[str, str]] = {
    "plain names": {".gitignore": "a.log\nbuild\n"},
    "stars": {".gitignore": "*.log\n*.t?t\n"},
    "negation": {".gitignore": "*.log\n!b.log\n"},
    "negation below": {".gitignore": "*.log\n", "sub/.gitignore": "!a.log\n"},
    "no way back from an ignored directory": {".gitignore": "sub/build/\n!sub/build/keep.txt\n"},
    "everything but": {".gitignore": "/*\n!/foo/\n/foo/*\n!/foo/keep/\n"},
    "anchored": {".gitignore": "/a.log\n/sub/a.log\n"},
    "anchored below": {"sub/.gitignore": "/build\ndeep/a.txt\n"},
    "directories only": {".gitignore": "build/\n"},
    "middle slash": {".gitignore": "doc/frotz\nfoo/bar.c\n"},
    "two stars first": {".gitignore": "**/foo/bar.c\n"},
    "two stars last": {".gitignore": "doc/**\n"},
    "two stars between": {".gitignore": "x/**/bar.c\ndoc/**/c.txt\n"},
    "two stars that are one": {".gitignore": "do**\nx/y**/z\n"},
    "only two stars": {".gitignore": "**\n!*/\n!a.txt\n"},
    "sets": {".gitignore": "[ab].log\n[!a]*.txt\n"},
    "posix sets": {".gitignore": "[[:lower:]].log\nbuild[[:digit:]]\n"},
    "escapes": {".gitignore": "\\#hash\n\\!bang\nback\\\\slash\n\\[set]\nstar\\*\n"},
    "comments and blanks": {".gitignore": "# a.txt\n\n   \n#hash\na.log\n"},
    "spaces at the end": {".gitignore": "a.txt   \nsp\\ \n"},
    "tabs at the end": {".gitignore": "tab\t\n"},
    "carriage returns": {".gitignore": "a.txt\r\n*.log\r\n"},
    "byte order mark": {".gitignore": "\ufeffa.txt\n*.log\n"},
    "no line end": {".gitignore": "a.txt"},
    "unicode": {".gitignore": "Ä*\n"},
    "bad sets": {".gitignore": "a[\n[z-a].log\n"},
    "a backslash at the end": {".gitignore": "a.txt\\\n*.log\n"},
    "the last word": {".gitignore": "!a.log\n*.log\n"},
    "hidden": {".gitignore": ".*\n!.gitignore\n"},
    "slashes alone": {".gitignore": "/\n//\n"},
    "modules": {".gitignore": "node_modules/\n"},
    "three levels": {
        ".gitignore": "*\n!*/\n!.gitignore\n",
        "sub/.gitignore": "!*.log\n",
        "sub/deep/.gitignore": "!*\n",
    },
}


def gits(root: Path) -> set[str]:
    """What git itself would not ignore."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(root)}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-per-directory=.gitignore"]
    ran = subprocess.run(command, cwd=root, env=env, capture_output=True, check=True)
    return {os.fsdecode(name) for name in ran.stdout.split(b"\0") if name}


async def ours(files: dict[str, str]) -> set[str]:
    sandbox = Sandbox(MemoryDriver(files))
    return {entry.path.removeprefix("/workspace/") async for entry in walk(sandbox, "/workspace", no_ignore=False)}


def repository(root: Path, files: dict[str, str]) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, newline="")


@pytest.mark.parametrize("case", CASES)
async def test_git_and_we_leave_out_the_same_files(case: str, tmp_path: Path) -> None:
    files = {**dict.fromkeys(FILES, "x"), **CASES[case]}
    repository(tmp_path, files)
    assert await ours(files) == gits(tmp_path)


async def test_git_and_we_agree_on_whatever_is_thrown_together(tmp_path: Path) -> None:
    dice = random.Random(7)
    pieces = ["a", "b", "*", "**", "?", "[ab]", "[!a]", "a*", "*b", "ab", "*.c", "\\a", "a?"]
    places = ["", "a/", "b/", "a/b/", "ab/", "a/a/", "b/a/b/"]
    plain = {f"{place}{name}": "x" for place in places for name in ("c", "x.c", "aa", "bb.c", "abc")}
    left_out = 0
    for number in range(80):
        files = dict(plain)
        for place in dice.sample(places, 2):
            lines = []
            for _ in range(dice.randint(1, 4)):
                words = "/".join(dice.choice(pieces) for _ in range(dice.randint(1, 3)))
                lines.append(dice.choice(["", "", "!"]) + dice.choice(["", "/"]) + words + dice.choice(["", "", "/"]))
            files[f"{place}.gitignore"] = "\n".join(lines) + "\n"
        root = tmp_path / str(number)
        repository(root, files)
        theirs = gits(root)
        assert await ours(files) == theirs, {name: text for name, text in files.items() if name.endswith(".gitignore")}
        left_out += len(files) - len(theirs)
    assert left_out > 200, "the control: something was ignored"


async def test_the_rules_of_a_repository_end_where_it_begins(real: World) -> None:
    """A home directory whose .gitignore says `*` does not hide the projects in it."""
    await real.put(".gitignore", "*\n")
    await real.put("project/.git/HEAD", "ref: x\n")
    await real.put("project/a.txt", "apple\n")
    await real.put("plain/b.txt", "apple\n")
    for path in ("project", "."):
        if path == ".":
            await real.put(".gitignore", "*.txt\n")
        found = (await real.value("glob", pattern="*.txt", path=path))["paths"]
        assert found == ["project/a.txt"]
    assert (await real.value("grep", pattern="ref", path="project"))["match_count"] == 0
    assert (await real.value("grep", pattern="ref", path="project", no_ignore=True))["match_count"] == 1


async def test_rules_from_above_hold_below_and_a_directory_that_is_named_is_searched(anywhere: World) -> None:
    await anywhere.put(".gitignore", "*.log\n/out/\n")
    await anywhere.put("sub/a.log", "apple\n")
    await anywhere.put("sub/a.txt", "apple\n")
    await anywhere.put("out/b.txt", "apple\n")
    assert (await anywhere.value("glob", pattern="*", path="sub"))["paths"] == ["sub/a.txt"]
    assert (await anywhere.value("glob", pattern="*.txt"))["paths"] == ["sub/a.txt"]
    assert (await anywhere.value("glob", pattern="*", path="out"))["paths"] == ["out/b.txt"]
    assert (await anywhere.value("grep", pattern="apple", path="sub/a.log"))["match_count"] == 1


async def test_a_hostile_gitignore_holds_nobody_up(anywhere: World) -> None:
    await anywhere.put(".gitignore", f"{'*a' * 60}b\n{'**/' * 60}zz\n" + "q[a-z]*x?\n" * 20_000)
    await anywhere.put("/".join(["a" * 50] * 10), "x")
    with in_time():
        assert (await anywhere.value("glob", pattern="a*"))["count"] == 1


async def test_a_gitignore_that_is_no_file_is_none(real: World) -> None:
    os.mkfifo(real.root / ".gitignore")
    (real.root / "sub").mkdir()
    (real.root / "sub/.gitignore").mkdir()
    await real.put("sub/a.txt", "")
    with in_time():
        assert (await real.value("glob", pattern="*"))["paths"] == ["sub/a.txt"]
