"""An answer is cut to a size the model can read: its beginning, its end, what is missing; an error stays one."""

import json
import re
from typing import Any

import pytest

from handrail import ArtifactRef, Context, Failure, Session, Success, Tool, ToolFailed, tool
from handrail.artifacts.store import Artifacts
from handrail.gates.shape import collapsed
from tests.gates.shaping import MARKER, OBJECT, answer, giving, numbered

pytestmark = pytest.mark.anyio
MARK = re.compile(r"\[… ([\d,]+) of ([\d,]+) characters left out")


async def result_of(value: Any, **options: Any) -> Any:
    return (await answer(value, **options))[0]


@pytest.mark.parametrize("cap", [10, 100, 999])
async def test_a_text_at_its_cap_is_whole_and_a_longer_one_keeps_40_and_60_percent(cap: int) -> None:
    text = "".join(chr(0x4E00 + n) for n in range(cap))
    assert (await result_of(text, output_cap=cap)) == Success(text)
    longer = text + "end"
    shown = (await result_of(longer, output_cap=cap)).value
    head = int(cap * 0.4)
    assert shown.startswith(f"{text[:head]}\n[…")
    assert shown.endswith(f"]\n{longer[-(cap - head) :]}")
    (mark,) = MARK.findall(shown)
    assert mark == ("3", f"{len(longer):,}")


async def test_there_is_a_cap_also_where_the_tool_sets_none() -> None:
    cut = await result_of("a" * 100_000 + "b" * 100_000)
    assert len(cut.value) <= 100_200
    assert MARK.findall(cut.value)[0][1] == "200,000"
    assert cut.value[0] + cut.value[-1] == "ab"
    small = "x" * 40_000
    assert (await result_of(small)).value == small


async def test_what_was_cut_is_said_in_a_warning_and_what_was_not_is_not() -> None:
    (warning,) = (await result_of("x" * 50, output_cap=10)).warnings
    assert "50" in warning
    assert "10" in warning
    assert (await result_of("x" * 10, output_cap=10)).warnings == ()
    kept = await result_of(Success("x" * 50, ("mine",)), output_cap=10)
    assert kept.warnings[0] == "mine"
    assert len(kept.warnings) == 2


async def test_data_within_its_cap_as_json_is_whole_and_beyond_it_is_made_smaller() -> None:
    value = list(range(1_000))
    size = len(json.dumps(value))
    assert (await result_of(value, output_cap=size)).value == value
    shown = (await result_of(value, output_cap=size // 2)).to_envelope("t")
    assert len(json.dumps(shown)) < size * 0.8
    for small in (5, None, True, 1.5):
        assert (await result_of(small, output_cap=1)).value == small


async def test_a_failure_is_cut_too_and_stays_a_failure() -> None:
    told = Failure("not_found", "m" * 5_000, field="f", data={"seen": "d" * 5_000}, retryable=True)
    shown = await result_of(told, output_cap=1_000)
    assert isinstance(shown, Failure)
    assert (shown.kind, shown.field, shown.retryable) == ("not_found", "f", True)
    assert MARK.findall(shown.message) == [("4,000", "5,000")]
    assert len(json.dumps(shown.data)) < 1_500
    assert (await result_of(told)) == told  # the control: within the usual cap it is whole


async def test_a_plain_text_shows_48_000_characters_and_is_kept() -> None:
    text = numbered(100_000)
    result, kept = await answer(text)
    (mark,) = MARKER.finditer(result.value)
    assert len(result.value) - len(mark[0]) == 48_000
    assert kept[mark["ref"]] == text
    assert any("read_artifact" in warning for warning in result.warnings)


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


async def test_beyond_64_mib_an_answer_is_still_kept_whole() -> None:
    whole = "a" + "x" * (65 << 20) + "z"
    result, kept = await answer(whole)
    (text,) = kept.values()
    assert text == whole
    assert f"of {len(whole):,} characters left out; full output" in result.value


async def test_keys_that_become_one_are_said_in_a_warning() -> None:
    result = await result_of({"rows": {1: "a", "1": "b"}})
    assert result.value == {"rows": {"1": "b"}}
    assert any("`rows.1`" in warning and "several keys" in warning for warning in result.warnings)
    assert (await result_of({1: "a", "2": "b"})).warnings == ()  # the control
