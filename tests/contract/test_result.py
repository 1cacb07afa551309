"""An envelope is read as it was written, and never by looking for words inside it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import ArtifactRef, Failure, HandrailError, Image, Result, Success, ToolFailed, read_envelope
from handrail.contract.errors import BadEnvelope
from handrail.contract.result import FAILURE_KINDS, RETRY_MAY_HELP

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
tricky = st.sampled_from(['{"ok": false}', '"ok": false', "[REJECTED] x", '{"ok": true, "result": 1}', "", "\x00"])
words = text | tricky
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.just("ok"), inner, max_size=4),
    max_leaves=12,
)
# `{"text": "…"}` is how the wire says plain text, so as a value it reads back as that text
objects = values.filter(
    lambda value: not (isinstance(value, dict) and value.keys() == {"text"} and isinstance(value["text"], str))
)
notes = st.lists(words, max_size=3).map(tuple)


@given(objects, notes)
def test_a_success_comes_back_as_it_went(value: Any, warnings: tuple[str, ...]) -> None:
    went = Success(value, warnings)
    assert read_envelope(json.dumps(went.to_envelope("t"))) == went


@given(
    st.sampled_from(sorted(FAILURE_KINDS)),
    words,
    st.none() | words,
    st.none() | words,
    st.none() | st.dictionaries(words, values, min_size=1, max_size=3),
    notes,
    st.none() | st.booleans(),
)
def test_a_failure_comes_back_as_it_went(
    kind: Any, message: str, field: Any, expected: Any, data: Any, warnings: Any, retryable: Any
) -> None:
    went = Failure(kind, message, field=field, expected=expected, data=data, warnings=warnings, retryable=retryable)
    came = read_envelope(json.dumps(went.to_envelope("t")))
    assert came == went
    assert came.ok is False


def test_a_success_that_contains_a_failure_inside_is_a_success() -> None:
    inner = Failure("rejected", "no").to_envelope("inner")
    for value in (inner, json.dumps(inner), ["[TIMEOUT]", inner], '"ok": false'):
        came = read_envelope(json.dumps(Success(value).to_envelope("t")))
        assert came == Success(value)
    assert read_envelope(json.dumps(inner)) == Failure("rejected", "no")  # the control


def test_the_wire_has_these_keys_in_this_order_and_no_empty_ones() -> None:
    assert json.dumps(Success({"a": 1}).to_envelope("t")) == '{"ok": true, "tool": "t", "result": {"a": 1}}'
    assert Success("x").to_envelope("t")["result"] == {"text": "x"}
    assert [Success(v).to_envelope("t")["result"] for v in (False, None, 0, [])] == [False, None, 0, []]
    assert list(Success(1, ("w",)).to_envelope("t")) == ["ok", "tool", "result", "warnings"]
    assert list(Failure("timeout", "m").to_envelope("t")) == ["ok", "kind", "message", "tool", "retryable"]
    full = Failure("invalid_args", "m", field="f", expected="e", data={"d": 1}, warnings=("w",))
    assert list(full.to_envelope("t")) == [
        "ok", "kind", "message", "field", "expected", "tool", "retryable", "data", "warnings",
    ]  # fmt: skip


def test_whether_a_retry_may_help_follows_from_the_kind_unless_it_is_said() -> None:
    assert {"invalid_args", "timeout", "execution_error", "unavailable"} == RETRY_MAY_HELP
    for kind in FAILURE_KINDS:
        assert Failure(kind, "m").retryable is (kind in RETRY_MAY_HELP)  # type: ignore[arg-type]
    assert Failure("unavailable", "the workspace is lost", retryable=False).retryable is False
    with pytest.raises(ValueError, match="not a failure kind"):
        Failure("oops", "m")  # type: ignore[arg-type]


def test_old_prefixes_are_known_at_the_beginning_only() -> None:
    assert read_envelope("[REJECTED] not allowed") == Failure("rejected", "not allowed")
    assert read_envelope("[TIMEOUT] after 5 s") == Failure("timeout", "after 5 s")
    with pytest.raises(BadEnvelope):
        read_envelope("it said [REJECTED]")


@pytest.mark.parametrize(
    "wrong",
    [
        "", "no JSON", "[]", "5", "null", '{"ok": 1}', '{"ok": "true", "result": 1}', '{"ok": true}', "{}",
        '{"ok": false}', '{"ok": false, "kind": "oops", "message": "m"}', '{"ok": false, "kind": "timeout"}',
        '{"ok": false, "kind": "timeout", "message": "m", "data": [1]}', "[" * 100_000,
        '{"ok": true, "result": 1, "warnings": 5}', '{"ok": true, "result": 1, "warnings": "w"}',
        '{"ok": false, "kind": ["timeout"], "message": "m"}', '{"ok": false, "kind": {}, "message": "m"}',
        '{"ok": false, "kind": "timeout", "message": "m", "field": 5}',
        '{"ok": false, "kind": "timeout", "message": "m", "expected": ["a"]}',
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_text_that_is_no_envelope_is_refused(wrong: str) -> None:
    with pytest.raises(BadEnvelope, match="not a result envelope"):
        read_envelope(wrong)
    assert issubclass(BadEnvelope, HandrailError)


json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
FIELDS = ("ok", "kind", "message", "result", "warnings", "data", "field", "expected", "retryable")
envelopes = st.fixed_dictionaries(
    {}, optional={name: json_values | st.sampled_from([True, False, "timeout"]) for name in FIELDS}
)


@given(envelopes | json_values)
def test_whatever_json_is_read_it_is_a_result_or_no_envelope(value: Any) -> None:
    try:
        result = read_envelope(json.dumps(value))
    except BadEnvelope:
        return
    assert all(isinstance(warning, str) for warning in result.warnings)
    if not result.ok:
        assert result.field is None or isinstance(result.field, str)
        assert result.expected is None or isinstance(result.expected, str)


@pytest.mark.parametrize("wrong", [None, 5, b'{"ok": true, "result": 1}', {"ok": True, "result": 1}])
def test_what_is_no_text_is_no_envelope(wrong: Any) -> None:
    with pytest.raises(BadEnvelope, match="not a result envelope"):
        read_envelope(wrong)


def test_pictures_and_references_show_their_outside_on_the_wire_and_never_their_bytes() -> None:
    value = {"a": [Image(b"\x89PNG")], "b": ArtifactRef("r1", 5, "text/plain", "x.txt")}
    wire = Success(value).to_envelope("t")["result"]
    assert wire == {
        "a": [{"kind": "image", "media_type": "image/png", "size": 4}],
        "b": {"$artifact": "r1", "size": 5, "media_type": "text/plain", "name": "x.txt"},
    }
    assert "PNG" not in repr(value["a"])
    assert Image(b"\x89PNG").base64() == "iVBORw=="


def test_a_tool_failure_can_be_raised_and_says_its_message() -> None:
    failure = Failure("not_found", "no such note")
    with pytest.raises(ToolFailed, match="no such note") as raised:
        raise ToolFailed(failure)
    assert raised.value.failure is failure


def test_a_result_can_be_read_without_asking_which_one_it_is() -> None:
    results: list[Result] = [Success(42, ("careful",)), Failure("timeout", "too long", data={"exit_code": 124})]
    assert [result.value if result.ok else result.message for result in results] == [42, "too long"]
    assert [(r.ok, r.kind, r.value, r.message, r.retryable) for r in results] == [
        (True, None, 42, "", False), (False, "timeout", None, "too long", True),
    ]  # fmt: skip
    assert [dict(result.data) for result in results] == [{}, {"exit_code": 124}]


def test_both_kinds_of_result_have_the_same_fields() -> None:
    success, failure = Success(1), Failure("timeout", "too long")
    names = {name for name in dir(failure) if not name.startswith("_")}
    assert names == {name for name in dir(success) if not name.startswith("_")}
    assert {"value", "kind", "data", "field", "expected"} <= names


@pytest.mark.parametrize("text", ["", "hello", "{", "[1]", '{"ok": 1}', '{"ok": false, "kind": "unheard of"}', "null"])
def test_any_text_is_a_success_where_envelopes_are_not_required(text: str) -> None:
    assert read_envelope(text, strict=False) == Success({"text": text})
    with pytest.raises(BadEnvelope):
        read_envelope(text)


def test_an_envelope_is_read_as_one_whether_required_or_not() -> None:
    for went in (Success({"n": 1}, ("w",)), Failure("not_found", "gone", field="path")):
        assert read_envelope(json.dumps(went.to_envelope("t")), strict=False) == went
    assert read_envelope("[TIMEOUT] slow", strict=False) == Failure("timeout", "slow")
    with pytest.raises(BadEnvelope):
        read_envelope({"ok": True}, strict=False)  # type: ignore[arg-type]
