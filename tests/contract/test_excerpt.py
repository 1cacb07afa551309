"""A text that lacks its middle says so, and is never broken where it was cut."""

import re
from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import ArtifactRef, Success
from handrail.contract.truncated import Truncated, cut, joined
from tests.gates.shaping import MARKER

PARTS = ["a", "é", "🎉", "\x1b[31m", "\x1b[38;2;255;0;0m", "\x1b[0m", "\x1b]8;;u\x07", "\n"]
BROKEN = re.compile(r"[\x1b\x07]|^[\d;]*m|^;;")


def test_an_excerpt_reads_as_its_text_and_shows_where_the_rest_is() -> None:
    part = Truncated("ab", "yz", 22, 26, ArtifactRef("a_1", 26))
    assert part == "ab\n[… 22 of 26 characters left out; full output: a_1]\nyz"
    assert (part.head, part.tail, part.shown) == ("ab", "yz", 4)
    assert part.of(None) == "ab\n[… 22 of 26 characters left out]\nyz"
    for value in (part, {"a": [part]}):
        wire = Success(value).to_envelope("t")["result"]
        assert type(wire["text"] if value is part else wire["a"][0]) is str
    assert type(deepcopy(part)) is str
    assert Truncated("ab", "", 1, 3).tail == ""


def test_an_excerpt_cut_smaller_is_the_same_as_the_text_cut_once() -> None:
    text = "".join(f"{number:09} " for number in range(1_000))
    whole = ArtifactRef("a_1", len(text))
    for first in (5_000, 100, 7):
        for second in (5_000, 60, 7, 1):
            part = cut(text, first, whole)
            assert isinstance(part, Truncated)
            assert part.within(second) == cut(text, min(first, second), whole)
            assert (part.within(second) is part) == (second >= first)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PARTS), min_size=100), st.integers(20, 90), st.integers(1, 90))
def test_no_cut_ever_breaks_a_character_or_a_sequence(parts: list[str], cap: int, second: int) -> None:
    whole, boundaries = "".join(parts), {0}
    for part in parts:
        boundaries.add(max(boundaries) + len(part))
    once = cut(whole, cap)
    assert isinstance(once, Truncated)
    for shown, most in ((once, cap), (once.within(second), min(cap, second)), (joined(whole, whole, len(whole), 5), 5)):
        shown.encode()
        (mark,) = MARKER.finditer(shown)
        head, tail = shown[: mark.start()], shown[mark.end() :]
        assert (head, tail) == (shown.head, shown.tail)
        assert len(head) in boundaries
        assert len(whole) - len(tail) in boundaries
        assert int(mark["left"].replace(",", "")) == len(whole) - len(head) - len(tail) == shown.left_out
        assert shown.shown <= most


def test_the_control_a_plain_slice_breaks_a_sequence() -> None:
    text = "\x1b[38;5;196mred\x1b[0m " * 100
    assert BROKEN.search(re.sub(r"\x1b\[[0-9;]*m", "", text[:103]))
    part = cut(text, 103)
    assert isinstance(part, Truncated)
    assert not BROKEN.search(re.sub(r"\x1b\[[0-9;]*m", "", part.head))
