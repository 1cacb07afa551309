"""Every phrase of what is repaired, refused or found: a case as written, and a neighbour that comes out otherwise."""

from typing import Any

import pytest

from handrail.contract.result import Failure
from handrail.schema.prepare import Prepared, prepare
from tests.schema.shapes import VALIDATORS

NO = object()
Row = tuple[str, str, Any, Any]

SILENT: list[Row] = [
    ("double-encoded object", "flat", r'"{\"n\": 1}"', {"n": 1}),
    ("double-encoded, but not an object", "flat", r'"[1]"', NO),
    ("double-encoded and cut", "flat", r'"{\"n\": 1', NO),
    *[(f"wrapper {key}", "flat", {key: {"n": 1}}, {"n": 1}) for key in ("properties", "arguments", "parameters")],
    ("wrapper args", "flat", {"args": {"n": "1"}}, {"n": 1}),
    ("wrapper input", "flat", '{"input": {"n": 1}}', {"n": 1}),
    ("wrapper that holds text", "flat", {"arguments": '{"n": 1}'}, {"n": 1}),
    ("a wrapper of another name", "flat", {"data": {"n": 1}}, NO),
    ("a wrapper that is not the only key", "flat", {"arguments": {"n": 1}, "s": "x"}, NO),
    ("a wrapper that holds no declared key", "flat", {"arguments": {"zz": 1}}, NO),
    ("null for an optional field", "flat", {"n": 1, "s": None}, {"n": 1}),
    ("null for an optional nested field", "nested", {"where": {"line": 1, "note": None}}, {"where": {"line": 1}}),
    ("null for a required field", "flat", {"n": None}, NO),
    ("null where null is meant", "unions", {"count": None}, {"count": None}),
    ("null inside a list", "flat", {"n": 1, "tags": [None]}, NO),
    ("blank for an optional number", "flat", {"n": 1, "f": ""}, {"n": 1}),
    ("blank for an optional list", "flat", {"n": 1, "tags": " "}, {"n": 1}),
    ("blank for an optional union without text", "unions", {"count": ""}, {}),
    ("blank for a required number", "flat", {"n": ""}, NO),
    ("blank in optional text from outside", "flat", {"n": 1, "s": ""}, {"n": 1, "s": ""}),
    ('"15" for an integer', "flat", {"n": "15"}, {"n": 15}),
    ('"15" for a nested integer', "nested", {"where": {"line": "15"}}, {"where": {"line": 15}}),
    ('"15" inside a list', "flat", {"n": 1, "ids": ["15", 2]}, {"n": 1, "ids": [15, 2]}),
    ('"15" in a recursive reference', "refs", {"tree": {"value": 1, "left": {"value": "2"}}},
     {"tree": {"value": 1, "left": {"value": 2}}}),
    ('"15" with a unit', "flat", {"n": "15px"}, NO),
    ('"1,000"', "flat", {"n": "1,000"}, NO),
    ('"3.14" for a number', "flat", {"n": 1, "f": "3.14"}, {"n": 1, "f": 3.14}),
    ('"3.14" for an integer', "flat", {"n": "3.14"}, NO),
    ('"30.0" for an integer', "flat", {"n": "30.0"}, {"n": 30}),
    ('"5.000" for an integer', "flat", {"n": "5.000"}, NO),
    ('"5.00" for an integer', "flat", {"n": "5.00"}, {"n": 5}),
    ('"5000.000" for an integer', "flat", {"n": "5000.000"}, {"n": 5000}),
    ('"5.000" for a number', "flat", {"n": 1, "f": "5.000"}, {"n": 1, "f": 5.0}),
    ('"30.5" for an integer', "flat", {"n": "30.5"}, NO),
    ("15.0 for an integer", "flat", '{"n": 15.0}', {"n": 15}),
    ("15.0 for a number", "flat", '{"n": 1, "f": 15.0}', {"n": 1, "f": 15.0}),
    ("15.7 for an integer", "flat", '{"n": 15.7}', NO),
    ('"true" for a boolean', "flat", {"n": 1, "b": "true"}, {"n": 1, "b": True}),
    ('"false" in a list of objects', "rows", {"edits": [{"old": "a", "new": "b", "replace_all": "false"}]},
     {"edits": [{"old": "a", "new": "b", "replace_all": False}]}),
    ('"truth" for a boolean', "flat", {"n": 1, "b": "truth"}, NO),
    ("a JSON string for a list", "flat", {"n": 1, "tags": '["a", "b"]'}, {"n": 1, "tags": ["a", "b"]}),
    ("a JSON string for an object", "nested", {"where": '{"line": 3}'}, {"where": {"line": 3}}),
    ("a JSON string of the wrong kind", "nested", {"where": "[3]"}, NO),
    ("a JSON string for a list of objects", "rows", {"edits": '[{"old": "a", "new": "b"}]'},
     {"edits": [{"old": "a", "new": "b"}]}),
    ("an enum in another case", "enums", {"mode": "FAST"}, {"mode": "fast"}),
    ("an enum with space around it", "enums", {"mode": " Two Words "}, {"mode": "two words"}),
    ("an enum that two members match", "enums", {"twin": " A"}, NO),
    ("an enum that is exactly one of two", "enums", {"twin": "a"}, {"twin": "a"}),
    ("an enum of numbers", "enums", {"level": "2"}, {"level": 2}),
    ("a number that is no member", "enums", {"level": "4"}, NO),
    ("a constant in another case", "enums", {"kind": "fixed"}, {"kind": "Fixed"}),
]  # fmt: skip

LOUD: list[Row] = [
    ("fence", "flat", '```json\n{"n": 1}\n```', {"n": 1}),
    ("fence without an end", "flat", '```\n{"n": 1}', {"n": 1}),
    ("fence around an object that is not closed", "flat", '```json\n{"n": 1\n```', NO),
    ("trailing comma", "flat", '{"n": 1, "tags": ["a",],}', {"n": 1, "tags": ["a"]}),
    ("two commas", "flat", '{"n": 1,,}', NO),
    ("single quotes", "flat", "{'n': 1, 's': 'a \"b\"'}", {"n": 1, "s": 'a "b"'}),
    ("a single quote inside single quotes", "flat", "{'n': 1, 's': 'it's'}", NO),
    ("unquoted keys", "flat", '{n: 1, max_depth: 2}', {"n": 1, "max_depth": 2}),
    ("an unquoted value", "flat", '{n: 1, s: hello}', NO),
    ("Python literals", "flat", '{"n": 1, "b": True, "s": None}', {"n": 1, "b": True}),
    ("a word that is no literal", "flat", '{"n": 1, "b": Yes}', NO),
    ("raw newline in a string", "flat", '{"n": 1, "s": "a\nb"}', {"n": 1, "s": "a\nb"}),
    ("raw newline in a string that is not closed", "flat", '{"n": 1, "s": "a\nb}', NO),
    ("trailing junk", "flat", '{"n": 1} and so on', {"n": 1}),
    ("one brace too many", "flat", '{"n": 1}}', {"n": 1}),
    ("a second object", "flat", '{"n": 1} {"n": 2}', NO),
    ("a key in another case", "flat", {"N": 1}, {"n": 1}),
    ("a key with other joints", "flat", {"n": 1, "Max-Depth": 2}, {"n": 1, "max_depth": 2}),
    ("a key with a space, nested", "rows", {"edits": [{"old": "a", "new": "b", "replace all": True}]},
     {"edits": [{"old": "a", "new": "b", "replace_all": True}]}),
    ("a key whose right spelling is there", "flat", {"n": 1, "N": 2}, NO),
    ("two keys for one", "flat", {"n": 1, "maxDepth": 2, "max-depth": 3}, NO),
    ("a key that is only similar", "flat", {"n": 1, "max_dept": 2}, NO),
    *[(f"{word} for true", "flat", {"n": 1, "b": word}, {"n": 1, "b": True}) for word in ("yes", "1", "ON", 1)],
    *[(f"{word} for false", "flat", {"n": 1, "b": word}, {"n": 1, "b": False}) for word in ("No", "0", "off", 0)],
    ("maybe for a boolean", "flat", {"n": 1, "b": "maybe"}, NO),
    ("2 for a boolean", "flat", {"n": 1, "b": 2}, NO),
    ("number for text", "flat", {"n": 1, "s": 15}, {"n": 1, "s": "15"}),
    ("number for text as it was written", "flat", '{"n": 1, "s": 1.10}', {"n": 1, "s": "1.10"}),
    ("number for text, written in two ways", "flat", '{"n": 1, "s": 1.10, "f": 1.1}', NO),
    ("true for text", "flat", {"n": 1, "s": True}, NO),
    ("a list for text", "flat", {"n": 1, "s": ["a", "b"]}, NO),
    ("a word for a list", "flat", {"n": 1, "tags": "a"}, {"n": 1, "tags": ["a"]}),
    ("several words for a list", "flat", {"n": 1, "tags": "a b"}, NO),
    ("one object for a list of objects", "rows", {"edits": {"old": "a", "new": "b"}},
     {"edits": [{"old": "a", "new": "b"}]}),
    ("a number for a list", "flat", {"n": 1, "ids": 7}, {"n": 1, "ids": [7]}),
    ("a scalar for a list in a union", "unions", {"list": "a"}, {"list": ["a"]}),
    ("a scalar with a comma", "flat", {"n": 1, "tags": "a, b"}, NO),
    ("a scalar with a newline", "flat", {"n": 1, "tags": "a\nb"}, NO),
    ("a scalar for a nested list", "nested", {"where": {"line": 1, "marks": 3}}, NO),
    ("a scalar that the list's items refuse", "flat", {"n": 1, "ids": "x"}, NO),
    ("a list of one for a scalar", "flat", {"n": [4]}, {"n": 4}),
    ("a list of two for a scalar", "flat", {"n": [4, 5]}, NO),
    ("an empty list for a scalar", "flat", {"n": []}, NO),
]  # fmt: skip

NEVER: list[Row] = [
    ("invent a missing required value", "flat", {}, NO),
    ("invent one nested", "rows", {"edits": [{"old": "a"}]}, NO),
    ("close a string", "flat", '{"n": 1, "s": "abc', NO),
    ("close a brace", "flat", '{"n": 1', NO),
    ("close an inner brace", "nested", '{"where": {"line": 1}', NO),
    ("split a, b", "flat", {"n": 1, "ids": "1, 2"}, NO),
    ("strip units", "flat", {"n": "5 s"}, NO),
    ("round", "flat", {"n": 15.7}, NO),
    ("take true for an integer", "flat", {"n": True}, NO),
    ("pick a near enum member", "enums", {"mode": "fas"}, NO),
    ("drop an unknown key", "flat", {"n": 1, "zz": 2}, NO),
    ("drop an unknown nested key", "nested", {"where": {"line": 1, "zz": 2}}, NO),
    ("wrap inside arrays", "rows", {"edits": [{"old": "a", "new": "b"}], "labels": ["x"]}, NO),
    ("wrap an object of another kind", "rows", {"edits": {"name": "a", "value": "b"}}, NO),
    *[(f"touch {text}", "flat", {"n": 1, "s": text}, {"n": 1, "s": text}) for text in ("123", "true", "[1]", " x ")],
    ("choose between two objects", "flat", '[{"n": 1}, {"n": 2}]', NO),
    ("accept duplicate keys", "flat", '{"n": 1, "n": 1}', NO),
    ("accept duplicate keys below", "nested", '{"where": {"line": 1, "line": 2}}', NO),
    ("accept duplicate keys in nearly JSON", "flat", "{'n': 1, 'n': 2}", NO),
    ("accept NaN", "flat", '{"n": 1, "f": NaN}', NO),
    ("accept Infinity", "flat", '{"n": 1, "f": -Infinity}', NO),
    ("accept 1e999", "flat", '{"n": 1, "f": 1e999}', NO),
    ("accept NaN in a mapping", "flat", {"n": 1, "f": float("nan")}, NO),
    ("choose between branches", "unions", {"flag": "1"}, NO),
    ("a branch that only one accepts", "unions", {"flag": "7"}, {"flag": 7}),
    ("a branch by its bounds", "unions", {"one": "12"}, {"one": 12}),
    ("a branch that no one accepts", "unions", {"one": "7"}, NO),
    ("a branch of objects", "unions", {"shape": {"side": "3"}}, {"shape": {"side": 3}}),
    ("branches of objects that both miss", "unions", {"shape": {"edge": 3}}, NO),
    ("text in a union with text", "unions", {"either": "15"}, {"either": "15"}),
    ("all of several schemas", "unions", {"both": "4"}, {"both": 4}),
    ("all of several schemas, one refusing", "unions", {"both": "2"}, NO),
    ("several types", "unions", {"several": "4"}, {"several": 4}),
    ("a reference beside other words", "refs", {"tree": {"value": 1}, "at": {"x": "2"}},
     {"tree": {"value": 1}, "at": {"x": 2}}),
    ("bounds hold after a repair", "bounds", {"port": "70000"}, NO),
    ("bounds that hold", "bounds", {"port": "7000"}, {"port": 7000}),
    ("a pattern that holds", "bounds", {"code": "ABC1"}, {"code": "ABC1"}),
    ("a pattern that does not", "bounds", {"code": "abc1"}, NO),
    ("minItems after a wrap", "bounds", {"pair": 5}, NO),
    ("a number as text beyond its length", "bounds", {"short": 12345}, NO),
]  # fmt: skip

EMPTY: list[Row] = [
    *[(f"{text!r} without parameters", "none", text, {}) for text in ("", '""', "null", "{}", "  ")],
    *[(f"{text!r} with parameters", "flat", text, NO) for text in ("", '""', "null", "{}")],
    ("something without parameters", "none", '{"x": 1}', NO),
    ("a list without parameters", "none", "[]", NO),
]


def outcome(row: Row) -> Any:
    answer = prepare(row[2], VALIDATORS[row[1]], own=False, convert=None, cut=False, tool="t")
    return answer.arguments if isinstance(answer, Prepared) else NO


def exactly(value: Any) -> Any:
    """A value with its types, so that 1, 1.0 and true are told apart."""
    return value if value is NO else repr(value)


@pytest.mark.parametrize("row", [*SILENT, *LOUD, *NEVER, *EMPTY], ids=lambda row: f"{row[1]}: {row[0]}")
def test_each_phrase_comes_out_as_it_is_written(row: Row) -> None:
    assert exactly(outcome(row)) == exactly(row[3])


@pytest.mark.parametrize("row", [row for row in LOUD if row[3] is not NO], ids=lambda row: row[0])
def test_what_changes_spelling_or_syntax_is_a_warning_with_before_and_after(row: Row) -> None:
    answer = prepare(row[2], VALIDATORS[row[1]], own=False, convert=None, cut=False, tool="t")
    assert isinstance(answer, Prepared)
    assert any("→" in warning for warning in answer.warnings)
    assert any(repair.loud for repair in answer.repairs)


@pytest.mark.parametrize("row", [row for row in SILENT if row[3] is not NO], ids=lambda row: row[0])
def test_what_has_plainly_one_meaning_is_repaired_without_a_warning(row: Row) -> None:
    answer = prepare(row[2], VALIDATORS[row[1]], own=False, convert=None, cut=False, tool="t")
    assert isinstance(answer, Prepared)
    assert answer.warnings == ()
    unchanged = answer.arguments is row[2] or exactly(answer.arguments) == exactly(row[2])
    assert unchanged or answer.repairs or row[0].startswith("15.0 for a number")


def test_the_table_can_fail() -> None:
    assert outcome(("", "flat", {"n": "x"}, None)) is NO
    assert outcome(("", "flat", {"n": 1}, None)) is not NO
    assert isinstance(prepare({"n": 1}, VALIDATORS["flat"], own=False, convert=None, cut=True, tool="t"), Failure)
