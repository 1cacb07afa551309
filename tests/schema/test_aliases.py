"""A property may have other names, which its schema declares: a call by one of them is respelled without a warning."""

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from handrail import Failure, Policy, Session, Tool, tool
from handrail.contract.errors import BadSchema
from handrail.schema.export import PROVIDERS, export
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from handrail.testing import EventRecorder
from tests.schema.shapes import INTEGER, STRING, closed

PATH = {"type": "string", "aliases": ["file_path", "filename"]}
COUNT = {"type": "integer", "aliases": ["count"]}
INNER = closed({"path": PATH, "n": COUNT}, "path")
CLOSED = closed(
    {"path": PATH, "n": COUNT, "rows": {"type": "array", "items": INNER}, "to": {"anyOf": [INNER, {"type": "null"}]}}
)
OPEN = {key: value for key, value in CLOSED.items() if key != "additionalProperties"}
WANTS_OTHERS = {**CLOSED, "additionalProperties": True}
FORMS = {"closed": CLOSED, "open": OPEN, "with other keys wanted": WANTS_OTHERS}
every_form = pytest.mark.parametrize("form", FORMS)


def answer(arguments: Any, schema: dict[str, Any]) -> Prepared | Failure:
    return prepare(arguments, Validator(schema), tool="t")


RESPELLED: dict[str, tuple[Any, Any]] = {
    "an alias": ({"file_path": "a"}, {"path": "a"}),
    "another one": ({"filename": "a", "n": 2}, {"path": "a", "n": 2}),
    "two properties by aliases": ({"filename": "a", "count": 2}, {"path": "a", "n": 2}),
    "an alias whose value is repaired": ({"path": "a", "count": "2"}, {"path": "a", "n": 2}),
    "an alias in a text": ('{"file_path": "a"}', {"path": "a"}),
    "an alias inside a list": (
        {"rows": [{"file_path": "a"}, {"path": "b"}]},
        {"rows": [{"path": "a"}, {"path": "b"}]},
    ),
    "an alias inside a union": ({"to": {"file_path": "a"}}, {"to": {"path": "a"}}),
}


@every_form
@pytest.mark.parametrize("name", RESPELLED)
def test_an_alias_is_respelled_without_a_warning_and_recorded(name: str, form: str) -> None:
    sent, meant = RESPELLED[name]
    found = answer(sent, FORMS[form])
    assert isinstance(found, Prepared), found
    assert found.arguments == meant
    assert found.warnings == found.doubtful == ()
    assert "alias" in {repair.rule for repair in found.repairs}


@every_form
@pytest.mark.parametrize(
    "sent",
    [
        {"path": "a", "file_path": "a"},
        {"file_path": "a", "filename": "b"},
        {"rows": [{"path": "a", "filename": "b"}]},
        '{"path": "a", "file_path": "b"}',
    ],
    ids=str,
)
def test_an_alias_beside_its_property_or_beside_another_alias_bounces(sent: Any, form: str) -> None:
    found = answer(sent, FORMS[form])
    assert isinstance(found, Failure)
    assert "is another name of `path`, which was sent twice" in found.message
    assert found.field in ("file_path", "filename", "rows[0].filename")
    assert found.data is not None
    assert isinstance(answer(found.data["example"], FORMS[form]), Prepared)


def test_an_alias_in_another_spelling_is_respelled_with_a_warning() -> None:
    found = answer({"filePath": "a"}, CLOSED)
    assert isinstance(found, Prepared)
    assert found.arguments == {"path": "a"}
    assert found.warnings
    assert isinstance(answer({"filePath": "a", "file_path": "b"}, CLOSED), Failure)
    assert isinstance(answer({"filePath": "a", "Path": "b"}, CLOSED), Failure)


def test_a_bounce_speaks_of_the_property_not_of_its_alias() -> None:
    found = answer({"filename": "a", "count": "many"}, closed({"path": PATH, "n": COUNT}, "path"))
    assert isinstance(found, Failure)
    assert found.field == "n"
    assert "filename" not in found.message
    assert found.data is not None
    assert found.data["example"] == {"path": "a", "n": 1}


def test_a_wrapper_and_a_list_are_recognised_by_the_aliases_in_them() -> None:
    for sent in ({"arguments": {"file_path": "a"}}, '[{"file_path": "a"}]'):
        found = answer(sent, CLOSED)
        assert isinstance(found, Prepared), found
        assert found.arguments == {"path": "a"}
    found = answer({"rows": {"file_path": "a"}}, CLOSED)
    assert isinstance(found, Prepared)
    assert found.arguments == {"rows": [{"path": "a"}]}


def test_no_provider_is_shown_an_alias() -> None:
    for provider in PROVIDERS:
        made = json.dumps(export(provider, "t", "", {**CLOSED, "blank": "absent"}))
        assert "alias" not in made
        assert "file_path" not in made
        assert "blank" not in made


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a property's name": (closed({"path": PATH, "filename": STRING}), "the alias 'filename' of 'path' is the name of"),
    "an alias of two": (closed({"a": PATH, "b": PATH}), "of 'b' is an alias of 'a' too"),
    "its own name": (closed({"a": {**STRING, "aliases": ["a"]}}), "the alias 'a' of 'a' is the name of a property"),
    "a text": (closed({"a": {**STRING, "aliases": "b"}}), "write a list of names"),
    "numbers": (closed({"a": {**STRING, "aliases": [1]}}), "write a list of names"),
    "inside a list": (
        closed({"rows": {"type": "array", "items": closed({"n": COUNT, "count": INTEGER})}}),
        "the alias 'count' of 'n' is the name of a property",
    ),
    "in a branch": (closed({"a": {"anyOf": [PATH, {"type": "null"}]}, "filename": STRING}), "the alias 'filename'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_alias_with_two_meanings_is_refused_where_the_tool_is_made(name: str) -> None:
    schema, said = WRONG[name]
    with pytest.raises(BadSchema) as raised:
        Tool("t", schema, lambda context, arguments: None)
    assert said in str(raised.value)
    lenient, warnings = Validator.lenient(schema)
    assert Tool("t", lenient.schema, lambda context, arguments: None).name == "t"
    assert any(said in warning for warning in warnings)


class Row(BaseModel):
    """A row."""

    name: Annotated[str, Field(json_schema_extra={"aliases": ["label"]})]


@tool(effects=["writes"])
def store(
    row: Row,
    path: Annotated[str | None, Field(json_schema_extra={"aliases": ["file_path"]})] = None,
    size: Annotated[int, Field(json_schema_extra={"aliases": ["bytes"]})] | None = None,
) -> str:
    """Store a row."""
    return f"{row.name} {path} {size}"


@pytest.mark.anyio
async def test_a_typed_function_is_called_by_aliases_without_anybody_being_asked() -> None:
    recorder = EventRecorder()
    async with Session([store], policy=Policy(allow=["store"]), readers=[recorder]) as session:
        control = await session.call("store", {"row": {"name": 5}})
        result = await session.call("store", {"row": {"label": "a"}, "file_path": "b", "bytes": 3})
    assert not control.ok  # a repair that changed a value does ask
    assert result.ok
    assert result.value == "a b 3"
    assert result.warnings == ()
    first, second = [event.data["repairs"] for event in recorder.events if event.type == "call_repaired"]
    assert [repair["rule"] for repair in first] == ["number as text"]
    assert [repair["rule"] for repair in second] == ["alias"] * 3
