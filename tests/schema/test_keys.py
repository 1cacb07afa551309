"""A schema that says nothing of unknown keys lets them pass; one that was meant for a declared key is read as that."""

from typing import Any

import pytest

from handrail.contract.result import Failure
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
INNER: dict[str, Any] = {"type": "object", "properties": {"max_depth": WHOLE, "note": TEXT}}
OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": TEXT, "limit": WHOLE, "where": INNER, "rows": {"type": "array", "items": INNER},
        "either": {"anyOf": [INNER, {"type": "null"}]},
    },
}  # fmt: skip


def answer(arguments: Any, schema: dict[str, Any] | None = None) -> Prepared | Failure:
    return prepare(
        arguments, Validator(OPEN if schema is None else schema), own=False, convert=None, cut=False, tool="t"
    )


MEANT: dict[str, tuple[Any, Any]] = {
    "a key in another spelling": ({"filePath": "x"}, {"file_path": "x"}),
    "beside a declared one": ({"File-Path": "x", "limit": 1}, {"file_path": "x", "limit": 1}),
    "whose value is repaired too": ({"LIMIT": "5"}, {"limit": 5}),
    "beside a key that nobody knows": ({"Limit": 5, "zz": 1}, {"limit": 5, "zz": 1}),
    "inside an object": ({"where": {"maxDepth": 3}}, {"where": {"max_depth": 3}}),
    "inside a list of objects": (
        {"rows": [{"note": "a"}, {"Max Depth": 1}]},
        {"rows": [{"note": "a"}, {"max_depth": 1}]},
    ),
    "inside a union": ({"either": {"Note": "a"}}, {"either": {"note": "a"}}),
    "a wrapper": ({"arguments": {"file_path": "x"}}, {"file_path": "x"}),
    "a wrapper that holds text": ({"args": '{"file_path": "x"}'}, {"file_path": "x"}),
    "a wrapper around another spelling": ({"input": {"FilePath": "x"}}, {"file_path": "x"}),
    "a wrapper inside": ({"where": {"properties": {"note": "a"}}}, {"where": {"note": "a"}}),
    "a wrapper in a list": ({"rows": [{"input": {"note": "a"}}]}, {"rows": [{"note": "a"}]}),
}


@pytest.mark.parametrize("name", MEANT)
def test_what_was_meant_for_a_declared_key_is_moved_there_with_a_warning(name: str) -> None:
    sent, meant = MEANT[name]
    found = answer(sent)
    assert isinstance(found, Prepared), found
    assert found.arguments == meant
    assert any("→" in warning for warning in found.warnings)
    again = answer(found.arguments)
    assert isinstance(again, Prepared)
    assert again.arguments is found.arguments
    assert again.repairs == ()


AS_SENT: dict[str, Any] = {
    "a key that is only similar": {"file_pat": "x"},
    "a key whose right spelling is there": {"file_path": "x", "FilePath": "y"},
    "two keys for one": {"FilePath": "x", "filepath": "y"},
    "a wrapper of another name": {"data": {"file_path": "x"}},
    "a wrapper that is not alone": {"arguments": {"file_path": "x"}, "limit": 1},
    "a wrapper that holds no declared key": {"arguments": {"zz": 1}},
}


@pytest.mark.parametrize("name", AS_SENT)
def test_a_key_that_could_mean_something_else_stays_with_a_warning(name: str) -> None:
    found = answer(AS_SENT[name])
    assert isinstance(found, Prepared)
    assert found.arguments is AS_SENT[name]
    assert any("is not in the schema" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "says",
    [
        {"additionalProperties": True},
        {"additionalProperties": {}},
        {"patternProperties": {"^x": {}}},
        {"unevaluatedProperties": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("sent", [{"filePath": "x"}, {"arguments": {"file_path": "x"}}], ids=str)
def test_a_schema_that_speaks_of_unknown_keys_wants_them(says: dict[str, Any], sent: dict[str, Any]) -> None:
    found = answer(sent, {**OPEN, **says})
    assert isinstance(found, Prepared)
    assert found.arguments is sent


def test_a_required_key_is_respelled_where_unknown_keys_are_wanted() -> None:
    found = answer({"filePath": "x", "Limit": 1}, {**OPEN, "required": ["file_path"], "additionalProperties": True})
    assert isinstance(found, Prepared)
    assert found.arguments == {"file_path": "x", "Limit": 1}


def test_a_key_that_a_branch_declares_is_no_other_spelling() -> None:
    schema = {"type": "object", "properties": {"user_id": TEXT}, "anyOf": [{"properties": {"userId": TEXT}}, {}]}
    found = answer({"userId": "x"}, schema)
    assert isinstance(found, Prepared)
    assert found.arguments == {"userId": "x"}


REFUSED: dict[str, Any] = {
    "whose value does not fit": {"Limit": "many"},
    "inside, whose value does not fit": {"where": {"maxDepth": "deep"}},
    "a wrapper whose values do not fit": {"arguments": {"limit": "many"}},
    "a key behind a dash": {"-file_path": "x"},
    "a key behind two dashes": {"--limit": 3},
    "a declared key and the same behind a dash": {"limit": 1, "-limit": 3},
}


def test_a_bounce_names_the_key_that_was_sent_and_the_one_that_it_seems_to_mean() -> None:
    found = answer({"Limit": "many"})
    assert isinstance(found, Failure)
    assert "`Limit` seems to mean `limit`" in found.message
    inside = answer({"where": {"maxDepth": "deep"}})
    assert isinstance(inside, Failure)
    assert inside.field == "where"
    dashed = answer({"--limit": 3})
    assert isinstance(dashed, Failure)
    assert dashed.field == "--limit"


@pytest.mark.parametrize("name", REFUSED)
def test_a_key_that_seems_to_be_a_declared_one_and_cannot_be_bounces(name: str) -> None:
    found = answer(REFUSED[name])
    assert isinstance(found, Failure)
    assert found.kind == "invalid_args"


def test_a_respelled_key_never_decides_between_branches() -> None:
    branches = [{"required": ["file_path"]}, {"required": ["limit"]}]
    for sent in ({"FilePath": "x"}, {"FilePath": "x", "limit": 1}):
        for schema in ({**OPEN, "oneOf": branches}, {**OPEN, "oneOf": branches, "additionalProperties": False}):
            assert isinstance(answer(sent, schema), Failure)
    whole = {**OPEN, "oneOf": branches}
    found = answer({"limit": 1, "Where": {"note": "a"}}, whole)  # the control: it was decided before
    assert isinstance(found, Prepared)
    assert found.arguments == {"limit": 1, "where": {"note": "a"}}
    absent = {**OPEN, "oneOf": [{"required": ["file_path"]}, {"not": {"required": ["file_path"]}}]}
    assert isinstance(answer({"FilePath": "x"}, absent), Failure)


def test_a_property_that_holds_the_whole_of_its_own_schema_bounces() -> None:
    schema = {"type": "object", "properties": {"p": {"type": "object"}, "q": {}}}
    assert isinstance(answer({"p": {"type": "string"}}, schema), Prepared)  # the control: another schema is a value
    assert isinstance(answer({"p": {"type": "object"}}, schema), Failure)
    assert isinstance(answer({"q": {"type": "object"}}, schema), Prepared)


FILE = {"type": "object", "properties": {"file_path": {"type": "string"}}}
URL = {"type": "object", "properties": {"url": {"type": "string"}}}


def test_a_key_is_respelled_below_a_union_where_one_open_branch_has_it() -> None:
    schema = {"type": "object", "properties": {"o": {"anyOf": [FILE, URL]}}}
    prepared = answer({"o": {"filePath": "x"}}, schema)
    assert isinstance(prepared, Prepared)
    assert prepared.arguments == {"o": {"file_path": "x"}}
    assert prepared.warnings
    exactly = answer({"o": {"file_path": "x", "url": "y"}}, schema)
    assert isinstance(exactly, Prepared)
    assert (exactly.arguments, exactly.warnings) == ({"o": {"file_path": "x", "url": "y"}}, ())


def test_an_unknown_key_below_a_union_of_open_branches_is_passed_on_with_a_warning() -> None:
    schema = {"type": "object", "properties": {"o": {"anyOf": [FILE, URL, {**FILE, "title": "again"}]}}}
    for name in ("filePath", "other"):
        prepared = answer({"o": {name: "x"}}, schema)
        assert isinstance(prepared, Prepared)
        assert prepared.arguments == {"o": {name: "x"}}
        assert any("not in the schema" in warning for warning in prepared.warnings)
