"""Each kind of answer has its own cap; what is left out can be read; an error stays an error."""

import json
from typing import Any

import pytest

from handrail import ArtifactRef, Context, Failure, Session, Success, Tool, ToolFailed, tool
from handrail.artifacts.store import Artifacts
from handrail.gates.shape_caps import FULL, caps_for, percent_of
from handrail.gates.shape_lists import collapsed
from tests.gates.shaping import MARKER, OBJECT, answer, giving, numbered

pytestmark = pytest.mark.anyio


async def test_a_plain_text_shows_48_000_characters_and_is_kept() -> None:
    text = numbered(100_000)
    result, kept = await answer(text)
    (mark,) = MARKER.finditer(result.value)
    assert len(result.value) - len(mark[0]) == 48_000
    assert kept[mark["ref"]] == text
    assert any("read_artifact" in warning for warning in result.warnings)


async def test_a_file_shows_whole_lines_and_the_offset_to_go_on() -> None:
    text = "".join(f"line {n}\n" for n in range(10, 5_010))
    file = {
        "kind": "file",
        "path": "p",
        "start_line": 10,
        "end_line": 5_009,
        "total_lines": 9_000,
        "size": 9,
        "truncated": False,
    }
    result, _ = await answer(Success({**file, "text": text}, ("Lines 10 to 5009 are shown; go on with offset=5010.",)))
    value = result.value
    assert (value["start_line"], value["end_line"], value["truncated"]) == (10, 2_009, True)
    assert value["text"].endswith("line 2009\n")
    assert [warning for warning in result.warnings if "offset=2010" in warning]
    assert not [warning for warning in result.warnings if "offset=5010" in warning]
    wide, _ = await answer({**file, "text": ("é" * 1_000 + "\n") * 100})
    assert len(wide.value["text"].encode()) <= 50 << 10
    assert wide.value["text"].endswith("é\n")
    small = {**file, "text": "x\n" * 1_999}
    assert (await answer(small))[0].value == small


async def test_a_first_line_that_is_too_long_shows_both_its_ends() -> None:
    line = numbered(200_000) + "\nnext\n"
    result, kept = await answer({"kind": "file", "path": "p", "text": line, "start_line": 1, "end_line": 2})
    assert (result.value["end_line"], result.value["truncated"]) == (1, True)
    assert result.value["text"].startswith("000000000 ")
    assert numbered(200_000) + "\n" in kept.values()


@pytest.mark.parametrize(
    ("kind", "key", "cap"), [("listing", "entries", 500), ("matches", "matches", 100), ("paths", "paths", 1_000)]
)
async def test_a_list_shows_so_many_entries_and_keeps_all(kind: str, key: str, cap: int) -> None:
    entries = [{"name": f"n{n}", "path": f"p/n{n}", "type": "file"} for n in range(cap + 7)]
    value = {"kind": kind, "path": "p", key: entries, "entry_count": len(entries), "truncated": False}
    result, kept = await answer(value)
    assert result.value[key] == entries[:cap]
    assert (result.value["truncated"], result.value["entry_count"]) == (True, cap + 7)
    assert [json.loads(text) for text in kept.values()] == [entries]
    whole = {**value, key: entries[:cap]}
    assert (await answer(whole))[0].value == whole


async def test_a_matching_line_shows_500_characters() -> None:
    match = {"path": "p", "line": 1, "text": "x" * 700, "before": ["y" * 5, "z" * 900]}
    result, kept = await answer({"kind": "matches", "matches": [match]})
    (shown,) = result.value["matches"]
    assert shown["text"] == "x" * 500 + " [… 200 more characters]"
    assert shown["before"] == ["y" * 5, "z" * 500 + " [… 400 more characters]"]
    assert [json.loads(text) for text in kept.values()] == [[match]]
    again = {"kind": "matches", "matches": [shown]}
    assert (await answer(again))[0].value == again, "what was cut before is not cut again"


async def test_long_entries_are_limited_by_their_characters_too() -> None:
    result, _ = await answer({"kind": "paths", "paths": ["p" * 1_000] * 900})
    assert 80 <= len(result.value["paths"]) < 95
    assert len(json.dumps(result.to_envelope("t"))) < 101_000


async def test_anything_else_shows_100_000_characters_and_its_small_fields_stay() -> None:
    value = {"exit_code": 7, "log": "a" + "b" * 300_000 + "c", "rows": list(range(100_000)), "killed_by": "user"}
    result, kept = await answer(value)
    assert (result.value["exit_code"], result.value["killed_by"]) == (7, "user")
    assert result.value["log"][0] + result.value["log"][-1] == "ac"
    assert result.value["rows"].endswith("99999]")
    assert len(json.dumps(result.value, ensure_ascii=False)) < 101_000
    assert [json.loads(text) for text in kept.values()] == [value]
    many = {f"k{n}": n for n in range(20_000)}
    result, kept = await answer(many)
    assert isinstance(result.value, str)
    assert [json.loads(text) for text in kept.values()] == [many]
    inside = {"a": "x" * 60_000, "b": ["y" * 30_000]}
    assert (await answer(inside))[0] == Success(inside)


async def test_a_commands_other_fields_are_cut_and_its_exit_code_is_not() -> None:
    value = {"exit_code": 1, "stdout": "out", "stderr": "", "trace": "t" * 500_000}
    result, _ = await answer(value)
    assert (result.value["exit_code"], result.value["stdout"]) == (1, "out")
    assert len(result.value["trace"]) < 101_000


async def test_caps_shrink_with_the_tokens_left_and_never_to_nothing() -> None:
    sizes = []
    for tokens in (None, 1_000_000, 100_000, 50_000, 10_000, 0, -5):
        result, kept = await answer(numbered(200_000), tokens=tokens)
        assert list(kept.values()) == [numbered(200_000)]
        sizes.append(len(MARKER.sub("", result.value)))
    assert sizes == [48_000, 48_000, 48_000, 24_000, 4_800, 4_800, 4_800]
    listing = {"kind": "listing", "entries": list(range(400))}
    assert len((await answer(listing, tokens=20_000))[0].value["entries"]) == 100
    small, _ = await answer({"a": 1}, tokens=0)
    assert small.value == {"a": 1}


def test_caps_are_the_documented_ones_and_a_tools_own_replaces_them() -> None:
    assert (FULL.text, FULL.stdout, FULL.stderr, FULL.other) == (48_000, 50_000, 10_000, 100_000)
    assert (FULL.lines, FULL.file, FULL.entries, FULL.matches, FULL.match, FULL.paths) == (
        2_000,
        51_200,
        500,
        100,
        500,
        1_000,
    )
    assert caps_for(None, 100) is FULL
    own = caps_for(600, 100)
    assert (own.text, own.stdout, own.stderr, own.other) == (600, 500, 100, 600)
    assert [percent_of(tokens) for tokens in (None, 200_000, 50_000, 0)] == [100, 100, 50, 0]


async def test_a_tools_own_cap_may_be_larger() -> None:
    text = "x" * 90_000
    assert (await answer(text, output_cap=90_000))[0] == Success(text)


def test_an_old_listing_collapses_to_its_count_and_path() -> None:
    assert collapsed({"kind": "listing", "path": "src", "entries": [], "entry_count": 12}) == "12 entries in src"
    assert collapsed({"kind": "listing", "path": "src", "entries": [1, 2]}) == "2 entries in src"
    assert collapsed({"kind": "file"}) is None
    assert collapsed("text") is None


async def test_an_artifact_that_is_gone_is_never_shown() -> None:
    @tool
    async def make(context: Context) -> Any:
        kept, gone = await context.artifacts.put(b"kept"), await context.artifacts.put(b"gone")
        context.artifacts.pin(gone)
        context.artifacts.unpin(gone)
        return {"good": kept, "bad": [gone]}

    async with Session([make, giving(ArtifactRef("a_" + "0" * 32))]) as session:
        result = await session.call("make")
        assert result.value["bad"] == [None]
        assert result.warnings
        assert await session.artifacts.read(result.value["good"]) == b"kept"
        assert (await session.call("t")).value is None


async def test_an_artifact_that_was_shown_stays_after_its_pins_are_gone() -> None:
    @tool
    async def make(context: Context) -> Any:
        kept = await context.artifacts.put(b"kept")
        context.artifacts.pin(kept)
        return kept

    async with Session([make]) as session:
        kept = (await session.call("make")).value
        session.artifacts.unpin(kept)
        assert session.artifacts.sweep() == 0
        assert await session.artifacts.read(kept) == b"kept"


async def test_what_was_left_out_stays_for_as_long_as_the_session() -> None:
    async with Session([giving(numbered(100_000))]) as session:
        (mark,) = MARKER.finditer((await session.call("t")).value)
        assert session.artifacts.sweep() == 0
        assert await session.artifacts.read(mark["ref"]) == numbered(100_000).encode()


async def test_where_nothing_can_be_kept_the_answer_still_comes_and_says_so(tmp_path: Any) -> None:
    (tmp_path / "objects").write_text("a file where a directory should be")
    async with Session([giving(numbered(100_000))], artifacts=Artifacts(str(tmp_path))) as session:
        result = await session.call("t")
    assert result.ok
    assert MARKER.search(result.value)["ref"] is None  # type: ignore[index]
    assert any("lost" in warning for warning in result.warnings)


async def test_an_error_never_becomes_a_success_and_what_has_no_json_is_an_error() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    for value in (circle, object(), {"x": object()}):
        result, _ = await answer(value)
        assert not result.ok
        assert result.kind == "execution_error"

    async def fails(context: Context, arguments: Any) -> Any:
        raise ToolFailed(Failure("not_found", "m" * 200_000, data={"a": "b" * 300_000, "code": 5}))

    async with Session([Tool("t", OBJECT, fails)]) as session:
        result = await session.call("t")
    assert not result.ok
    assert (result.kind, result.data["code"]) == ("not_found", 5)
    assert len(json.dumps(result.to_envelope("t"))) < 160_000


async def test_warnings_are_kept_to_a_readable_number() -> None:
    result, _ = await answer(Success(1, tuple("w" * 5_000 for _ in range(500))))
    assert len(result.warnings) == 51
    assert max(map(len, result.warnings)) < 2_100


async def test_beyond_64_mib_both_ends_are_kept() -> None:
    whole = "a" + "x" * (65 << 20) + "z"
    result, kept = await answer(whole)
    (text,) = kept.values()
    assert len(text) < (64 << 20) + 200
    assert (text[0], text[-1]) == ("a", "z")
    assert "discarded here" in text
    assert f"of {len(whole):,} characters left out" in result.value
