"""Schemas compile strictly, or leniently with a word on what is not enforced."""

from typing import Any

import pytest

from handrail.contract.errors import BadSchema
from handrail.schema.validate import Validator
from handrail.toolkit.tool import Tool
from tests.schema.shapes import SCHEMAS, VALIDATORS, closed

REFUSED: dict[str, Any] = {
    "type any": closed({"a": {"type": "any"}}),
    "a boolean bound": closed({"a": {"minimum": 1, "exclusiveMinimum": True}}),
    "a remote reference": closed({"a": {"$ref": "https://example.com/schema.json"}}),
    "a file reference": closed({"a": {"$ref": "file:///etc/passwd"}}),
    "a reference to nothing": closed({"a": {"$ref": "#/$defs/None"}}),
    "look-around": closed({"a": {"pattern": "^(?=a)b"}}),
    "a broken pattern": closed({"a": {"pattern": "(a"}}),
    "no type": {"properties": {}},
    "another type": {"type": "string"},
    "several types": {"type": ["object", "null"]},
    "a set": {"type": "object", "enum": {1, 2}},
    "not a number": {"type": "object", "minimum": float("nan")},
}
DOUBLING = {"d0": {"type": "integer"}}
for _n in range(1, 40):
    _before = {"$ref": f"#/$defs/d{_n - 1}"}
    DOUBLING[f"d{_n}"] = {"anyOf": [{"allOf": [_before]}, {"allOf": [_before]}]}


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_that_does_not_compile_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(BadSchema, match=r"\w{4}"):
        Validator(REFUSED[name])


def test_a_small_schema_with_endless_branches_is_refused() -> None:
    with pytest.raises(BadSchema, match="branches"):
        Validator(closed({"a": {"$ref": "#/$defs/d39"}}, **{"$defs": DOUBLING}))


def test_deep_nesting_is_refused_and_reference_circles_are_not() -> None:
    deep: Any = {"type": "integer"}
    for _ in range(5_000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadSchema):
        Validator(closed({"a": deep}))
    circle = closed({"a": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}})
    assert Validator(circle).problems({"b": 1})


@pytest.mark.parametrize("schema", [None, True, [], "object"])
def test_what_is_no_object_is_no_schema(schema: Any) -> None:
    with pytest.raises(BadSchema):
        Validator(schema)


def test_a_schema_is_copied_when_it_is_compiled() -> None:
    mine = closed({"a": {"type": "integer"}})
    validator = Validator(mine)
    mine["properties"]["a"]["type"] = "string"
    assert validator.is_valid({"a": 1})
    assert validator.schema["properties"]["a"]["type"] == "integer"


def test_old_drafts_and_unknown_ones_compile() -> None:
    old = closed({"a": {"minimum": 1, "exclusiveMinimum": True}})
    assert not Validator({"$schema": "http://json-schema.org/draft-04/schema#", **old}).is_valid({"a": 1})
    assert Validator({"$schema": "urn:mine", **closed({"$schema": {"type": "string"}})}).is_valid({"$schema": "x"})


def test_every_problem_has_its_place_in_plain_words() -> None:
    wrong = {"edits": [{"old": 1, "New": "x"}], "labels": "x"}
    problems = {problem.path: problem for problem in VALIDATORS["rows"].problems(wrong)}
    assert set(problems) == {"edits[0].old", "edits[0].new", "edits[0].New", "labels"}
    assert problems["edits[0].new"].received == "nothing"
    assert problems["edits[0].old"].expected == "a string"
    assert "you sent `New`, the schema has `new`" in problems["edits[0].New"].message


@pytest.mark.parametrize("name", SCHEMAS)
def test_problems_are_empty_exactly_when_the_instance_is_valid(name: str) -> None:
    validator = VALIDATORS[name]
    for instance in ({}, {"n": 1}, {"zz": 1}, [], None, {"where": {}}, {"edits": []}, {"tree": {"value": 1}}):
        assert bool(validator.problems(instance)) is not validator.is_valid(instance)


OUTSIDE: dict[str, Any] = {
    "type any": (closed({"a": {"type": "any"}, "b": {"type": "integer"}}), "properties.a.type"),
    "a boolean bound": (closed({"a": {"exclusiveMinimum": True}, "b": {"type": "integer"}}), "exclusiveMinimum"),
    "look-around": (closed({"a": {"pattern": "(?=x)"}, "b": {"type": "integer"}}), "pattern"),
    "a remote reference": (closed({"a": {"$ref": "https://x.y/z"}, "b": {"type": "integer"}}), "$ref"),
    "required as text": ({**closed({"b": {"type": "integer"}}), "required": "b"}, "required"),
    "another root": ({**closed({"b": {"type": "integer"}}), "type": "any"}, "type"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_lenient_compiles_the_rest_and_says_what_is_not_enforced(name: str) -> None:
    schema, word = OUTSIDE[name]
    with pytest.raises(BadSchema):
        Validator(schema)
    validator, warnings = Validator.lenient(schema)
    assert any(word in warning and "not enforced" in warning for warning in warnings)
    assert validator.is_valid({"b": 1})
    assert not validator.is_valid({"b": "x"})


def test_lenient_leaves_a_good_schema_alone() -> None:
    validator, warnings = Validator.lenient(SCHEMAS["refs"])
    assert warnings == ()
    assert validator.schema == SCHEMAS["refs"]
    assert Validator.lenient({"properties": {"a": {}}})[0].is_valid({"a": 1})


DEFAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"a": {"type": "integer", "default": "five"}}, "parameter 'a' has a default, \"five\","),
    "not a member": ({"a": {"enum": ["x", "y"], "default": "z"}}, "parameter 'a'"),
    "below the minimum": ({"a": {"type": "integer", "minimum": 1, "default": 0}}, "parameter 'a'"),
    "a pattern": ({"a": {"type": "string", "pattern": "^x", "default": "y"}}, "parameter 'a'"),
    "a slash in its name": ({"a/b~c": {"type": "integer", "default": "x"}}, "parameter 'a/b~c'"),
    "through a reference": ({"a": {"$ref": "#/$defs/whole", "default": "x"}}, "parameter 'a'"),
    "an item of a list": ({"a": {"type": "array", "default": ["x"], "items": {"type": "integer"}}}, "parameter 'a'"),
    "deeper": (
        {"a": {"type": "object", "properties": {"b": {"type": "integer", "default": "x"}}}},
        "parameter 'a' has a default at properties.a.properties.b,",
    ),
    "in the items": ({"a": {"type": "array", "items": {"type": "integer", "default": "x"}}}, "properties.a.items"),
}
WHOLE = {"$defs": {"whole": {"type": "integer"}}}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_that_its_own_schema_refuses_is_a_bad_schema_and_leniently_a_warning(name: str) -> None:
    properties, message = DEFAULTS[name]
    schema = closed({**properties, "b": {"type": "integer"}}, **WHOLE)
    with pytest.raises(BadSchema) as raised:
        Tool("mine", schema, lambda context, arguments: None, description="x")
    assert str(raised.value).startswith("tool mine: ")
    assert message in str(raised.value)
    validator, warnings = Validator.lenient(schema)
    assert ["default` is left out" in warning for warning in warnings] == [True]
    assert "default" not in str(validator.schema)
    assert validator.is_valid({"b": 1})
    assert not validator.is_valid({"b": "x"})


@pytest.mark.parametrize(
    "described",
    [
        {"type": "integer", "default": 5}, {"type": "string", "default": None}, {"enum": ["x"], "default": "x"},
        {"$ref": "#/$defs/whole", "default": 5}, {"default": [1, "two"]},
        {"anyOf": [{"type": "null"}, {}], "default": 1},
    ],
)  # fmt: skip
def test_control_a_default_that_fits_and_null_for_nothing_are_kept(described: dict[str, Any]) -> None:
    schema = closed({"a": described, "default": {"type": "integer"}}, **WHOLE)
    made = Tool("mine", schema, lambda context, arguments: None, description="x")
    assert made.parameters["properties"]["a"]["default"] == described["default"]
    assert Validator.lenient(schema)[1] == ()


def test_patterns_run_in_linear_time() -> None:
    validator = Validator(closed({"a": {"type": "string", "pattern": "^(a+)+$"}}))
    assert not validator.is_valid({"a": "a" * 50_000 + "b"})


@pytest.mark.parametrize(
    "more",
    [
        {"$schema": "urn:mine"}, {"$schema": "https://json-schema.org/draft/9999/schema"}, {"$id": "https://x.y/z"},
        {"$schema": "http://json-schema.org/draft-07/schema#"}, {"unevaluatedProperties": False},
    ],
)  # fmt: skip
def test_problems_are_told_whatever_else_the_schema_says(more: Any) -> None:
    schema = closed({"a": {"$ref": "#/$defs/a%20b"}, "100%": {}}, **{"$defs": {"a b": {"type": "integer"}}})
    validator = Validator({**schema, **more})
    assert [problem.path for problem in validator.problems({"a": "x"})] == ["a"]
    assert validator.problems({"a": 1}) == []


def test_what_is_wrong_only_as_a_whole_is_told_too() -> None:
    validator = Validator(closed({"a": {}, "b": {}}, minProperties=2))
    (problem,) = validator.problems({"a": 1})
    assert problem.path == ""
    assert "at least 2 keys" in problem.message
