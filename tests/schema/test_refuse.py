"""A bounce tells the model everything that it needs to send the call right."""

import json
from typing import Any

import pytest

from handrail.contract.result import Failure
from handrail.schema.derive import derive
from handrail.schema.prepare import prepare
from handrail.schema.refuse import refuse
from handrail.schema.validate import Problem, Validator
from tests.schema.shapes import SCHEMAS, VALIDATORS, closed


def bounced(arguments: Any, name: str = "flat") -> Failure:
    answer = prepare(arguments, VALIDATORS[name], own=False, convert=None, cut=False, tool="search")
    assert isinstance(answer, Failure)
    return answer


def test_it_names_field_expectation_and_what_was_received() -> None:
    failure = bounced({"n": "many"})
    assert (failure.kind, failure.field, failure.expected) == ("invalid_args", "n", "an integer")
    assert failure.retryable
    assert "`n` must be an integer" in failure.message
    assert 'received "many"' in failure.message
    assert failure.message.startswith("search was not run")


def test_all_errors_are_listed_not_only_the_first() -> None:
    failure = bounced({"f": "x", "b": "maybe", "zz": 1})
    assert failure.data is not None
    assert {error["field"] for error in failure.data["errors"]} == {"n", "f", "b", "zz"}
    assert all(word in failure.message for word in ("`n`", "`f`", "`b`", "`zz`"))


def test_the_original_arguments_are_kept_as_they_came() -> None:
    for original in ('{"n": "many", }', {"n": ["1"], "s": None, "zz": 1}, "{'n': "):
        failure = bounced(original)
        assert failure.data is not None
        assert failure.data["arguments"] == original


@pytest.mark.parametrize(
    ("arguments", "name", "hint"),
    [
        ({"patern": "x"}, "pattern", "you sent `patern`, the schema has `pattern`"),
        ({"pattern": "x", "Mode": "fats"}, "pattern", "you sent `Mode`, the schema has `mode`"),
        ({"pattern": "x", "mode": "fats"}, "pattern", 'you sent "fats", the schema has "fast"'),
    ],
)
def test_a_near_miss_is_named(arguments: Any, name: str, hint: str) -> None:
    schema = closed({name: {"type": "string"}, "mode": {"enum": ["fast", "slow"]}}, name)
    failure = prepare(arguments, Validator(schema), own=False, convert=None, cut=False, tool="search")
    assert isinstance(failure, Failure)
    assert hint in failure.message


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_example_validates_and_is_minimal(name: str) -> None:
    failure = bounced("[]", name)
    assert failure.data is not None
    example = failure.data["example"]
    assert VALIDATORS[name].is_valid(example)
    assert set(example) == set(SCHEMAS[name].get("required", []))
    assert not example or json.dumps(example) in failure.message


HARD: dict[str, Any] = {
    "bounds": {"type": "integer", "exclusiveMinimum": 4, "multipleOf": 7},
    "a float range": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.25},
    "only below": {"type": "integer", "maximum": -5},
    "long text": {"type": "string", "minLength": 30},
    "short text": {"type": "string", "maxLength": 2},
    "a pattern": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"},
    "a longer pattern": {"type": "string", "pattern": "^(ab|cd)x*\\d{2,}[^a-z]?$"},
    "unique items": {"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True},
    "unique numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True},
    "a tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 2, "items": False},
    "branches": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}, "minItems": 1}]},
    "all of": {"allOf": [{"type": "integer"}, {"minimum": 9}]},
    "a map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    "a constant": {"const": {"a": [1]}},
    "a union of objects": {"oneOf": [closed({"k": {"const": "a"}}, "k"), closed({"k": {"const": "b"}}, "k")]},
}


@pytest.mark.parametrize("name", HARD)
def test_an_example_is_found_for_what_schemas_usually_say(name: str) -> None:
    validator = Validator(closed({"value": HARD[name]}, "value"))
    failure = prepare("{}", validator, own=False, convert=None, cut=False, tool="t")
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert validator.is_valid(failure.data["example"])


def test_without_an_example_that_validates_none_is_shown() -> None:
    failure = prepare("{}", Validator(closed({"value": False}, "value")), own=False, convert=None, cut=False, tool="t")
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert "example" not in failure.data
    assert "for example" not in failure.message
    assert "No example could be made" in failure.message


def test_the_message_is_short_whatever_was_sent() -> None:
    many = {f"key{number}" * 20: "x" * 5_000 for number in range(400)}
    for failure in (bounced(many), bounced(json.dumps(many)), bounced("x" * 100_000), bounced({"n": "y" * 100_000})):
        assert len(failure.message) < 1_200
        assert "for example" in failure.message
        assert len(json.dumps(failure.to_envelope("search"))) < 20_000


def test_no_words_of_libraries_are_in_it() -> None:
    def function(day: "__import__('datetime').date", number: int) -> None: ...

    derived = derive(function, injected=type("Context", (), {}))
    validator = Validator(derived.parameters)
    failures = [bounced(text) for text in ('{"n": 1', "{'n'", '"x', "[", '{"n":1,"n":2}', '{"n": NaN}', "nope")]
    made = prepare({"day": "no day", "number": 1}, validator, own=True, convert=derived.convert, cut=False, tool="t")
    assert isinstance(made, Failure)
    assert made.field == "day"
    for failure in [*failures, made]:
        said = json.dumps(failure.to_envelope("t")).lower()
        for word in ("pydantic", "jsonschema", "http", "decodeerror", "validationerror", "traceback", "expecting"):
            assert word not in said


def test_it_can_be_made_of_a_plain_schema_too() -> None:
    failure = refuse("t", SCHEMAS["flat"], [Problem("n", "`n` is missing", "an integer", "nothing")], {})
    assert failure.data is not None
    assert failure.data["example"] == {"n": 1}
    assert refuse("t", {"type": "nonsense"}, [], "x").kind == "invalid_args"


def test_a_bounce_never_shows_the_form_of_a_reference() -> None:
    checks = Validator(
        {
            "type": "object",
            "properties": {"tags": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}},
        }
    )
    sent = ['{"tags": "\\u00e9 x"}', '{"tags": "$artifact x"}', '{"tags": [{"$artifact": "a1"}], "n": "x"}']
    for text in sent:
        failure = prepare(text, checks, tool="t", artifact=lambda _: "")
        assert isinstance(failure, Failure)
        assert "$artifact, size" not in f"{failure.message} {failure.data}"
        assert failure.field == ("n" if "n" in text[9:] and "a1" in text else "tags")


SAID: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "an empty text": ({"type": "string", "minLength": 1}, "", "`v` must not be empty", "a string, not empty"),
    "an empty list": (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 1},
        [],
        "`v` must not be empty",
        "a list, each item an integer, not empty, at most 1 item",
    ),
    "an empty list that may be null": (
        {"anyOf": [{"type": "array", "minItems": 2}, {"type": "null"}]},
        [],
        "`v` must not be empty",
        "a list, at least 2 items",
    ),
    "a text of another kind": (
        {"type": "string", "minLength": 1, "maxLength": 1},
        [1, 2],
        "`v` must be a string, not empty, at most 1 character; received [1, 2]",
        "a string, not empty, at most 1 character",
    ),
    "no limit at all": ({"type": "string", "minLength": 0}, [1, 2], "`v` must be a string; received", "a string"),
    "an object for a list or null": (
        {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        {"a": 1},
        "`v` must be a list, each item an integer or null",
        "a list, each item an integer or null",
    ),
    "a property with a description": (
        {"type": "integer", "description": "How many\n lines."},
        "many",
        "`v` must be an integer; received",
        "an integer: How many lines.",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_wrong_reads_well(name: str) -> None:
    schema, sent, said, expected = SAID[name]
    failure = prepare({"v": sent}, Validator(closed({"v": schema}, "v")), tool="t")
    assert isinstance(failure, Failure)
    assert said in failure.message
    assert failure.expected == expected


def test_a_missing_property_is_expected_as_its_description_says() -> None:
    path = {"type": "string", "minLength": 1, "description": "The file, relative to the workspace."}
    failure = prepare({}, Validator(closed({"path": path}, "path")), tool="t")
    assert isinstance(failure, Failure)
    assert failure.expected == "a string, not empty: The file, relative to the workspace."
