"""The example in a bounce is what was sent, put right; it validates, and is safe to send."""

import datetime as dt
import ipaddress
import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import UUID4, AfterValidator, AnyUrl, Base64Bytes, IPvAnyNetwork, Json

from handrail.contract.result import Failure
from handrail.schema._formats import FORMAT_SAMPLES
from handrail.schema.derive import derive
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.shapes import INTEGER, STRING, closed

SHAPE = {
    "oneOf": [
        closed({"type": {"const": "circle"}, "radius": {"type": "number"}}, "type", "radius"),
        closed({"type": {"const": "box"}, "w": INTEGER, "h": INTEGER}, "type", "w", "h"),
    ]
}
TARGET = {"anyOf": [closed({"file": STRING, "line": INTEGER}, "file", "line"), closed({"url": STRING}, "url")]}
EDITS = {"type": "array", "items": closed({"old": STRING, "new": STRING}, "old", "new")}
TREE = closed({"v": INTEGER, "kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}}, "v", "kids")
PUT_RIGHT: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "one field of three": (
        closed({"path": STRING, "text": STRING, "mode": {"type": "integer", "minimum": 2}}, "path", "text"),
        {"path": "src/app.py", "text": "print(1)", "mode": 0},
        {"path": "src/app.py", "text": "print(1)", "mode": 2},
    ),
    "an enum": (
        closed({"city": STRING, "units": {"enum": ["metric", "imperial"]}}, "city", "units"),
        {"city": "Bern", "units": "kelvin"},
        {"city": "Bern", "units": "metric"},
    ),
    "an enum with a near miss": (
        closed({"units": {"enum": ["metric", "imperial"]}}, "units"),
        {"units": "imperal"},
        {"units": "imperial"},
    ),
    "a number as text beside it": (
        closed({"limit": INTEGER, "units": {"enum": ["metric"]}}, "units"),
        {"limit": "15", "units": "kelvin"},
        {"limit": 15, "units": "metric"},
    ),
    "an item of a list": (
        closed({"ids": {"type": "array", "items": INTEGER}}, "ids"),
        {"ids": [5, "two", 3]},
        {"ids": [1]},
    ),
    "an item of objects": (
        closed({"path": STRING, "edits": EDITS}, "path", "edits"),
        {"path": "a.py", "edits": [{"old": "x", "new": "y"}, {"old": "z"}]},
        {"path": "a.py", "edits": [{"old": "z", "new": "text"}]},
    ),
    "a list that is missing": (closed({"files": {"type": "array", "items": STRING}}, "files"), {}, {"files": ["text"]}),
    "a default that is empty": (
        closed(
            {"tags": {"type": "array", "items": STRING, "default": []}, "mode": {"type": "string", "default": ""}},
            "tags",
            "mode",
        ),
        {},
        {"tags": ["text"], "mode": "text"},
    ),
    "a map": (
        closed({"env": {"type": "object", "additionalProperties": STRING}}, "env"),
        {"env": {"A": "1", "B": [1, 2]}},
        {"env": {"A": "1", "B": "text"}},
    ),
    "a tuple": (
        closed({"at": {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": False, "minItems": 2}}, "at"),
        {"at": [7]},
        {"at": [7, 1]},
    ),
    "a key with a near miss": (
        closed({"pattern": STRING, "path": STRING}, "pattern"),
        {"patern": "x", "path": "."},
        {"pattern": "x", "path": "."},
    ),
    "an unknown key": (closed({"path": STRING, "limit": INTEGER}, "path"), {"path": "a", "lines": 4}, {"path": "a"}),
    "text that is nearly JSON": (
        closed({"path": STRING, "limit": INTEGER}, "path"),
        "{'path': 'a', 'limit': 'x'}",
        {"path": "a", "limit": 1},
    ),
    "text that is no JSON": (
        closed({"path": STRING, "limit": INTEGER}, "path"),
        '{"path": "a", "limit": ',
        {"path": "text"},
    ),
    "a wrapper": (
        closed({"path": STRING, "n": INTEGER}, "path"),
        {"args": {"path": "a", "n": "x"}},
        {"path": "a", "n": 1},
    ),
    "a tagged branch": (
        closed({"shape": SHAPE}, "shape"),
        {"shape": {"type": "box", "w": 4}},
        {"shape": {"type": "box", "w": 4, "h": 1}},
    ),
    "a branch without its tag": (
        closed({"shape": SHAPE}, "shape"),
        {"shape": {"radius": 3}},
        {"shape": {"radius": 3, "type": "circle"}},
    ),
    "a branch without any tag": (closed({"to": TARGET}, "to"), {"to": {"url": 5, "line": 1}}, {"to": {"url": "text"}}),
    "one of two keys": (
        {**closed({"id": INTEGER, "name": STRING}), "oneOf": [{"required": ["id"]}, {"required": ["name"]}]},
        {"id": 7, "name": "x"},
        {"id": 7},
    ),
    "a key that another needs": (
        closed({"card": STRING, "code": STRING}, dependentRequired={"card": ["code"]}),
        {"card": "4"},
        {"card": "4", "code": "text"},
    ),
    "a condition": (
        closed(
            {"kind": {"enum": ["a", "b"]}, "n": INTEGER},
            "kind",
            **{"if": {"properties": {"kind": {"const": "b"}}}, "then": {"required": ["n"]}},
        ),
        {"kind": "b"},
        {"kind": "b", "n": 1},
    ),
    "what a list must contain": (
        closed({"tags": {"type": "array", "items": STRING, "contains": {"const": "main"}}}, "tags"),
        {"tags": ["x"]},
        {"tags": ["main"]},
    ),
    "keys by pattern": (
        {
            "type": "object",
            "patternProperties": {"^x-[a-z]+$": STRING},
            "additionalProperties": False,
            "minProperties": 1,
        },
        {"y": 1},
        {"x-a": "text"},
    ),
    "a list of its own kind": (
        closed({"tree": {"$ref": "#/$defs/T"}}, "tree", **{"$defs": {"T": TREE}}),
        {},
        {"tree": {"v": 1, "kids": []}},
    ),
    "a pattern of some length": (
        closed({"host": {"type": "string", "pattern": r"^(?:[a-z]+\.)+[a-z]{2,}$", "minLength": 12}}, "host"),
        {"host": "?"},
        {"host": "aaaa.aaaa.aaaa.aaaa.aaaa"},
    ),
    "a boolean": (closed({"force": {"type": "boolean"}}, "force"), {}, {"force": False}),
}


@pytest.mark.parametrize("name", PUT_RIGHT)
def test_the_example_is_what_was_sent_with_what_was_wrong_replaced(name: str) -> None:
    schema, sent, right = PUT_RIGHT[name]
    validator = Validator(schema)
    failure = prepare(sent, validator, own=False, convert=None, cut=False, tool="t")
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert failure.data["example"] == right
    assert validator.is_valid(right)
    assert json.dumps(right) in failure.message


@pytest.mark.parametrize("name", sorted(FORMAT_SAMPLES))
def test_a_format_is_filled_with_a_value_that_fits_and_said_in_words(name: str) -> None:
    validator = Validator(closed({"value": {"type": "string", "format": name}}, "value"))
    failure = prepare("{}", validator, own=False, convert=None, cut=False, tool="t")
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert failure.data["example"] == {"value": FORMAT_SAMPLES[name]}
    assert FORMAT_SAMPLES[name] in str(failure.expected)


def typed(
    day: dt.date, at: dt.datetime, time: dt.time, long: dt.timedelta, id: UUID, four: UUID4, v4: ipaddress.IPv4Address,
    v6: ipaddress.IPv6Address, net: ipaddress.IPv4Network, any_net: IPvAnyNetwork, url: AnyUrl, data: Base64Bytes,
    text: Json[dict[str, int]], amount: Decimal, path: Path,
) -> None: ...  # fmt: skip


def test_the_example_for_a_typed_function_is_accepted_by_its_types() -> None:
    derived = derive(typed, injected=type("Context", (), {}))
    validator = Validator(derived.parameters)
    for sent in ({}, dict.fromkeys(typed.__annotations__, "soon")):
        failure = prepare(sent, validator, own=True, convert=derived.convert, cut=False, tool="t")
        assert isinstance(failure, Failure)
        assert failure.data is not None
        assert derived.convert(failure.data["example"])["day"] == dt.date(2026, 1, 31)


def test_an_example_that_the_functions_own_check_refuses_is_not_shown() -> None:
    def even(value: int) -> int:
        if value % 4 != 2:
            raise ValueError("must leave 2 when divided by 4")
        return value

    def function(n: Annotated[int, AfterValidator(even)], path: str) -> None: ...

    derived = derive(function, injected=type("Context", (), {}), local_names={"even": even})
    failure = prepare({"n": 3, "path": "a"}, Validator(derived.parameters), convert=derived.convert, tool="t")
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert "example" not in failure.data
    assert "No example could be made" in failure.message


UNIONS: dict[str, tuple[Any, Any, str]] = {
    "inside the branch of its tag": (SHAPE, {"type": "circle", "radius": "big"}, "`v.radius` must be a number"),
    "the tag is missing": (SHAPE, {"radius": 3}, '`v.type` is missing: one of "circle", "box"'),
    "the tag is unknown": (SHAPE, {"type": "boxx", "w": 1}, 'you sent "boxx", the schema has "box"'),
    "the branch of most keys": (TARGET, {"file": "a", "line": "one"}, "`v.line` must be an integer"),
    "no branch is nearer": (
        TARGET,
        {"other": 1},
        "2 forms: an object with file, line (`v.file` is missing: a string); an object with url",
    ),
    "two at once": (
        {"oneOf": [{"type": "object", "required": ["id"]}, {"type": "object", "required": ["name"]}]},
        {"id": 1, "name": "x"},
        "`v` fits 2 forms at once, but must fit exactly one",
    ),
}


@pytest.mark.parametrize("name", UNIONS)
def test_a_union_is_explained_by_its_branches(name: str) -> None:
    schema, sent, said = UNIONS[name]
    failure = prepare({"v": sent}, Validator(closed({"v": schema}, "v")), own=False, convert=None, cut=False, tool="t")
    assert isinstance(failure, Failure)
    assert said in failure.message


def test_an_example_too_long_for_the_message_is_in_the_data() -> None:
    names = [f"field_number_{number}" for number in range(40)]
    validator = Validator(closed(dict.fromkeys(names, STRING), *names))
    failure = prepare("{}", validator, own=False, convert=None, cut=False, tool="t")
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert validator.is_valid(failure.data["example"])
    assert "data.example" in failure.message


def test_a_long_text_that_was_sent_is_not_repeated() -> None:
    schema = closed({"path": STRING, "text": STRING, "n": INTEGER}, "path", "text", "n")
    failure = prepare(
        {"path": "a", "text": "x" * 3_000}, Validator(schema), own=False, convert=None, cut=False, tool="t"
    )
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert failure.data["example"] == {"path": "a", "text": "text", "n": 1}


OPEN = {"type": "object", "properties": {"path": STRING, "max_lines": INTEGER, "x": STRING}}
NUMBER = closed({"x": {"type": "number"}}, "x")
SAFE: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "a key behind a dash": (OPEN, {"-path": "a"}, {"path": "a"}),
    "a key that cannot be what it seems": ({**OPEN, "required": ["x"]}, {"Max_Lines": "abc"}, {"x": "text"}),
    "a number too large for its type": (NUMBER, {"x": "9007199254740993"}, {"x": 1}),
    "an unknown key beside what was wrong": (OPEN, {"zz": 1, "path": []}, {"path": "text"}),
    "true for a number": (NUMBER, {"x": True}, {"x": 1}),
    "true for an integer": (closed({"x": INTEGER}, "x"), {"x": True}, {"x": 1}),
    "true for a member": (closed({"x": {"enum": [1, 2]}}, "x"), {"x": True}, {"x": 1}),
}


@pytest.mark.parametrize("name", SAFE)
def test_an_example_is_taken_as_it_is_without_a_repair(name: str) -> None:
    schema, sent, right = SAFE[name]
    validator = Validator(schema, typed=True)
    failure = prepare(sent, validator, tool="t")
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert json.dumps(failure.data.get("example")) == json.dumps(right)
    again = prepare(failure.data["example"], validator, tool="t")
    assert isinstance(again, Prepared)
    assert again.repairs == again.warnings == ()
