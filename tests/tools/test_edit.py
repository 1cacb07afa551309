"""`edit` changes exactly what it was told to, all or nothing; where the text is missing it helps, never guesses."""

from time import process_time
from typing import Any

import pytest

from tests.tools.world import World

pytestmark = pytest.mark.anyio
PROGRAM = """def greet(name):
    if name:
        print("hello", name)
    return name

def part(name):
    if name:
        print("bye", name)
    return name
"""


def one(old: str, new: str, **more: Any) -> list[dict[str, Any]]:
    return [{"old": old, "new": new, **more}]


async def test_an_edit_replaces_exact_text_and_shows_the_diff(anywhere: World) -> None:
    await anywhere.put("f.py", PROGRAM)
    value = await anywhere.value("edit", path="f.py", edits=one('"hello"', '"good day"'))
    assert (value["replacements"], '-        print("hello", name)' in value["diff"]) == (1, True)
    assert "@@ -1,6 +1,6 @@" in value["diff"]
    changed = PROGRAM.replace('"hello"', '"good day"')
    assert (await anywhere.get("f.py")).decode() == changed
    assert value["bytes_written"] == len(changed)


async def test_text_that_is_not_there_is_answered_with_the_closest_passage_and_not_applied(anywhere: World) -> None:
    await anywhere.put("f.py", PROGRAM)
    wrong = 'def part(name):\n    if name:\n        print("goodbye", name)\n'
    failure = await anywhere.failure("edit", path="f.py", edits=one(wrong, "x"))
    assert (failure.kind, failure.field) == ("invalid_args", "edits[0].old")
    assert "at line 6" in failure.message
    assert '8:         print("bye", name)' in failure.message
    assert "line 3 of your text differs" in failure.message
    assert (await anywhere.get("f.py")).decode() == PROGRAM


@pytest.mark.parametrize("sent", ["    if name:\n    return name", "def greet(name):\n  if name:", "def  greet(name):"])
async def test_spaces_that_differ_are_said_to_differ_and_are_not_guessed(anywhere: World, sent: str) -> None:
    await anywhere.put("f.py", PROGRAM)
    failure = await anywhere.failure("edit", path="f.py", edits=one(sent, "x"))
    assert failure.kind == "invalid_args"
    assert "The closest passage" in failure.message
    assert ("only the spaces differ" in failure.message) == ("return" not in sent)
    assert (await anywhere.get("f.py")).decode() == PROGRAM


async def test_a_stranger_text_is_not_called_close(anywhere: World) -> None:
    await anywhere.put("f.py", PROGRAM)
    failure = await anywhere.failure("edit", path="f.py", edits=one("SELECT * FROM users WHERE id = 7", "x"))
    assert "Nothing in it is similar" in failure.message


async def test_several_places_are_listed_unless_all_are_meant(anywhere: World) -> None:
    await anywhere.put("f.py", PROGRAM)
    failure = await anywhere.failure("edit", path="f.py", edits=one("    if name:", "    if True:"))
    assert failure.kind == "invalid_args"
    assert "2 times in f.py, on lines 2, 7" in failure.message
    value = await anywhere.value("edit", path="f.py", edits=one("    if name:", "    if True:", replace_all=True))
    assert value["replacements"] == 2
    assert (await anywhere.get("f.py")).decode() == PROGRAM.replace("if name", "if True")


async def test_places_that_overlap_are_several(anywhere: World) -> None:
    await anywhere.put("f", "aaa\n")
    assert "2 times" in (await anywhere.failure("edit", path="f", edits=one("aa", "b"))).message
    assert await anywhere.get("f") == b"aaa\n"


async def test_several_edits_are_made_one_after_the_other(anywhere: World) -> None:
    await anywhere.put("f", "one two\n")
    await anywhere.value("edit", path="f", edits=[*one("one", "1"), *one("1 two", "1 2"), *one("\n", "!\n")])
    assert await anywhere.get("f") == b"1 2!\n"


@pytest.mark.parametrize("bad", [("missing", "x"), ("", "x"), ("two", "two"), ("t", "T")])
async def test_if_one_edit_fails_none_is_made(anywhere: World, bad: tuple[str, str]) -> None:
    await anywhere.put("f", "one two three\n")
    failure = await anywhere.failure("edit", path="f", edits=[*one("one", "1"), *one(*bad)])
    assert str(failure.field).startswith("edits[1].")
    assert await anywhere.get("f") == b"one two three\n"


BEFORE = "alpha\nbeta\ngamma\n"


@pytest.mark.parametrize(
    ("before", "edits", "after"),
    [
        pytest.param(b"a\r\nb\r\nc\r\n", one("a\nb", "a\nx\nb"), b"a\r\nx\r\nb\r\nc\r\n", id="crlf, several lines"),
        pytest.param(b"a\r\nb\r\n", one("b", "b\nnew"), b"a\r\nb\r\nnew\r\n", id="crlf, lines added to one"),
        pytest.param(b"a\r\nb\r\n", one("a\r\nb", "x\r\ny"), b"x\r\ny\r\n", id="crlf, sent as it is"),
        pytest.param(b"a\r\nb\r\n", one("a\r\n", "x\n"), b"x\r\nb\r\n", id="crlf, new text sent with lf"),
        pytest.param(b"a\r\nb\r\n", one("b\n", "b\nc\n"), b"a\r\nb\r\nc\r\n", id="crlf, at its end"),
        pytest.param(b"a\r\nb", one("b", "b\nc"), b"a\r\nb\r\nc", id="crlf, no final newline"),
        pytest.param(b"a\r\nb\r\n", one("a", "x\r\ny\nz"), b"x\r\ny\r\nz\r\nb\r\n", id="crlf, new text mixed"),
        pytest.param(b"a\r\nb\r\n", one("\n", "\n\n", replace_all=True), b"a\r\n\r\nb\r\n\r\n", id="crlf, line ends"),
        pytest.param(b"a\nb\r\nc\n", one("b\n", "x\ny\n"), b"a\nx\r\ny\r\nc\n", id="mixed, in its crlf part"),
        pytest.param(b"a\r\nb\nc\r\n", one("a", "a\nnew"), b"a\r\nnew\r\nb\nc\r\n", id="mixed, mostly crlf"),
        pytest.param(b"a\nx\r\nb\n", one("\nb", "\n\nb"), b"a\nx\r\n\r\nb\n", id="mixed, after a crlf"),
        pytest.param(b"a\nb\n", one("a\nb", "a\r\nb"), b"a\r\nb\n", id="lf, crlf asked for"),
        pytest.param(b"a\nb\r\nc\nd\n", one("c", "c\nnew"), b"a\nb\r\nc\nnew\nd\n", id="mixed, mostly lf"),
        pytest.param(b"a\nb\r\n", one("a\n", "x\n"), b"x\nb\r\n", id="mixed, exact"),
        pytest.param(b"\xef\xbb\xbfa\nb\n", one("a", "x"), b"\xef\xbb\xbfx\nb\n", id="byte order mark"),
        pytest.param(b"caf\xe9 \xff\nb\n", one("b", "x"), b"caf\xe9 \xff\nx\n", id="latin-1 bytes"),
        pytest.param(b"a\nb", one("b", "x"), b"a\nx", id="no final newline"),
        pytest.param(b"a\nb\n", one("b", "x"), b"a\nx\n", id="final newline"),
        pytest.param(b"a\x0cb\xe2\x80\xa8c\rd\n", one("b", "x"), b"a\x0cx\xe2\x80\xa8c\rd\n", id="other line ends"),
        pytest.param("zwölf €\n".encode(), one("ö", "ä"), "zwälf €\n".encode(), id="unicode"),
        pytest.param(b"a\n\n\nb\n", one("a\n\n\nb", "ab"), b"ab\n", id="blank lines"),
        pytest.param(b"x = 1\n", one("x = 1\n", ""), b"", id="everything"),
    ],
)
async def test_what_was_not_edited_stays_as_it_was(
    anywhere: World, before: bytes, edits: list[dict[str, Any]], after: bytes
) -> None:
    await anywhere.put("f", before)
    await anywhere.value("edit", path="f", edits=edits)
    assert await anywhere.get("f") == after


async def test_an_edit_of_line_ends_alone_is_refused_in_a_crlf_file(anywhere: World) -> None:
    await anywhere.put("f", b"a\r\nb\r\n")
    failure = await anywhere.failure("edit", path="f", edits=one("a\r\n", "a\n"))
    assert (failure.field, "edit keeps those of the file" in failure.message) == ("edits[0].new", True)
    assert await anywhere.get("f") == b"a\r\nb\r\n"


async def test_one_edit_may_be_sent_flat(anywhere: World) -> None:
    await anywhere.put("f", "one two one\n")
    value = await anywhere.value("edit", path="f", old="two", new="2")
    assert (value["replacements"], await anywhere.get("f")) == (1, b"one 2 one\n")
    await anywhere.value("edit", path="f", old="one", new="", replace_all=True)
    assert await anywhere.get("f") == b" 2 \n"
    failure = await anywhere.failure("edit", path="f", old="three", new="3")
    assert (failure.kind, failure.field) == ("invalid_args", "old")


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ({"old": "one", "new": "x", "edits": one("one", "y")}, "old", "old and new came together with edits"),
        ({"replace_all": True, "edits": one("one", "y")}, "replace_all", "replace_all came together with edits"),
        ({}, "old", "old is missing; send old and new, or a list"),
        ({"old": "one"}, "new", "new is missing"),
        ({"new": "one"}, "old", "old is missing"),
        ({"old": "", "new": "x"}, "old", "empty"),
        ({"old": "one", "new": "one"}, "new", "the same"),
        ({"edits": []}, "edits", ""),
    ],
)
async def test_both_forms_at_once_or_half_of_one_are_refused(
    anywhere: World, arguments: dict[str, Any], field: str, words: str
) -> None:
    await anywhere.put("f", "one\n")
    failure = await anywhere.failure("edit", path="f", **arguments)
    assert (failure.kind, failure.field) == ("invalid_args", field)
    assert words in failure.message
    assert await anywhere.get("f") == b"one\n"


async def test_the_mode_of_a_file_stays(real: World) -> None:
    await real.put("run.sh", "echo 1\n")
    (real.root / "run.sh").chmod(0o755)
    await real.value("edit", path="run.sh", edits=one("1", "2"))
    assert (real.root / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_a_link_stays_a_link_and_its_file_is_changed(real: World) -> None:
    await real.put("f", "one\n")
    (real.root / "link").symlink_to("f")
    await real.value("edit", path="link", edits=one("one", "two"))
    assert (real.root / "link").is_symlink()
    assert await real.get("f") == b"two\n"


HARD = {
    "the same line 50,000 times": ("x\n" * 50_000, "x\n" * 300 + "y"),
    "one long line of two letters": ("ab " * 20_000 + "\n", "ba " * 900),
    "a long line nearly right": (("a" * 1_990 + "\n") * 20, "a" * 1_000 + "b" + "a" * 900),
    "fifty thousand lines alike": ("".join(f"foo bar {n}\n" for n in range(50_000)), "foo bar\nbaz 3"),
    "one line of 8 MB": ("word " * 1_600_000, "word " * 1_000 + "x"),
}


@pytest.mark.parametrize("name", HARD)
async def test_looking_for_the_closest_passage_keeps_nobody_waiting(anywhere: World, name: str) -> None:
    text, sought = HARD[name]
    await anywhere.put("f", text)
    began = process_time()
    assert (await anywhere.failure("edit", path="f", edits=one(sought, "z"))).kind == "invalid_args"
    assert process_time() - began < 10
