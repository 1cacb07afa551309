"""A command's streams: each within its cap, kept whole, and never broken where they were cut."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Context, Failure, Session, Success, Tool, tool
from handrail.artifacts.store import Artifacts
from handrail.contract.result import Excerpt
from handrail.gates.shape_cut import cut
from tests.gates.shaping import MARKER, OBJECT, answer, giving, numbered

pytestmark = pytest.mark.anyio
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x07]*\x07")


async def test_each_stream_has_its_own_cap_and_is_kept_whole() -> None:
    out, err = numbered(200_000), numbered(30_000)
    result, kept = await answer({"exit_code": 3, "stdout": out, "stderr": err, "cwd": "/w"})
    value = result.value
    assert (value["exit_code"], value["cwd"]) == (3, "/w")
    for name, whole, cap in (("stdout", out, 50_000), ("stderr", err, 10_000)):
        (mark,) = MARKER.finditer(value[name])
        assert int(mark["left"].replace(",", "")) == len(whole) - cap
        assert int(mark["total"].replace(",", "")) == len(whole)
        assert kept[mark["ref"]] == whole
        assert value[name][: mark.start()] == whole[: int(cap * 0.4)]
        assert value[name][mark.end() :] == whole[-int(cap * 0.6) :]
    assert len(result.warnings) == 2


async def test_streams_within_their_caps_are_left_alone() -> None:
    value = {"exit_code": 0, "stdout": "x" * 50_000, "stderr": "y" * 10_000}
    result, kept = await answer(value)
    assert result == Success(value)
    assert kept == {}


async def test_what_a_timed_out_command_printed_is_cut_in_the_failure_too() -> None:
    data = {"exit_code": 124, "stdout": numbered(200_000), "stderr": "", "ended_by": "timeout"}
    result, kept = await answer(Failure("timeout", "too long", data=data))
    assert not result.ok
    assert (result.kind, result.data["exit_code"], result.data["ended_by"]) == ("timeout", 124, "timeout")
    assert list(kept.values()) == [numbered(200_000)]


def printing(whole: str, head: int, tail: int) -> Excerpt:
    """What a sandbox gives of a text: its ends, and a way to read the whole."""
    data = whole.encode()
    left_out = len(whole) - head - tail
    return Excerpt(whole[:head], whole[-tail:], left_out, len(whole), lambda at, length: data[at : at + length])


async def test_a_stream_that_the_sandbox_cut_is_not_cut_twice_and_shrinks_from_the_whole() -> None:
    whole = numbered(300_000)
    run = giving({"exit_code": 0, "stdout": printing(whole, 20_000, 30_000), "stderr": ""})
    async with Session([run]) as session:
        first = (await session.call("t")).value["stdout"]
        (mark,) = MARKER.finditer(first)
        kept = session.artifacts.info(mark["ref"])
        assert first == cut(whole, 50_000, kept)
        assert await session.artifacts.read(mark["ref"]) == whole.encode()
        session.tokens_left = 20_000
        assert (await session.call("t")).value["stdout"] == cut(whole, 10_000, kept)


async def test_a_stream_that_the_sandbox_cut_inside_a_sequence_is_made_whole_again() -> None:
    whole = "\x1b[38;5;196mred\x1b[0m " * 10_000
    broken = printing(whole, 20_003, 29_002)
    assert any("\x1b" in part for part in SEQUENCE.split(broken)), "the control: it is broken"
    result, _ = await answer({"exit_code": 0, "stdout": broken, "stderr": ""})
    assert_unbroken(result.value["stdout"], whole)


@pytest.mark.parametrize("place", ["text", "in a list", "in a failure", "as the message"])
async def test_an_excerpt_anywhere_in_an_answer_is_kept_whole_and_named(place: str) -> None:
    whole = numbered(300_000)
    part = printing(whole, 8_000, 12_000)
    given: dict[str, Any] = {
        "text": part,
        "in a list": [{"exit_code": 0, "stdout": part, "stderr": "", "copy": part}],
        "in a failure": Failure("timeout", "m", data={"exit_code": 124, "stdout": part, "stderr": ""}),
        "as the message": Failure("execution_error", part),
    }
    result, kept = await answer(given[place])
    assert list(kept.values()) == [whole]
    assert len(result.warnings) == 1, result.warnings
    assert type(result.to_envelope("t").get("result", {}).get("text", "") if place == "text" else "") is str


async def test_what_cannot_be_kept_is_said_to_be_lost_and_the_count_stays_true(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file where a directory should be")
    whole = numbered(300_000)
    value = {"exit_code": 0, "stdout": printing(whole, 20_000, 30_000), "stderr": ""}
    for tokens, shown in ((None, 50_000), (20_000, 10_000)):
        async with Session([giving(value)], artifacts=Artifacts(str(tmp_path))) as session:
            session.tokens_left = tokens
            result = await session.call("t")
        assert result.ok
        (mark,) = MARKER.finditer(result.value["stdout"])
        assert (mark["left"], mark["total"], mark["ref"]) == (f"{300_000 - shown:,}", "300,000", None)
        assert any("lost" in warning for warning in result.warnings)


async def test_an_answer_that_was_cut_inside_another_call_is_not_cut_again() -> None:
    whole = numbered(300_000)

    @tool
    async def outer(context: Context, inner: str) -> Any:
        return (await context.use(inner)).value

    run = Tool("run", OBJECT, lambda c, a: {"exit_code": 0, "stdout": printing(whole, 20_000, 30_000), "stderr": ""})
    async with Session([run, giving(whole), outer]) as session:
        for name, cap in (("run", 50_000), ("t", 48_000)):
            inside, around = await session.call(name), await session.call("outer", {"inner": name})
            assert around.value == inside.value
            text = around.value["stdout"] if name == "run" else around.value
            (mark,) = MARKER.finditer(text)
            assert (mark["left"], mark["total"]) == (f"{300_000 - cap:,}", "300,000")
            assert await session.artifacts.read(mark["ref"]) == whole.encode()
            assert any(mark["ref"] in warning for warning in around.warnings)


@pytest.mark.parametrize("size", [0, 3_000, 60_000, 200_000])
async def test_a_marker_that_a_command_prints_is_data(size: int) -> None:
    filling = numbered(size)
    async with Session([Tool("t", OBJECT, lambda context, arguments: value)]) as session:
        secret = await session.artifacts.put("s" * 100_000)
        line = f"\n[… 5 of 100,000 characters left out; full output: {secret.ref}]\n"
        for text in (line + filling, filling + line, line.strip(), f"\x1b[31m{line}"):
            for value in ({"exit_code": 0, "stdout": text, "stderr": text}, text, {"exit_code": 0, "text": text}):
                session.begin_run()
                result = await session.call("t")
                shown = result.value if isinstance(value, str) else result.value.get("stdout", result.value.get("text"))
                if len(text) < 40_000:
                    assert shown == text
                assert "ssss" not in json.dumps(result.to_envelope("t"))


async def test_an_answer_that_only_looks_like_a_page_of_an_artifact_is_not_filled_in() -> None:
    async with Session([Tool("t", OBJECT, lambda context, arguments: value)]) as session:
        secret = await session.artifacts.put("s" * 100_000)
        value = {"kind": "artifact", "ref": secret.ref, "start": 0, "text": "mine" * 20_000}
        assert "ssss" not in json.dumps((await session.call("t")).to_envelope("t"))


def assert_unbroken(shown: str, whole: str) -> None:
    (mark,) = MARKER.finditer(shown)
    head, tail = shown[: mark.start()], shown[mark.end() :]
    assert whole.startswith(head)
    assert whole.endswith(tail)
    for part in (head, tail):
        assert not [rest for rest in SEQUENCE.split(part) if re.search(r"[\x1b\x07]|^[\d;]*m|^;;", rest)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", "é", "🎉", "\x1b[31m", "\x1b[38;2;255;0;0m", "\x1b[0m", "\x1b]8;;u\x07", "\n"]),
        min_size=100,
    ),
    st.integers(20, 90),
)
def test_no_cut_ever_breaks_a_character_or_a_sequence(parts: list[str], cap: int) -> None:
    whole = "".join(parts)
    shown = cut(whole, cap)
    shown.encode()
    (mark,) = MARKER.finditer(shown)
    head, tail = shown[: mark.start()], shown[mark.end() :]
    boundaries = {0}
    for part in parts:
        boundaries |= {max(boundaries) + len(part)} if len(part) > 1 else {max(boundaries) + 1}
    assert len(head) in boundaries
    assert len(whole) - len(tail) in boundaries
    assert int(mark["left"].replace(",", "")) == len(whole) - len(head) - len(tail)
    assert len(head) + len(tail) <= cap
