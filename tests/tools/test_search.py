"""`grep` and `glob` give the same answers with ripgrep and without it, and those that ripgrep itself gives."""

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from handrail import Success
from handrail.contract.limits import DEFAULT_CAPS
from handrail.session.session import core_of
from handrail.tools.grep import MAX_FILE_BYTES
from tests.tools.world import NO_PROGRAMS, World, in_time, world

pytestmark = pytest.mark.anyio
RG = shutil.which("rg")
needs_ripgrep = pytest.mark.skipif(
    RG is None, reason="ripgrep is not installed: the half that compares with it did not run"
)
ODD = {
    "odd/latin.txt": "caf\xe9 x\nplain x\n".encode("latin-1"),
    "odd/binary.bin": b"import os\n\0\nimport os\n",
    "odd/late_binary.bin": b"import os\n" * 7_000 + b"\0",
    "odd/unicode.txt": "für Ärger\nstraße 1\nЖук\nｆｕｌｌ\n日本語\nK\u212a\n".encode(),
    "odd/crlf.txt": b"one x\r\ntwo\r\n",
    "odd/no_end.txt": b"first\nlast line",
    "odd/empty.txt": b"",
    "odd/blank.txt": b"\n\n\n",
    "odd/long.txt": b"a" * 100_000 + b" needle " + b"b" * 100_000 + b"\n",
    "odd/many.txt": b"import this\n" * 150,
    "odd/new\nline.txt": b"import newline\n",
    "odd/sp ace.txt": b"import space\n",
    "odd/-dash.txt": b"import dash\n",
    ".hidden/inner.txt": b"import hidden\n",
    ".gitignore": b"*.ignored\n/build/\n!keep.ignored\n",
    "x.ignored": b"import ignored\n",
    "keep.ignored": b"import kept\n",
    "build/out.txt": b"import built\n",
}
PATTERNS = [
    "import this", "^import", "import$", "^$", "^import (os|sys)$", r"def \w+\(self\):", r"\bself\b", r"\bkwonly\b",
    r"\Bself\B",
    "[[:upper:]]{4,}_[[:digit:]]", "[^[:space:][:alnum:]_]{6}", r"\d{4}-\d{2}-\d{2}", r"[\w.]+@[\w.]+\.org", "a.c",
    r"\$\{", r"\.\.\.", r"x{3}", "(?i)KELVIN", "(?i)FÜR|ärger|STRASSE", "[À-ÿ]", r"\p{Cyrillic}", r"\p{Han}+", "für",
    "caf. x", r"\S x", r"[^\w\s]x", r"\W{5}", r"\D\S\W$", "[]x]y", "[^]x]y[a-c]", "[a-z&&b]", r"\/", r"\"\"\"",
    r"\@property", "(?P<a>class) \\w+", "foo|bar|baz$", "last line$", "(?i)^\\s*raise notimplementederror", ".",
    "needle b", "zzzz_nowhere", "-dash", "^import hidden|^import (ignored|kept|built)", r"\t", "lambda: *0",
]  # fmt: skip

IN_ALL = ("import this", r"\bkwonly\b")


PACKAGES = ("google", "openai", "pydantic")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The standard library's own sources, those of the installed packages, and what is odd."""
    root = tmp_path_factory.mktemp("tree") / "work"
    skip = shutil.ignore_patterns("site-packages", "__pycache__", "config-*", "*.so", "*.a", "idlelib", "test")
    shutil.copytree(sysconfig.get_path("stdlib"), root, ignore=skip, symlinks=True)
    for name in PACKAGES:
        shutil.copytree(Path(sysconfig.get_path("purelib")) / name, root / "packages" / name, ignore=skip)
    for name, data in ODD.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    with (root / "odd/huge.txt").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    (root / "odd/link.txt").symlink_to("crlf.txt")
    (root / "odd/around").symlink_to("..")
    return root


@pytest.fixture(scope="module")
async def both(tree: Path, anyio_backend: str) -> AsyncIterator[tuple[World, World]]:
    """The same tree in a jail that has ripgrep, and in one that has not."""
    async with AsyncExitStack() as stack:
        has = await stack.enter_async_context(world("jail", tree))
        lacks = await stack.enter_async_context(world("jail", tree, env={"PATH": NO_PROGRAMS}))
        yield has, lacks


def ripgrep(tree: Path, *words: str) -> list[tuple[str, int]]:
    """What the program itself finds in the files that we would search, by path and line."""
    options = ["--no-config", "--hidden", "--no-require-git", "--crlf", "--text", "--max-filesize=32M"]
    ran = subprocess.run([str(RG), *options, "--json", *words], cwd=tree, capture_output=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    rows = [row["data"] for line in ran.stdout.splitlines() if (row := json.loads(line))["type"] == "match"]
    hits = [(row["path"]["text"].removeprefix("./"), row["line_number"]) for row in rows]
    texts = {path for path in dict(hits) if b"\0" not in (tree / path).read_bytes()}
    return sorted(hit for hit in hits if hit[0] in texts)


def means_the_same(pattern: str) -> bool:
    """Whether ripgrep reads the pattern as we do: version 13 knows fewer escapes."""
    return not any(word in pattern for word in ("\\/", '\\"', "\\@"))


@needs_ripgrep
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_grep_answers_the_same_with_and_without_ripgrep(
    both: tuple[World, World], tree: Path, pattern: str
) -> None:
    has, lacks = both
    for where in ("odd", "asyncio", ".") if pattern in IN_ALL else ("odd", "asyncio"):
        with in_time():
            one, other = [await here.call("grep", pattern=pattern, path=where, context=1) for here in both]
        assert isinstance(one, Success)
        assert one == other
        assert (core_of(has.session).memory("grep"), core_of(lacks.session).memory("grep")) == (
            {"ripgrep": True},
            {"ripgrep": False},
        )
        if means_the_same(pattern):
            ours = [(match["path"], match["line"]) for match in one.value["matches"]]
            assert ours == ripgrep(tree, "--regexp", pattern, where)[: DEFAULT_CAPS.matches]


async def test_the_patterns_find_something(both: tuple[World, World]) -> None:
    """The control: two engines that find nothing agree, too."""
    found = set()
    for pattern in PATTERNS:
        for where in ("odd", "asyncio"):
            if pattern not in found and (await both[0].value("grep", pattern=pattern, path=where))["match_count"]:
                found.add(pattern)
    assert len(found) > 0.65 * len(PATTERNS)
    assert (await both[0].value("grep", pattern="zzzz_nowhere"))["files_searched"] > 3_000


@needs_ripgrep
async def test_grep_ignores_case_in_the_same_way(both: tuple[World, World], tree: Path) -> None:
    for pattern in ("KELVIN", "k", "ärger", "STRASSE", "[a-z]ull", "ж"):
        one, other = [await here.value("grep", pattern=pattern, path="odd", ignore_case=True) for here in both]
        assert one == other
        ours = [(match["path"], match["line"]) for match in one["matches"]]
        assert ours == ripgrep(tree, "--ignore-case", "--regexp", pattern, "odd")[: DEFAULT_CAPS.matches]


GLOBS = [
    "*.py", "**/*.py", "*.{py,txt}", "asyncio/*.py", "asyncio/**", "/abc.py", "**/test_*", "[a-c]*.py", "[!a-z]*",
    "?.py",
    "**/asyncio/**/*s.py", "email/{mime,_*}/*", "*/*/*.py", "*", "odd/*", "odd/sp ace.txt", "*.ignored",
    "**/mime/**", "xml/**/[a-d]*.py", "nowhere/*",
]  # fmt: skip


@needs_ripgrep
@pytest.mark.parametrize("pattern", GLOBS)
async def test_glob_finds_what_ripgrep_lists(both: tuple[World, World], tree: Path, pattern: str) -> None:
    one, other = [await here.value("glob", pattern=pattern) for here in both]
    assert one == other
    command = [str(RG), "--no-config", "--files", "--hidden", "--no-require-git", "--null"]
    listed = subprocess.run([*command, "--glob", "!.git/"], cwd=tree, capture_output=True, check=False).stdout
    chosen = subprocess.run(
        [*command, "--glob", pattern, "--no-ignore"], cwd=tree, capture_output=True, check=False
    ).stdout
    theirs = set(os.fsdecode(listed).split("\0")) & set(os.fsdecode(chosen).split("\0")) - {""}
    assert one["count"] == len(theirs)
    assert set(one["paths"]) <= theirs
    assert one["truncated"] == (len(theirs) > 1_000)


async def test_braces_nest_and_a_backslash_takes_what_follows_as_it_is(anywhere: World) -> None:
    for name in ("abc", "abd", "ast", "ab[c]", "a{b,c}", "x/[id]/p.ts"):
        await anywhere.put(name, "")
    for pattern, found in {
        "a{b{c,d},st}": ["abc", "abd", "ast"],
        r"ab\[c\]": ["ab[c]"],
        "ab[[]c]": ["ab[c]"],
        r"a\{b,c\}": ["a{b,c}"],
        r"x/\[id\]/*.ts": ["x/[id]/p.ts"],
        "**": ["ab[c]", "abc", "abd", "ast", "a{b,c}", "x/[id]/p.ts"],
        "x/": ["x/[id]/p.ts"],
        "./abc": ["abc"],
    }.items():
        assert sorted((await anywhere.value("glob", pattern=pattern))["paths"]) == found, pattern


async def test_glob_gives_the_newest_first(anywhere: World) -> None:
    for age, name in enumerate(("old.txt", "older.txt", "oldest.txt")):
        await anywhere.put(name, "")
        if anywhere.driver != "memory":
            os.utime(anywhere.root / name, (1_000_000 - age, 1_000_000 - age))
    await anywhere.put("new.txt", "")
    paths = (await anywhere.value("glob", pattern="*.txt"))["paths"]
    assert paths[0] == "new.txt"
    if anywhere.driver != "memory":
        assert paths == ["new.txt", "old.txt", "older.txt", "oldest.txt"]


async def test_an_absolute_place_is_shown_so_that_it_can_be_read(anywhere: World) -> None:
    await anywhere.put("sub/a.txt", "apple\n")
    for path in ("sub", f"{anywhere.sandbox.workspace}/sub"):
        found = (await anywhere.value("glob", pattern="*", path=path))["paths"]
        assert found == ["sub/a.txt"]
        match = (await anywhere.value("grep", pattern="apple", path=path))["matches"][0]
        assert (await anywhere.value("read", path=match["path"]))["text"] == "apple\n"


async def test_matches_have_their_lines_around_them_and_long_ones_are_cut(anywhere: World) -> None:
    await anywhere.put("f", "one\ntwo\nthree\n" + "x" * 2_000 + " end\n")
    value = await anywhere.value("grep", pattern="^t|end$", context=1)
    first, second, third = value["matches"]
    assert (first["line"], first["before"], first["after"]) == (2, ["one"], ["three"])
    assert (second["before"], second["after"][0][:5]) == (["two"], "xxxxx")
    assert (third["after"], "1,504 more characters" in third["text"]) == ([], True)


async def test_a_hundred_matches_are_shown_and_more_are_told(anywhere: World) -> None:
    await anywhere.put("a", "x\n" * 60)
    await anywhere.put("b", "x\n" * 60)
    result = await anywhere.call("grep", pattern="x")
    assert isinstance(result, Success)
    assert (result.value["match_count"], result.value["truncated"]) == (DEFAULT_CAPS.matches, True)
    assert [match["path"] for match in result.value["matches"]] == ["a"] * 60 + ["b"] * 40
    assert "first 100" in result.warnings[0]


async def test_names_that_are_not_utf8_do_no_harm(real: World) -> None:
    (real.root / os.fsdecode(b"caf\xe9.txt")).write_text("apple\n")
    await real.put("plain.txt", "apple\n")
    for tool in ("grep", "glob"):
        result = await real.call(tool, pattern="apple" if tool == "grep" else "*.txt")
        assert result.ok
        assert "plain.txt" in str(result.to_envelope(tool))
    assert (await real.call("read", path=".")).ok
