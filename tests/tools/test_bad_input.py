"""What a model should not have asked for: a Failure of the right kind that says what to do, and nothing is changed."""

import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from handrail import Failure, Result, Session, builtin_tools
from tests.tools.world import EVERY, REAL, World, in_time, world

pytestmark = pytest.mark.anyio
PATHS: dict[str, dict[str, Any]] = {
    "read": {},
    "write": {"content": "WRITTEN"},
    "edit": {"edits": [{"old": "hello", "new": "WRITTEN"}]},
    "grep": {"pattern": "hello"},
    "glob": {"pattern": "*"},
    "share_artifact": {},
}
"""Every tool that takes a path, with what else it needs."""
BAD, GONE, NO, FINE = "invalid_args", "not_found", "rejected", "fine"


def row(path: str, read: str, write: str, edit: str, grep: str, glob: str, share: str) -> Any:
    """What each tool answers: a kind, `fine`, or several that depend on the driver."""
    named = zip(PATHS, (read, write, edit, grep, glob, share), strict=True)
    return pytest.param(
        path, {tool: set(kinds.split()) for tool, kinds in named}, id=path.encode("unicode_escape").decode()[:30]
    )


OUTSIDE = f"{GONE} {NO}"  # the jail has no such file, the host driver does not let it be touched
SHARE_GONE = "execution_error"
EVERYWHERE = [
    row("", BAD, BAD, BAD, FINE, FINE, BAD),
    row("a\0b", BAD, BAD, BAD, BAD, BAD, BAD),
    row("missing", GONE, FINE, GONE, GONE, GONE, SHARE_GONE),
    row("missing/deeper", GONE, FINE, GONE, GONE, GONE, SHARE_GONE),
    row("hello.txt/below", BAD, BAD, BAD, BAD, BAD, SHARE_GONE),
    row("dir", FINE, BAD, BAD, FINE, FINE, BAD),
    row("new\nline", FINE, FINE, FINE, FINE, BAD, f"{BAD} {FINE}"),
    row("latin", FINE, FINE, FINE, FINE, BAD, FINE),
]
ON_DISK = [
    row("../outside", OUTSIDE, BAD, BAD, OUTSIDE, OUTSIDE, f"{BAD} {SHARE_GONE}"),
    row("/etc/shadow", OUTSIDE, NO, OUTSIDE, OUTSIDE, OUTSIDE, f"{BAD} {SHARE_GONE}"),
    row("fifo", BAD, BAD, BAD, BAD, BAD, BAD),
    row("socket", BAD, BAD, BAD, BAD, BAD, BAD),
    row("/dev/zero", f"{BAD} {NO}", f"{BAD} {NO}", f"{BAD} {NO}", f"{BAD} {NO}", f"{BAD} {NO}", BAD),
    row("to_device", f"{BAD} {NO}", f"{BAD} {NO}", f"{BAD} {NO}", f"{BAD} {NO}", f"{BAD} {NO}", f"{BAD} {SHARE_GONE}"),
    row("huge", FINE, FINE, BAD, BAD, BAD, BAD),
    row("huge_text", FINE, FINE, BAD, BAD, BAD, BAD),
    row("loop", BAD, BAD, BAD, BAD, BAD, f"{BAD} {SHARE_GONE}"),
    row("dangling", GONE, FINE, GONE, GONE, GONE, SHARE_GONE),
    row("x" * 300, BAD, BAD, BAD, BAD, BAD, BAD),
]
"""What memory has none of."""


async def furnish(here: World) -> None:
    await here.put("hello.txt", "hello\nthere\n")
    await here.put("dir/inner.txt", "hello\n")
    await here.put("new\nline", "hello\n")
    await here.put("latin", "hello caf\xe9\n".encode("latin-1"))
    if here.driver == "memory":
        return
    root = here.root
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as plug:
        there = os.getcwd()
        os.chdir(root)  # the path of a socket must be short
        plug.bind("socket")
        os.chdir(there)
    for name, text in (("huge", b""), ("huge_text", b"hello\n" * 10_000)):
        with (root / name).open("wb") as file:
            file.write(text)
            file.truncate(5 << 30)
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nothing")
    (root / "to_device").symlink_to("/dev/zero")
    (root.parent / "outside").write_text("hello secret\n")


@pytest.fixture(params=EVERY)
async def furnished(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with world(request.param, tmp_path / "work") as here:
        await furnish(here)
        yield here


def listed(root: Path) -> Iterator[tuple[str, int, int]]:
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        yield str(path), stat.st_mode, stat.st_size


async def checked(here: World, tool: str, path: str, kinds: set[str]) -> Result:
    before, tree = await here.files(), list(listed(here.root.parent))
    with in_time():
        result = await here.call(tool, path=path, **PATHS[tool])
    kind = "fine" if result.ok else result.kind
    assert kind in kinds, f"{tool}: {result}"
    if isinstance(result, Failure):
        assert (await here.files(), list(listed(here.root.parent))) == (before, tree), f"{tool} left something behind"
        assert result.field in ("path", "filename") or result.kind == SHARE_GONE
        assert len(result.message.split()) >= 6, "it says what to do"
    return result


@pytest.mark.parametrize(("path", "kinds"), EVERYWHERE)
async def test_a_bad_path_is_a_failure_of_the_right_kind(
    furnished: World, path: str, kinds: dict[str, set[str]]
) -> None:
    for tool in ("read", "grep", "glob", "share_artifact", "edit", "write"):  # the last may change the file
        await checked(furnished, tool, path, kinds[tool])


@pytest.mark.parametrize("driver", REAL)
@pytest.mark.parametrize(("path", "kinds"), ON_DISK)
async def test_a_path_that_only_disks_have_is_a_failure_of_the_right_kind(
    driver: str, path: str, kinds: dict[str, set[str]], tmp_path: Path
) -> None:
    async with world(driver, tmp_path / "work") as here:
        await furnish(here)
        for tool in ("read", "grep", "glob", "share_artifact", "edit"):
            result = await checked(here, tool, path, kinds[tool])
            assert "secret" not in str(result)
        await checked(here, "write", path, kinds["write"])
        if here.root.joinpath("..", "outside").read_text() != "hello secret\n":
            pytest.fail("something outside was written")


@pytest.mark.parametrize("driver", REAL)
async def test_a_file_that_may_not_be_read_or_written_is_rejected(driver: str, tmp_path: Path) -> None:
    if driver == "host" and os.geteuid() == 0:
        pytest.skip("the half on the host did not run: to root nothing is forbidden there")
    async with world(driver, tmp_path / "work") as here:
        await furnish(here)
        (here.root / "hello.txt").chmod(0)
        for tool in ("read", "grep", "edit", "write"):
            assert (await here.failure(tool, path="hello.txt", **PATHS[tool])).kind == NO, tool
        assert (await here.failure("share_artifact", path="hello.txt")).kind == BAD
        (here.root / "dir").chmod(0o555)
        assert (await here.failure("write", path="dir/new", content="x")).kind == NO
        (here.root / "dir").chmod(0o755)
        (here.root / "hello.txt").chmod(0o644)
        assert (here.root / "hello.txt").read_text() == "hello\nthere\n"
        assert os.listdir(here.root / "dir") == ["inner.txt"]


CATASTROPHES = ["(x+x+)+y", "(a|aa)+$", "(.*)*b", "(?:a?){500}a{500}b", r"\p{L}{50,200}[!?]", "(a{1,100}){1,100}b"]


@pytest.mark.parametrize("pattern", CATASTROPHES)
async def test_no_pattern_holds_grep_up(anywhere: World, pattern: str) -> None:
    await anywhere.put("line.txt", "a" * 20_000 + "\n" + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n" * 50)
    with in_time():
        result = await anywhere.call("grep", pattern=pattern)
    assert result.ok or result.kind == BAD


@pytest.mark.parametrize("pattern", ["*a" * 40 + "b", "**/" * 40 + "x", "*" * 300 + "b", "{a,b}" * 7])
async def test_no_glob_holds_anything_up(anywhere: World, pattern: str) -> None:
    name = "/".join(["a" * 60] * 12)
    await anywhere.put(name, "a\n")
    await anywhere.put(".gitignore", f"{'*a' * 40}b\n{'**/' * 40}x\n{' ' * 100_000}x\n")
    with in_time():
        assert (await anywhere.value("glob", pattern=pattern))["paths"] == []
        assert (await anywhere.value("grep", pattern="a", glob=pattern))["match_count"] == 0
        control = await anywhere.value("glob", pattern="a*")
    assert control["paths"] == [name]


@pytest.mark.parametrize(
    ("tool", "arguments", "field", "word"),
    [
        ("grep", {"pattern": "(foo"}, "pattern", "unclosed group"),
        ("grep", {"pattern": "foo)"}, "pattern", "unopened group"),
        ("grep", {"pattern": "[a"}, "pattern", "unclosed character class"),
        ("grep", {"pattern": "*a"}, "pattern", "repetition"),
        ("grep", {"pattern": "(?=a)b"}, "pattern", "look-around"),
        ("grep", {"pattern": r"(a)\1"}, "pattern", "backreferences"),
        ("grep", {"pattern": r"\p{Nonsense}"}, "pattern", "property"),
        ("grep", {"pattern": "a\nb"}, "pattern", "one line"),
        ("grep", {"pattern": "(a{1000}){1000}"}, "pattern", "large"),
        ("grep", {"pattern": "a", "glob": "[z-a]"}, "glob", "backwards"),
        ("glob", {"pattern": "[z-a]"}, "pattern", "backwards"),
        ("glob", {"pattern": "foo["}, "pattern", "without its ]"),
        ("glob", {"pattern": "{a,b}" * 8}, "pattern", "more than"),
        ("glob", {"pattern": " "}, "pattern", "empty"),
        ("read", {"path": "two", "offset": 3}, "offset", "past the end"),
        ("read", {"path": ".", "offset": 30}, "offset", "past the end"),
        ("read", {"path": "two", "offset": 0}, "offset", "1"),
        ("read", {"path": "two", "limit": 0}, "limit", "1"),
        ("edit", {"path": "two", "edits": [{"old": "", "new": "x"}]}, "edits[0].old", "empty"),
        ("edit", {"path": "two", "edits": [{"old": "x", "new": "x"}]}, "edits[0].new", "same"),
        ("edit", {"path": "two", "edits": []}, "edits", "edits"),
        ("edit", {"path": "zero", "edits": [{"old": "x", "new": "y"}]}, "path", "binary"),
        ("todo", {"items": [{"content": "x", "status": "later"}]}, "items[0].status", "pending"),
        ("todo", {"items": [{"content": "", "status": "pending"}]}, "items[0].content", ""),
        ("complete", {"summary": ""}, "summary", "what was done"),
        ("complete", {"summary": " Done! "}, "summary", "what was done"),
        ("complete", {"summary": "[your summary here]"}, "summary", "what was done"),
    ],
)
async def test_a_bad_argument_is_named_and_explained(
    anywhere: World, tool: str, arguments: dict[str, Any], field: str, word: str
) -> None:
    await anywhere.put("two", "one\ntwo\n")
    await anywhere.put("zero", b"x\0y")
    before = await anywhere.files()
    failure = await anywhere.failure(tool, **arguments)
    assert (failure.kind, failure.field) == (BAD, field)
    assert word in f"{failure.message} {failure.expected}"
    assert await anywhere.files() == before


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "field"),
    [
        ("process", {"action": "poll", "job": "job-99"}, BAD, "job"),
        ("process", {"action": "kill"}, BAD, "job"),
        ("process", {"action": "look"}, BAD, "action"),
        ("bash", {"command": "pwd", "cwd": "missing"}, GONE, "cwd"),
        ("bash", {"command": "pwd", "cwd": "two"}, BAD, "cwd"),
        ("bash", {"command": "pwd", "cwd": "a\0b"}, BAD, "cwd"),
        ("bash", {"command": "pwd", "cwd": "missing", "background": True}, GONE, "cwd"),
        ("bash", {"command": " "}, BAD, "command"),
        ("bash", {"command": "echo a\0b"}, BAD, "command"),
        ("bash", {"command": "pwd", "timeout": 0}, BAD, "timeout"),
        ("bash", {"command": "pwd", "timeout": 0.05}, BAD, "timeout"),
        ("bash", {"command": "pwd", "timeout": 86_401}, BAD, "timeout"),
        ("run_code", {"code": "1", "language": "klingon"}, BAD, "language"),
        ("run_code", {"code": "puts 1", "language": "ruby"}, "unavailable fine", None),
    ],
)
async def test_a_bad_command_is_named_and_explained(
    real: World, tool: str, arguments: dict[str, Any], kind: str, field: str | None
) -> None:
    await real.put("two", "one\ntwo\n")
    result = await real.call(tool, **arguments)
    assert (result.kind if isinstance(result, Failure) else "fine") in kind.split(), result
    assert result.ok or result.field == field


async def test_without_anybody_to_ask_a_question_is_unavailable() -> None:
    async with Session([tool for tool in builtin_tools("all") if tool.name == "ask_user"]) as session:
        result = await session.call("ask_user", {"question": "Which?"})
    assert isinstance(result, Failure)
    assert (result.kind, result.retryable) == ("unavailable", False)
