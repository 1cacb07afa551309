"""A schema, or a tool, may say of all its optional texts what a blank one means."""

from typing import Any

import pytest

from handrail import Failure, HandrailError, Tool, tool
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.shapes import STRING, closed

PROPERTIES: dict[str, Any] = {
    "must": STRING,
    "may": STRING,
    "kept": {**STRING, "blank": "keep"},
    "choice": {"enum": ["", "a"]},
    "either": {"anyOf": [STRING, {"type": "null"}]},
}
SENT = {"must": " ", "may": " ", "kept": " ", "choice": "", "either": "\n"}
LEFT = {"must": " ", "kept": " ", "choice": ""}


def arguments(sent: Any, schema: dict[str, Any], *, own: bool = False) -> Any:
    found = prepare(sent, Validator(schema), own=own, tool="t")
    return found.arguments if isinstance(found, Prepared) else found


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("more", [{}, {"additionalProperties": False}], ids=["open", "closed"])
def test_absent_beside_the_properties_leaves_out_every_blank_optional_text(own: bool, more: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": PROPERTIES, "required": ["must"], **more}
    assert arguments(SENT, schema) == SENT  # the control
    assert arguments(SENT, {**schema, "blank": "absent"}, own=own) == LEFT


def test_it_is_said_of_one_object_and_not_of_those_inside() -> None:
    inner = {"type": "object", "properties": {"a": STRING}}
    outer = closed({"a": STRING, "one": inner, "other": {**inner, "blank": "absent"}})
    sent = {"a": "", "one": {"a": ""}, "other": {"a": ""}}
    assert arguments(sent, outer) == {"a": "", "one": {"a": ""}, "other": {}}
    assert arguments(sent, {**outer, "blank": "absent"}) == {"one": {"a": ""}, "other": {}}


def test_keep_beside_the_properties_keeps_blanks_of_a_derived_schema() -> None:
    schema = closed({"note": {**STRING, "default": ""}})
    assert arguments({"note": ""}, schema, own=True) == {}
    assert arguments({"note": ""}, {**schema, "blank": "keep"}, own=True) == {"note": ""}


def test_a_tool_says_it_for_its_schema() -> None:
    made = Tool("t", closed({"a": STRING, "b": STRING}, "b"), lambda context, arguments: None, blank="absent")
    found = prepare({"a": "", "b": ""}, made.checks, own=made.own, tool="t")
    assert isinstance(found, Prepared)
    assert found.arguments == {"b": ""}
    assert found.warnings == ()


def test_a_function_says_it_in_its_decorator() -> None:
    @tool(blank="absent")
    def greet(name: str, title: str = "Dr") -> str:
        """Greet somebody."""
        return f"{title} {name}"

    @tool
    def control(name: str, title: str = "Dr") -> str:
        """Greet somebody."""
        return f"{title} {name}"

    sent = {"name": "x", "title": ""}
    for each, left in ((greet, {"name": "x"}), (control, sent)):
        found = prepare(sent, each.checks, own=each.own, convert=each.convert, tool=each.name)
        assert isinstance(found, Prepared)
        assert found.arguments == left


def test_a_word_that_nobody_knows_is_refused() -> None:
    with pytest.raises(HandrailError, match="blank is 'drop'; write \"absent\" or"):
        Tool("t", closed({"a": STRING}), lambda context, arguments: None, blank="drop")  # type: ignore[arg-type]


def test_a_blank_that_must_not_be_is_said_to_be_empty() -> None:
    found = prepare({"a": ""}, Validator(closed({"a": {**STRING, "minLength": 1}}, "a")), tool="t")
    assert isinstance(found, Failure)
    assert '`a` must not be empty; received ""' in found.message
