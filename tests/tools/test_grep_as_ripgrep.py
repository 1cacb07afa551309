"""`grep` answers as `rg --crlf` does on generated trees and patterns, with ripgrep in the sandbox and without it.

Three differences are on purpose, and are tested here: a file with a NUL is named and not searched, however late the
NUL comes; escapes and characters that only newer versions of ripgrep know are understood; and what cannot be answered
alike is refused: `\\A`, `\\z`, `(?-m)` and `(?-u)`, whose answers in ripgrep depend on how it reads a file, `(?x)`,
`(?R)`, and patterns that compile to more than 10 MiB. Three bugs of ripgrep 13 with --crlf are left out: `$` after
something that may be empty crashes it or never ends, a bare `\\B` is found inside a CRLF, and `$` is sometimes found
before two carriage returns.
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, event, example, given, reject, settings
from hypothesis import strategies as st

from handrail import Result, Success
from handrail.contract.limits import DEFAULT_CAPS
from handrail.session.session import core_of
from tests.tools.world import NO_PROGRAMS, World, world

RG = shutil.which("rg")
pytestmark = pytest.mark.skipif(RG is None, reason="ripgrep is not installed: nothing was compared with it")
QUICK = (Phase.explicit, Phase.generate)
"""Without making a failing example smaller: each try costs several processes."""
Tree = dict[str, bytes]
PIECES = ["foo", "Foo", "bar", "x", "k", "9", " ", "_", "\t", ".", "é", "É", "Ж", "٣", "\u212a", "ß", "\xa0",
          "\u2028", "日",
          "\ufffd", "\u0301", "-", "\U0001f600", "α", "\x0b", "\x85"]  # fmt: skip
NAMES = ["a.txt", "b.txt", ".hidden", "sub/c.txt", "sub/d.log", ".dir/e.txt", "out/f.txt", "sub/out/g.txt"]
IGNORES = ["*.log", "/out/", "out", "!g.txt", "b.*", "# a comment", "", "sub/*", "!sub/c.txt", ".hidden"]
BLOCK = 64 << 10
"""Bytes that ripgrep looks at before it calls a file text."""
LATE_NUL = b"<late>"
"""Stands for many lines and a NUL, so that an example can be read."""
lines = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
texts = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\n", "\r\n", "\r", ""])), max_size=6).map(
    lambda rows: "".join(line + end for line, end in rows)
)


def spoilt(text: str, at: int, bad: bytes) -> bytes:
    """The text with bytes that are not UTF-8 somewhere in it."""
    data = text.encode()
    return data[: at % (len(data) + 1)] + bad + data[at % (len(data) + 1) :]


contents = st.one_of(
    texts.map(str.encode),
    texts.map(lambda text: text.encode("utf-8-sig")),
    texts.map(lambda text: b"\xff\xfe" + text.encode("utf-16-le")),
    texts.map(lambda text: b"\xfe\xff" + text.encode("utf-16-be")),
    texts.map(lambda text: b"\xff\xfe" + text.encode("utf-16-le") + b"\x00\xd8\n\0"),
    st.builds(spoilt, texts, st.integers(0, 40), st.sampled_from([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f"])),
    texts.map(lambda text: text.encode() + b"\0\n" + text.encode()),
    texts.map(lambda text: text.encode() + LATE_NUL + text.encode()),
)  # fmt: skip
trees = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NAMES, contents),
        ".gitignore": st.lists(st.sampled_from(IGNORES), max_size=4).map(lambda rows: "\r\n".join(rows).encode()),
        "sub/.gitignore": st.lists(st.sampled_from(IGNORES), max_size=2).map(lambda rows: "\n".join(rows).encode()),
    },
)
atoms = st.sampled_from([
    "foo", "f", "o", "bar", "k", "9", " ", r"\.", "é", "Ж", "日", "ß", "_", r"\x{e9}", r"\u0416", r"\t", r"\-",
    "\ufffd", ".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\b", r"\Bo", r"o\B", "^", r"(?:^|x)",
    r"\p{L}", r"\P{L}", r"\pN", r"\p{Greek}", r"\p{Lu}", r"\p{White_Space}", "[[:alpha:]]", "[[:^space:]]", "[^a]",
    "[^[:upper:]]", r"[^\W\d_]", r"[\w--\d]", "[a-z&&[^fo]]", "[a-o~~f-z]", "[]x]", "[^]x]", "[-x]", "[x-]", r"[\]x]",
    r"[\s\S]", r"[\r\nx]", "(?i:FOO)", "(?i:K)", "(?i:É|ß)", "(?s:.)", "(?m:^)", "()",
    "[^\\x00-\\x7F]", r"[\x00-\x20]",
])  # fmt: skip
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{2,}"])).map("(?:%s)%s".__mod__),
        inner.map("({})".format),
        inner.map("(?i){}".format),
    ),
    max_leaves=4,
)  # fmt: skip
patterns = st.one_of(
    expressions,
    expressions.map("{}$".format),
    expressions.map("^(?P<name>{})$".format),
    st.tuples(expressions, expressions).map("(?m:{0[0]}$)|{0[1]}".format),
)


class Both:
    """The same files in a sandbox with ripgrep and in one without it, asked from plain code."""

    def __init__(self, root: Path, portal: BlockingPortal, worlds: list[World]) -> None:
        self.root, self.worlds = root, worlds
        self._portal = portal
        self._numbers = count()

    def plant(self, tree: Tree) -> str:
        """A new directory with these files."""
        name = f"tree{next(self._numbers)}"
        for path, data in {**tree, "always.txt": b"always\n"}.items():
            (self.root / name / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name / path).write_bytes(data.replace(LATE_NUL, b"bar\n" * BLOCK + b"\0"))
        return name

    def grep(self, **arguments: Any) -> Result:
        """The answer, which both must give."""
        answers: list[Result] = [self._portal.call(self._call, here, arguments) for here in self.worlds]
        one, other = answers
        assert one == other
        tried = [core_of(here.session).memory("grep") for here in self.worlds]
        assert not one.ok or tried == [{"ripgrep": True}, {"ripgrep": False}]
        return one

    @staticmethod
    async def _call(here: World, arguments: dict[str, Any]) -> Result:
        return await here.call("grep", **arguments)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    root = tmp_path_factory.mktemp("trees") / "work"
    with start_blocking_portal() as portal:
        stack = AsyncExitStack()
        enter: Callable[[Any], Awaitable[World]] = stack.enter_async_context
        try:
            has = portal.call(enter, world("jail", root))
            lacks = portal.call(enter, world("jail", root, env={"PATH": NO_PROGRAMS}))
            yield Both(root, portal, [has, lacks])
        finally:
            portal.call(stack.aclose)


Hit = tuple[str, int, str]
CRASHED = "ripgrep crashed, or never ended"


def ripgrep(where: Path, *words: str) -> tuple[list[Hit], str]:
    """What `rg --crlf` finds, and its complaint about the pattern."""
    options = [
        "--no-config",
        "--crlf",
        "--json",
        "--hidden",
        "--no-require-git",
        "--no-ignore-dot",
        "--no-ignore-global",
    ]
    try:
        ran = subprocess.run([str(RG), *options, *words], cwd=where, capture_output=True, check=False, timeout=5)
    except subprocess.TimeoutExpired:
        return [], CRASHED
    if ran.returncode not in (0, 1):
        complaint = ran.stderr.decode() or "failed"
        return [], CRASHED if "panicked" in complaint else complaint
    rows = [row["data"] for line in ran.stdout.splitlines() if (row := json.loads(line))["type"] == "match"]
    hits = [(row["path"]["text"].removeprefix("./"), row["line_number"], shown(row["lines"])) for row in rows]
    return sorted(hits), ""


def shown(given: dict[str, str]) -> str:
    text = given["text"] if "text" in given else base64.b64decode(given["bytes"]).decode("utf-8", "replace")
    return text.removesuffix("\n").removesuffix("\r")


def listed(where: Path) -> set[str]:
    options = ["--no-config", "--files", "--hidden", "--no-require-git", "--no-ignore-dot", "--null"]
    names = subprocess.run([str(RG), *options], cwd=where, capture_output=True, check=True).stdout
    return {name.removeprefix("./") for name in os.fsdecode(names).split("\0") if name}


def is_binary(data: bytes) -> bool:
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return "\0" in data[2:].decode(encoding, "replace")
    return b"\0" in data or LATE_NUL in data


def check(both: Both, tree: Tree, pattern: str, ignore_case: bool = False) -> list[Hit]:
    name = both.plant(tree)
    where = both.root / name
    result = both.grep(pattern=pattern, path=name, ignore_case=ignore_case)
    theirs, complaint = ripgrep(where, *(["--ignore-case"] if ignore_case else []), "--regexp", pattern, ".")
    shutil.rmtree(where)
    if complaint == CRASHED:
        reject()
    assert not complaint, (pattern, complaint)
    assert isinstance(result, Success), (pattern, result)
    return agreed(result, name, theirs, tree)


def agreed(result: Success, name: str, theirs: list[Hit], tree: Tree) -> list[Hit]:
    ours = [(match["path"].removeprefix(f"{name}/"), match["line"], match["text"]) for match in result.value["matches"]]
    binary = {path for path, data in tree.items() if is_binary(data)}
    assert not {path for path, _, _ in ours} & binary
    assert ours == [hit for hit in theirs if hit[0] not in binary][: DEFAULT_CAPS.matches]
    return ours


@settings(max_examples=60, phases=QUICK, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=trees, pattern=patterns, ignore_case=st.booleans())
@example(tree={"a.txt": b"x foo\r\nfoo \r\n\r\nfoo\r"}, pattern="^$|foo$", ignore_case=False)
@example(tree={"a.txt": b"\xef\xbb\xbffoo\n"}, pattern="^foo", ignore_case=False)
@example(tree={"a.txt": b"a\rb\na\xffb\na\xf0\x9fb\nab\n"}, pattern=r"a(.|\W|\s|[^x])b", ignore_case=False)
@example(tree={"a.txt": b"caf\xe9 x\n\xff\n"}, pattern=r"^\B|\B$|.\b", ignore_case=False)
def test_generated_trees_are_searched_as_ripgrep_searches_them(
    both: Both, tree: Tree, pattern: str, ignore_case: bool
) -> None:
    event(f"found: {bool(check(both, tree, pattern, ignore_case))}")


@settings(max_examples=20, phases=QUICK, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=trees)
def test_files_searched_and_binary_files_are_all_the_files_that_ripgrep_lists(both: Both, tree: Tree) -> None:
    name = both.plant(tree)
    files = listed(both.root / name)
    result = both.grep(pattern="zzz", path=name)
    shutil.rmtree(both.root / name)
    binary = sorted(path for path in files if is_binary(tree.get(path, b"")))
    assert result.value["binary_files"] == [f"{name}/{path}" for path in binary]
    assert result.value["files_searched"] == len(files) - len(binary)
    assert bool(binary) == any("Binary" in warning for warning in result.warnings)


def test_most_kinds_of_file_are_found_in(both: Both) -> None:
    """The control: two that find nothing agree, too."""
    text = "one foo\r\nÄrger\r\n"
    tree = {
        "crlf": text.encode(), "bom": text.encode("utf-8-sig"), "le": b"\xff\xfe" + text.encode("utf-16-le"),
        "be": b"\xfe\xff" + text.encode("utf-16-be"), "bad": b"\xff\n" + text.encode(), ".hidden": text.encode(),
    }  # fmt: skip
    assert {path for path, _, _ in check(both, tree, r"^one \w+$")} == set(tree)
    assert {path for path, _, _ in check(both, tree, r"^\w+er$")} == set(tree)


@pytest.mark.parametrize("where", ["early", "late", "only"])
def test_a_binary_file_is_named_and_never_searched_even_if_the_nul_comes_late(both: Both, where: str) -> None:
    data = {"early": b"foo\0\nfoo\n", "late": b"foo\n" * BLOCK + b"\0\n", "only": b"\0"}[where]
    name = both.plant({"x.bin": data, "y.txt": b"foo\n"})
    result = both.grep(pattern="foo", path=name)
    assert [match["path"] for match in result.value["matches"]] == [f"{name}/y.txt"]
    assert (result.value["binary_files"], result.value["files_searched"]) == ([f"{name}/x.bin"], 2)
    alone = both.grep(pattern="foo", path=f"{name}/x.bin")
    assert (alone.value["binary_files"], alone.value["files_searched"]) == ([f"{name}/x.bin"], 0)
    assert f"{name}/x.bin" in alone.warnings[0]


def test_compiled_files_of_python_are_not_named_unless_their_directory_is_searched(both: Both) -> None:
    cached = "src/__pycache__/a.cpython-311.pyc"
    name = both.plant({cached: b"foo\0", "src/a.py": b"foo\n", "src/b.bin": b"\0"})
    result = both.grep(pattern="foo", path=name)
    assert result.value["binary_files"] == [f"{name}/src/b.bin"]
    assert "__pycache__" not in "".join(result.warnings)
    assert "b.bin" in result.warnings[0], "the control"
    inside = both.grep(pattern="foo", path=f"{name}/src/__pycache__")
    assert inside.value["binary_files"] == [f"{name}/{cached}"]


def test_many_binary_files_are_counted_and_the_first_are_named(both: Both) -> None:
    name = both.plant({f"{number:02}.bin": b"\0" for number in range(50)})
    result = both.grep(pattern="foo", path=name)
    assert result.value["binary_files"] == [f"{name}/{number:02}.bin" for number in range(20)]
    assert "30 more" in result.warnings[0]
    assert result.value["files_searched"] == 1


@pytest.mark.parametrize(
    "pattern", ["a\n", r"a\n", r"\r", "a\r$", r"a\x0d", r"\x{A}", r"\u000D", r"\U0000000a", r"(b|\r)"]
)
def test_a_literal_line_end_is_refused_as_ripgrep_refuses_it(both: Both, pattern: str) -> None:
    name = both.plant({})
    assert ripgrep(both.root / name, "--regexp", pattern, ".")[1]
    failure = both.grep(pattern=pattern, path=name)
    assert (failure.kind, failure.field) == ("invalid_args", "pattern")
    assert "$" in failure.message


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"(?-u)\xff", "(?-u)"), ("(?i-u:a)", "(?-u)"), ("(?x) a b", "(?x)"), ("(?R)a", "(?R)"),
        (r"\w{400}", "too large"),
        ("(?=a)", "look-around"), (r"(a)\1", "backreference"), ("(", "unclosed group"), (r"\Z", "unrecognized escape"),
        ("[a", "unclosed character class"), (r"\p{Klingon}", "property"), ("a{", "repetition"), ("[z-a]", "range"),
        (r"a\z", "use $"), (r"\Aa", "use ^"), ("(?-m)a$", "(?-m)"), ("(?is-m:a$)", "(?-m)"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_alike_is_refused_and_the_reason_is_said(both: Both, pattern: str, says: str) -> None:
    failure = both.grep(pattern=pattern, path=both.plant({}))
    assert (failure.kind, failure.field) == ("invalid_args", "pattern")
    assert says in failure.message
    assert "[^" not in failure.message, "the message shows what was sent, not what was made of it"


@pytest.mark.parametrize("pattern", ["$", "$$", "(?m:$)+", r"x\B$|$"])
def test_patterns_on_which_ripgrep_crashes_or_never_ends_are_answered(both: Both, pattern: str) -> None:
    name = both.plant({"a.txt": b"a\r\n\xff\r\r\n", "b.txt": b"\xff\xfea\0\r\0\r\0\n\0", "c.bin": b"x\n\0"})
    assert both.grep(pattern=pattern, path=name).value["match_count"] == 4


@pytest.mark.parametrize("pattern", [r"\/", r"\"", r"\@", r"\<x", r"x\b{end}"])
def test_escapes_that_newer_versions_know_are_understood(both: Both, pattern: str) -> None:
    assert both.grep(pattern=pattern, path=both.plant({"a.txt": b'/ " @ x\n'})).value["match_count"] == 1


def test_a_character_that_ripgrep_does_not_know_yet_is_found_with_and_without_it(both: Both) -> None:
    newer = "\U0001e4d0"  # a letter since Unicode 15; ripgrep 13 has the tables of Unicode 13
    result = both.grep(pattern=r"^\p{L}$", path=both.plant({"a.txt": f"{newer}\n".encode()}))
    assert result.value["match_count"] == 1
