"""A command's streams: each within its cap, kept whole, and never broken where they were cut."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Context, Failure, Session, Success, tool
from handrail.artifacts.keep import keep_stream
from handrail.gates.shape_cut import MARKER, cut
from tests.gates.shaping import answer, numbered

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


async def test_a_stream_that_the_sandbox_cut_is_not_cut_twice_and_shrinks_from_the_whole() -> None:
    whole = numbered(300_000)

    @tool
    async def run(context: Context) -> Any:
        kept = await keep_stream(
            context.artifacts, lambda start, length: whole.encode()[start : start + length], "stdout"
        )
        return {"exit_code": 0, "stdout": cut(whole, 50_000, kept.ref), "stderr": ""}

    async with Session([run]) as session:
        first = (await session.call("run")).value["stdout"]
        (mark,) = MARKER.finditer(first)
        assert first == cut(whole, 50_000, mark["ref"])
        assert await session.artifacts.read(mark["ref"]) == whole.encode()
        session.tokens_left = 20_000
        assert (await session.call("run")).value["stdout"] == cut(whole, 10_000, mark["ref"])


async def test_a_stream_that_the_sandbox_cut_inside_a_sequence_is_made_whole_again() -> None:
    piece = "\x1b[38;5;196mred\x1b[0m "
    whole = piece * 10_000

    @tool
    async def run(context: Context) -> Any:
        kept = await keep_stream(
            context.artifacts, lambda start, length: whole.encode()[start : start + length], "stdout"
        )
        broken = (
            f"{whole[:20_003]}\n[… 1 of {len(whole):,} characters left out; full output: {kept.ref}]\n{whole[-29_002:]}"
        )
        assert any("\x1b" in part for part in SEQUENCE.split(broken)), "the control: it is broken"
        return {"exit_code": 0, "stdout": broken, "stderr": ""}

    async with Session([run]) as session:
        shown = (await session.call("run")).value["stdout"]
    assert_unbroken(shown, whole)


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
