"""The one way in: what is kept, what is converted, what is doubtful, and what may stand for a value."""

import json
from types import MappingProxyType
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, field_validator

from handrail.contract.result import Failure
from handrail.schema.derive import derive
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.shapes import OPEN_SCHEMA, VALIDATORS, closed

FLAT = VALIDATORS["flat"]


class Context:
    """Stands for the runtime's own parameter."""


def prepared(arguments: Any, validator: Validator = FLAT, **options: Any) -> Prepared:
    answer = prepare(arguments, validator, **{"own": False, "convert": None, "cut": False, "tool": "t", **options})
    assert isinstance(answer, Prepared), answer
    return answer


def refused(arguments: Any, validator: Validator = FLAT, **options: Any) -> Failure:
    answer = prepare(arguments, validator, **{"own": False, "convert": None, "cut": False, "tool": "t", **options})
    assert isinstance(answer, Failure), answer
    return answer


def test_a_valid_mapping_is_the_same_object_whatever_kind_of_mapping_it_is() -> None:
    for arguments in ({"n": 1}, MappingProxyType({"n": 1})):
        assert prepared(arguments).arguments is arguments


def test_the_given_mapping_is_never_changed() -> None:
    arguments = {"N": "1", "tags": ["a", 2], "s": None}
    assert prepared(arguments).arguments == {"n": 1, "tags": ["a", "2"]}
    assert arguments == {"N": "1", "tags": ["a", 2], "s": None}


class Even(BaseModel):
    number: int
    label: str = ""

    @field_validator("number")
    @classmethod
    def check(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


def work(
    item: Even,
    note: str = "none",
    kept: Annotated[str, Field(json_schema_extra={"blank": "keep"})] = "none",
    limit: int = 3,
    maybe: str | None = None,
    mode: Annotated[str, Field(min_length=2)] = "fast",
) -> None: ...


DERIVED = derive(work, injected=Context)
OWN = Validator(DERIVED.parameters)


def test_conversion_comes_after_repair_and_its_refusal_is_a_bounce() -> None:
    answer = prepared('{"item": {"number": "4"}}', OWN, own=True, convert=DERIVED.convert)
    assert answer.arguments == {"item": {"number": 4}}
    assert answer.converted == {"item": Even(number=4)}
    failure = refused('{"item": {"number": 3}}', OWN, own=True, convert=DERIVED.convert)
    assert failure.field == "item.number"
    assert "must be even" in failure.message


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
@pytest.mark.parametrize("as_text", [True, False])
def test_a_blank_in_optional_text_of_our_own_tools_is_left_out_where_its_default_is_empty(
    as_text: bool, blank: str
) -> None:
    arguments: Any = {
        "item": {"number": 2, "label": blank},
        "note": blank,
        "kept": blank,
        "limit": blank,
        "maybe": blank,
    }
    answer = prepared(json.dumps(arguments) if as_text else arguments, OWN, own=True)
    assert answer.arguments == {"item": {"number": 2}, "note": blank, "kept": blank}
    assert answer.warnings == ()
    assert {repair.path for repair in answer.repairs} == {"item.label", "limit", "maybe"}
    assert refused({"item": {"number": 2}, "mode": ""}, OWN, own=True).field == "mode"


def test_blanks_stay_where_they_are_required_and_in_schemas_from_outside() -> None:
    required = Validator(closed({"s": {"type": "string", "default": ""}}, "s"))
    assert prepared({"s": ""}, required, own=True).arguments == {"s": ""}
    for default in ({}, {"default": None}, {"default": ""}, {"default": "x"}):
        validator = Validator(closed({"s": {"type": "string", **default}}))
        assert prepared({"s": ""}, validator, own=False).arguments == {"s": ""}
        empty = default.get("default", "x") != "x"
        assert prepared({"s": " "}, validator, own=True).arguments == ({} if empty else {"s": " "})
    assert refused({"mode": ""}, Validator(closed({"mode": {"type": "string", "minLength": 1}}))).field == "mode"


@pytest.mark.parametrize("own", [True, False])
def test_a_schema_written_by_hand_may_say_that_blank_means_absent(own: bool) -> None:
    text = {"type": "string", "blank": "absent"}
    inner = closed({"s": text})
    validator = Validator(
        closed({"s": text, "kept": {**text, "blank": "keep"}, "o": inner, "short": {**text, "minLength": 1}})
    )
    sent = {"s": " ", "kept": "", "o": {"s": ""}, "short": ""}
    assert prepared(sent, validator, own=own).arguments == {"kept": "", "o": {}}


def test_a_blank_for_an_optional_enum_is_left_out() -> None:
    modes = {"enum": ["a", "b"]}
    validator = Validator(
        closed({"mode": modes, "either": {"anyOf": [modes, {"type": "null"}]}, "must": modes}, "must")
    )
    for blank in ("", "  "):
        assert prepared({"mode": blank, "either": blank, "must": "a"}, validator).arguments == {"must": "a"}
    assert refused({"must": ""}, validator).field == "must"


def test_a_blank_that_is_a_member_is_kept() -> None:
    validator = Validator(closed({"mode": {"enum": ["", "a"]}}))
    assert prepared({"mode": ""}, validator, own=True).arguments == {"mode": ""}


def test_whole_floats_become_integers_where_only_integers_are_meant() -> None:
    value = {"n": 2.0, "f": 2.0, "ids": [1.0, 2]}
    assert repr(prepared(value).arguments) == "{'n': 2, 'f': 2.0, 'ids': [1, 2]}"
    either = Validator(closed({"x": {"anyOf": [{"type": "integer"}, {"type": "number"}]}}))
    assert repr(prepared({"x": 2.0}, either).arguments) == "{'x': 2.0}"


@pytest.mark.parametrize("own", [True, False])
def test_no_digit_of_an_integer_is_lost(own: bool) -> None:
    big = 12345678901234567890
    for text in (f"{big}", f"{big}.0", '"12345678901234567890"', '"12345678901234567890.0"', "12345678901234567.89e3"):
        assert prepared(f'{{"n": {text}}}', own=own).arguments["n"] == big, text
    assert prepared('{"n": 1e23}', own=own).arguments["n"] == 10**23
    for lossy in ('{"n": 9007199254740993.0, "f": 9007199254740992.0}', {"n": 9007199254740992.0}, {"n": 1e300}):
        failure = refused(lossy, own=own)
        assert failure.field == "n"
        assert "read exactly" in failure.message
    assert prepared({"n": 9007199254740991.0}, own=own).arguments["n"] == 9007199254740991
    assert prepared({"n": 1, "f": "9007199254740993.0"}, own=own).arguments["f"] == 9007199254740993


ECHOES: dict[str, Any] = {
    "a property": {"any": {"type": "object", "description": "What to keep."}},
    "the whole": {"type": "object", "properties": {"any": {"type": "object", "description": "What to keep."}}},
    "the properties": {"properties": {"any": {"type": "object"}, "s": {"type": "string"}}},
    "the properties in another wrapper": {"arguments": {"any": {"type": "object"}}},
    "the properties as text": {"properties": '{"any": {"type": "object"}}'},
}


@pytest.mark.parametrize("name", ECHOES)
@pytest.mark.parametrize("more", [{}, {"additionalProperties": False}], ids=["open", "closed"])
def test_a_schema_sent_back_as_values_bounces(name: str, more: dict[str, Any]) -> None:
    properties = {"any": {"type": "object", "description": "What to keep."}, "s": {"type": "string"}}
    validator = Validator({"type": "object", "properties": properties, **more})
    refused(ECHOES[name], validator)
    for value in ({"type": "object"}, {"type": "circle", "description": "What to keep."}, {"type": "string", "n": 1}):
        assert prepared({"any": value}, validator).arguments == {"any": value}  # the control: a value like any other
    assert prepared({"properties": {"any": {"type": "x"}}}, validator).arguments == {"any": {"type": "x"}}


def test_an_open_schema_passes_unknown_keys_on_with_a_warning() -> None:
    validator = Validator(OPEN_SCHEMA)
    answer = prepared('{"n": 1, "zz": 2}', validator)
    assert answer.arguments == {"n": 1, "zz": 2}
    assert any("`zz`" in warning for warning in answer.warnings)
    assert prepared('{"n": 1}', validator).warnings == ()
    nested = Validator(closed({"o": OPEN_SCHEMA}))
    assert any("`o.zz`" in warning for warning in prepared({"o": {"n": 1, "zz": 2}}, nested).warnings)


DOUBTFUL = {
    "number as text": {"n": 1, "path": 15},
    "quotes rewritten with an escape": "{'n': 1, 'path': 'a\\'b'}",
    "quotes rewritten": "{'n': 1, 'path': 'a \"b\"'}",
    "a field of any name": {"n": 1, "title": 15},
    "inside an object": {"n": 1, "o": {"x": 15}},
    "inside a union": {"n": 1, "u": {"x": 15}},
    "put into a list": {"n": 1, "command": "ls"},
    "taken out of its list": {"n": 1, "path": ["a"]},
    "quotes inside a wrapper": "{'arguments': {'n': 1, 'path': 'a \"b\"'}}",
    "by its own word": {"n": 1, "special": 5},
    "by its own word inside one that does not matter": {"n": 1, "slight": {"special": 5}},
}
CERTAIN = {
    "fence": '```json\n{"n": 1, "path": "a"}\n```',
    "trailing comma": '{"n": 1, "path": "a",}',
    "key respelled": '{"n": 1, "Path": "a"}',
    "unquoted key": '{n: 1, path: "a"}',
    "single quotes around keys": "{'n': 1, 'path': \"a\"}",
    "single quotes around plain text": "{'n': 1, 'path': 'a b'}",
    "Python literal": '{"n": 1, "amount": True}',
    "raw line break": '{"n": 1, "content": "a\nb"}',
    "trailing text": '{"n": 1, "path": "a"} done',
    "silent repairs": {"n": "1", "id": "7"},
    "a word for true": {"n": 1, "amount": "yes"},
    "a Python literal": '{"n": 1, "amount": True}',
    "a field that says so": {"n": 1, "path_style": 5},
    "a field inside one that says so": {"n": 1, "slight": {"x": 5}},
    "a field in a branch that says so": {"n": 1, "u": {"y": 5}},
}


def weighty() -> Validator:
    text = {"type": "string"}
    slight = {**text, "consequential": False}
    special = {**text, "consequential": True}
    return Validator(
        closed(
            {
                "o": closed({"x": text}), "slight": {**closed({"x": text, "special": special}), "consequential": False},
                "u": {"anyOf": [closed({"x": text, "y": slight}), {"type": "null"}]},
                "n": {"type": "integer"}, "path": text, "content": text, "title": text, "id": {"type": "integer"},
                "amount": {"type": "boolean"}, "command": {"type": "array", "items": text},
                "special": special, "path_style": slight,
            },
            "n",
        )
    )  # fmt: skip


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_changed_value_is_doubtful_whatever_its_field_is_called(name: str) -> None:
    answer = prepared(DOUBTFUL[name], weighty())
    assert len(answer.doubtful) == 1
    repair = answer.doubtful[0]
    assert repair.before != repair.after
    assert repair.changed_value


@pytest.mark.parametrize("name", CERTAIN)
def test_what_leaves_every_value_as_sent_or_does_not_matter_is_not_doubtful(name: str) -> None:
    answer = prepared(CERTAIN[name], weighty())
    assert answer.repairs
    assert answer.doubtful == ()


def known(reference: str) -> str:
    return "" if reference == "art-1" else "there is no such artifact"


REFERENCE = {"$artifact": "art-1"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": REFERENCE},
        {"n": 1, "tags": REFERENCE},
        {"n": 1, "tags": ["a", REFERENCE]},
        {"n": 1, "s": {"$artifact": "art-1", "size": 3, "media_type": "text/plain", "name": "a"}},
        '{"n": 1, "s": {"$artifact": "art-1"}}',
        '{"n": 1, "s": {"\\u0024artifact": "art-1"}}',
    ],
)
def test_a_known_reference_stands_for_any_value_and_waits_to_be_filled_in(arguments: Any) -> None:
    def never(_: Any) -> dict[str, Any]:
        raise AssertionError("nothing is converted before it is filled in")

    answer = prepared(arguments, artifact=known, convert=never)
    assert answer.converted == answer.arguments
    assert answer.arguments is arguments or isinstance(arguments, str)


def test_an_unknown_reference_is_refused_naming_the_field() -> None:
    hidden = '{"n": 1, "tags": ["a", {"\\u0024artifact": "art-2"}]}'
    for arguments in ({"n": 1, "tags": ["a", {"$artifact": "art-2"}]}, hidden):
        failure = refused(arguments, artifact=known)
        assert failure.field == "tags[1]"
        assert "no such artifact" in failure.message
        assert failure.data is not None
        assert failure.data["example"] == {"n": 1, "tags": ["text"]}


def test_what_is_beside_a_reference_is_still_checked_and_without_a_store_there_are_none() -> None:
    assert refused({"n": "x", "s": REFERENCE}, artifact=known).field == "n"
    assert prepared({"n": "5", "s": REFERENCE}, artifact=known).arguments == {"n": 5, "s": REFERENCE}
    assert refused({"n": REFERENCE}).field == "n"
    assert refused(REFERENCE, artifact=known).field == "n"
    assert refused({"n": {"$artifact": "art-1", "more": 1}}, artifact=known).field == "n"
    shapes = VALIDATORS["unions"]
    assert prepared({"shape": {"side": REFERENCE}}, shapes, artifact=known).arguments == {"shape": {"side": REFERENCE}}
