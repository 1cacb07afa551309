"""Nothing that a model sends raises out of preflight, hangs it, or uses unbounded memory or stack."""

import json
import time
import tracemalloc
from typing import Any

import pytest

from handrail.contract.result import Failure
from handrail.schema.prepare import MAX_REPAIRED_CHARS, Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.shapes import VALIDATORS, closed

HANG = 8.0
"""Seconds of this process's own work: no figure, only a bound on hanging."""
DEEP = 10_000


def nested(levels: int, leaf: Any = 1) -> Any:
    value = leaf
    for _ in range(levels):
        value = {"left": value, "value": 1}
    return value


def union_tree() -> Validator:
    branches = [closed({key: {"type": "integer"}, "left": {"$ref": "#/$defs/e"}}, "left") for key in "pqrs"]
    expression = {"anyOf": [*branches, {"type": "integer"}]}
    return Validator(closed({"x": {"$ref": "#/$defs/e"}}, "x", **{"$defs": {"e": expression}}))


def deep_union(levels: int) -> Validator:
    schema: Any = {"type": "integer"}
    for level in range(levels):
        schema = {"anyOf": [schema, {"type": "array", "items": {"type": "boolean"}, "minItems": level}]}
    return Validator(closed({"x": schema}, "x"))


def shared(width: int, levels: int, leaf: Any) -> Validator:
    """A small schema whose branches lead to the same leaf by many paths."""
    defs: dict[str, Any] = {"d0": leaf}
    for level in range(1, levels + 1):
        defs[f"d{level}"] = {"anyOf": [{"$ref": f"#/$defs/d{level - 1}"} for _ in range(width)]}
    return Validator(closed({"x": {"$ref": f"#/$defs/d{levels}"}}, "x", **{"$defs": defs}))


def many_branches(count: int) -> Validator:
    branches = [{"type": "string", "minLength": 50 + number} for number in range(count)]
    return Validator(closed({"x": {"type": "array", "items": {"anyOf": [*branches, {"type": "string"}]}}}, "x"))


def left(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"left": leaf}
    return leaf


FLAT, REFS, ROWS = VALIDATORS["flat"], VALIDATORS["refs"], VALIDATORS["rows"]
RECORD = {"type": "object", "properties": {"y": {"type": "integer"}}, "required": ["y"]}
PATTERN = Validator(closed({"a": {"type": "string", "pattern": "^(a|a)*(a+)+$"}}))
HOSTILE: dict[str, tuple[Any, Validator]] = {
    "10 MB of text": ("x" * 10_000_000, FLAT),
    "10 MB in a string": (json.dumps({"n": "x" * 10_000_000}), FLAT),
    "10 MB of braces": ("{" * 10_000_000, FLAT),
    "10 MB of wrong items": (json.dumps({"n": 1, "ids": ["x"] * 2_000_000}), FLAT),
    "10 MB of escapes": ('"' + "\\" * 9_999_998 + '"', FLAT),
    "1 MB of repairable items": (json.dumps({"n": 1, "ids": ["1"] * 200_000}), FLAT),
    "1 MB of nearly JSON": ("{'n': 1, 'tags': [" + "'a'," * 200_000 + "]}", FLAT),
    "1 MB of an open string": ('{"n": 1, "s": "' + "a\\" * 400_000, FLAT),
    "1 MB of quotes": ("{" + "'\"" * 400_000, FLAT),
    "1 MB of commas": ("{" + "," * 1_000_000 + "}", FLAT),
    "1 MB of comments": ("{" + "/**/#\n" * 150_000, FLAT),
    "1 MB of comments that are not closed": ("{" + "/*" * 500_000, FLAT),
    "1 MB of odd spaces": ("{" + "\u00a0\n" * 500_000, FLAT),
    "1 MB of words before the object": ("json " * 200_000 + '{"n": 1}', FLAT),
    "1 MB of fences": ("```\n" * 200_000 + '{"n": 1}', FLAT),
    "1 MB of tags that are not closed": ("<a" * 500_000, FLAT),
    "1 MB of words after the object": ('{"n": 1}' + " word" * 180_000 + ":", FLAT),
    "1 MB of closing tags after the object": ('{"n": 1}' + "</a" * 300_000, FLAT),
    "1 MB of escaped quotes": ("{" + '\\"' * 500_000, FLAT),
    "1 MB of entities": ("{" + "&quot;" * 170_000, FLAT),
    "1 MB of smart quotes": ("{“n”: “" + "\\" * 1_000_000, FLAT),
    "1 MB of parentheses": ('{"n": ' + "(" * 1_000_000, FLAT),
    "1 MB of texts with escaped quotes": ('{\\"tags\\": [' + '\\"\'\\",' * 120_000 + "1]}", FLAT),
    "10,000 levels of text": ('{"tree":' + '{"left":' * DEEP + "1" + "}" * DEEP + "}", REFS),
    "10,000 levels of lists": ("[" * DEEP + "]" * DEEP, FLAT),
    "10,000 levels in nearly JSON": ("{'n':" * DEEP + "1" + "}" * DEEP, FLAT),
    "10,000 levels in a JSON string": ({"n": 1, "o": '{"a":' * DEEP + "1" + "}" * DEEP}, FLAT),
    "10,000 levels in a mapping": ({"tree": nested(DEEP)}, REFS),
    "100 levels of wrong values": ({"tree": nested(100, {"value": "x"})}, REFS),
    "100 levels of branches": ({"x": left(100, "x")}, union_tree()),
    "100 levels of repairable branches": ({"x": left(100, "5")}, union_tree()),
    "a list for shared branches": ({"x": ["1"] * 2_000}, shared(4, 6, {"type": "integer"})),
    "a long list for shared branches": ({"x": [{"y": "a"}] * 20_000}, shared(2, 11, {"items": RECORD})),
    "an object for shared branches": ({"x": {"y": "no"}}, shared(70, 2, RECORD)),
    "a text with a list for shared branches": ({"x": json.dumps([{"y": "a"}] * 2_000)}, shared(2, 11, RECORD)),
    "a list of which each item fits the last of many branches": ({"x": ["a"] * 200_000}, many_branches(5_000)),
    "a deep union": ({"x": "x"}, deep_union(40)),
    "100,000 keys": ({f"key{number}": number for number in range(100_000)}, FLAT),
    "100,000 keys of text": (json.dumps({f"N{number}": None for number in range(100_000)}), FLAT),
    "100,000 keys of one spelling": ({"n" + "_" * number: 1 for number in range(2_000)}, FLAT),
    "a catastrophic pattern": ({"a": "a" * 100_000 + "b"}, PATTERN),
    "lone surrogates": ('{"n": 1, "s": "\\ud800"}', FLAT),
    "lone surrogates in a mapping": ({"n": 1, "s": "\udfff"}, FLAT),
    "lone surrogates in a key": ({"n": 1, "\udfff": 1}, FLAT),
    "duplicate keys deep down": ('{"edits": [{"old": "a", "new": "b", "new": "c"}]}', ROWS),
    "100,000 duplicates": ("{" + '"n": 1,' * 100_000 + '"n": 1}', FLAT),
    "a huge integer": ('{"n": ' + "9" * 100_000 + "}", FLAT),
    "a huge integer as text": ({"n": "9" * 100_000}, FLAT),
    "keys that are no text": ({1: 2, None: 3}, FLAT),
    "NUL": ("\0" * 1000, FLAT),
    "many layers of encoding": (json.dumps(json.dumps(json.dumps(json.dumps(json.dumps('{"n": "x"}'))))), FLAT),
}


def test_a_result_that_would_take_too_long_to_check_is_refused() -> None:
    branches = [{"type": "string", "minLength": 50 + number} for number in range(5_000)]
    validator = Validator({"type": "array", "items": {"anyOf": [*branches, {"type": "string"}]}}, of="result")
    before = time.process_time()
    [problem] = validator.problems(["a"] * 200_000)
    assert time.process_time() - before < HANG
    assert "at most" in problem.message
    assert validator.problems(["a"] * 100) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arguments_are_bounced_in_bounded_time(name: str) -> None:
    arguments, validator = HOSTILE[name]
    before = time.process_time()
    answer = prepare(arguments, validator, own=True, convert=None, cut=False, tool="t")
    assert time.process_time() - before < HANG
    assert isinstance(answer, Failure) or name == "100 levels of repairable branches"
    if isinstance(answer, Failure):
        assert answer.kind == "invalid_args"
        assert len(answer.message) < 1_200
        json.dumps(answer.to_envelope("t"), allow_nan=False)


def test_a_circle_is_bounced() -> None:
    circle: dict[str, Any] = {"n": 1}
    circle["o"] = circle
    assert isinstance(prepare(circle, FLAT, own=True, convert=None, cut=False, tool="t"), Failure)


def test_memory_is_bounded_by_the_input() -> None:
    text = json.dumps({"n": 1, "ids": ["x"] * 1_000_000})
    tracemalloc.start()
    prepare(text, FLAT, own=True, convert=None, cut=False, tool="t")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30 * len(text)


def test_above_one_mebibyte_a_valid_call_passes_and_no_repair_is_tried() -> None:
    def passes(value: Any) -> bool:
        return isinstance(prepare(json.dumps(value), FLAT, own=True, convert=None, cut=False, tool="t"), Prepared)

    large = "x" * MAX_REPAIRED_CHARS
    assert passes({"n": 1, "s": large})
    assert not passes({"n": "1", "s": large})
    assert passes({"n": "1", "s": "small"})


def test_a_converter_that_breaks_is_a_bounce() -> None:
    def broken(arguments: Any) -> dict[str, Any]:
        raise RuntimeError("broken")

    answer = prepare('{"n": 1}', FLAT, own=True, convert=broken, cut=False, tool="t")
    assert isinstance(answer, Failure)
    assert answer.kind == "invalid_args"
