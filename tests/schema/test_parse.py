"""Strict JSON: one meaning per text, and the same hash for the same arguments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.schema.parse import DEEPEST_VALUE, NotJson, arguments_hash, canonical, parse, plain

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
REFUSED = [
    '{"a": 1, "a": 1}', '[{"b": {"a": 1, "c": 2, "a": 3}}]', "NaN", "[Infinity]", "-Infinity", "1e999", "[-1e999]",
    "9" * 5_000, "", " ", "{", "nul", "{'a': 1}", "[1,]", '"a\nb"', '"\\ud800"', '"\ud800"', '{"\\udfff": 1}',
    "[" * (DEEPEST_VALUE + 2) + "]" * (DEEPEST_VALUE + 2), "[" * 100_000, '{"a":' * 20_000, "[" * 20_000 + "]" * 20_000,
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode())
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(NotJson) as caught:
        parse(text)
    assert caught.value.message


@given(plain_values)
def test_everything_else_reads_as_json_does(value: Any) -> None:
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return
    assert parse(text) == json.loads(text)
    assert plain(value) is None


def test_depth_up_to_the_limit_and_paired_surrogates_are_read() -> None:
    assert parse("[" * DEEPEST_VALUE + "]" * DEEPEST_VALUE)
    assert parse('"\\ud83d\\ude00"') == "😀"
    assert parse('{"a": 1, "b": {"a": 2}}') == {"a": 1, "b": {"a": 2}}


def test_a_position_is_told() -> None:
    with pytest.raises(NotJson) as caught:
        parse('{"a": 1 "b"}')
    assert caught.value.position == 8


def test_the_hash_does_not_depend_on_order_or_spacing() -> None:
    assert arguments_hash('{"b": 1, "a": [1, 2]}') == arguments_hash({"a": [1, 2], "b": 1})
    assert arguments_hash('{"a": 1}') != arguments_hash('{"a": 2}')
    assert arguments_hash("not json") != arguments_hash("not  json")
    assert canonical({"b": 1, "a": "ü"}) == '{"a":"\\u00fc","b":1}'


@pytest.mark.parametrize("odd", [{"a": {1, 2}}, {"a": float("nan")}, {1: 2, "a": 3}, {"a": "\ud800"}, {"a": b"x"}])
def test_any_mapping_has_a_hash(odd: Any) -> None:
    assert len(arguments_hash(odd)) == 64


def test_a_circle_is_not_plain_and_has_a_hash() -> None:
    circle: dict[str, Any] = {}
    circle["a"] = [circle]
    assert plain(circle) is not None
    assert len(arguments_hash(circle)) == 64
