"""Schemas as real servers write them: each style compiles, or its tool is left out with the reason."""

from typing import Any

import pytest

from handrail import BadSchema
from handrail.mcp._listing import make_offer, wire_form
from handrail.toolkit.hosted import exported
from handrail.toolkit.tool import Tool

OBJECT: dict[str, Any] = {"type": "object"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


COMPILE: dict[str, tuple[Any, str]] = {
    "nothing": (OBJECT, ""),
    "no additionalProperties": (of(a={"type": "string"}), ""),
    "additionalProperties false": ({**of(a={"type": "string"}), "additionalProperties": False}, ""),
    "a draft is named": ({**of(a={"type": "string"}), "$schema": DRAFT_7}, ""),
    "an unknown draft is named": ({**of(a={}), "$schema": "https://example.com/mine"}, ""),
    "definitions and $ref": (
        {**of(a={"$ref": "#/definitions/A"}), "definitions": {"A": {"type": "integer"}}},
        "",
    ),
    "$defs that refer to themselves": (
        {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": of(next={"$ref": "#/$defs/A"})}},
        "",
    ),
    "anyOf with null": (of(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}), ""),
    "a list of types": (of(a={"type": ["string", "null"]}), ""),
    "a union at the root": ({**OBJECT, "oneOf": [of(a={}), of(b={})]}, ""),
    "an array without items": (of(a={"type": "array"}), ""),
    "tuples of draft 7": ({**of(a={"type": "array", "items": [{"type": "integer"}]}), "$schema": DRAFT_7}, ""),
    "a format nobody knows": (of(a={"type": "string", "format": "snowflake"}), ""),
    "keywords of other programs": (of(a={"type": "string", "x-order": 1, "example": "b", "nullable": True}), ""),
    "an enum of several types": (of(a={"enum": ["a", 1, None]}), ""),
    "boolean schemas": (of(a=True, b=False), ""),
    "no type at the root": ({"properties": {"a": {"type": "string"}}}, ""),
    "null as the type of the root": ({"type": None, "properties": {"a": {}}}, "type"),
    "the type any": (of(a={"type": "any"}), "type"),
    "the type of another language": (of(a={"type": "str"}), "type"),
    "a boolean exclusiveMinimum": (
        of(a={"type": "number", "minimum": 0, "exclusiveMinimum": True}),
        "exclusiveMinimum",
    ),
    "required as a boolean": (of(a={"type": "string", "required": True}), "required"),
    "a property called $schema": (of(**{"$schema": {"type": "string"}}), ""),
    "a pattern with look-ahead": (of(a={"type": "string", "pattern": "^(?!x)"}), "pattern"),
    "a pattern that does not compile": (of(a={"type": "string", "pattern": "("}), "pattern"),
    "a $ref to another server": (of(a={"$ref": "https://example.com/a.json"}), "$ref"),
    "a $ref that leads nowhere": (of(a={"$ref": "#/definitions/missing"}), "$ref"),
    "a default that does not fit": (of(a={"type": "integer", "default": "ten"}), "default"),
    "an array of types at the root": ({"type": ["object", "null"], "properties": {}}, "type"),
    "properties as a list": ({"type": "object", "properties": []}, "properties"),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "a text": ("string", "not an object"),
    "a list": ([], "not an object"),
    "null": (None, "not an object"),
    "a schema larger than a context": (
        of(**{f"p{n}": {"description": "x" * 1_000} for n in range(300)}),
        "the most is",
    ),
    "references that multiply": (
        {
            **of(a={"$ref": "#/$defs/d0"}),
            "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 10} for n in range(9)} | {"d9": {}},
        },
        "branches",
    ),
}


@pytest.mark.parametrize("style", COMPILE)
def test_a_style_that_servers_use_compiles(style: str) -> None:
    schema, warned = COMPILE[style]
    raw = {"name": "t", "inputSchema": schema}
    assert wire_form(raw) is not None
    offer, warnings = make_offer("s__t", raw, trust=False)
    assert bool(warnings) == bool(warned), warnings
    assert all(warned in warning for warning in warnings), warnings
    tool = Tool(offer.name, offer.checks.schema, _body, description="x")
    for provider in ("openai", "openai-responses", "gemini", "mcp"):
        assert exported(provider, tool)


async def _body(context: object, arguments: object) -> None: ...


@pytest.mark.parametrize("style", REFUSED)
def test_a_style_that_cannot_be_used_is_refused_with_its_reason(style: str) -> None:
    schema, reason = REFUSED[style]
    with pytest.raises(BadSchema, match=reason):
        make_offer("s__t", {"name": "t", "inputSchema": schema}, trust=False)


def test_a_tool_without_a_schema_takes_nothing_in_particular() -> None:
    offer, warnings = make_offer("s__t", {"name": "t"}, trust=False)
    assert warnings == []
    assert offer.checks.is_valid({"a": 1})


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (of(a={"type": "integer"}), {"a": 1}, {"a": "x"}),
        ({"type": "array", "items": {"type": "string"}}, ["a"], [1]),
        ({"type": "any"}, {"a": 1}, None),
        ("nonsense", {"a": 1}, None),
    ],
)
def test_an_output_schema_is_kept_as_far_as_it_compiles(schema: Any, valid: Any, invalid: Any) -> None:
    offer, warnings = make_offer("s__t", {"name": "t", "inputSchema": OBJECT, "outputSchema": schema}, trust=False)
    tool = Tool("s__t", OBJECT, _body, output=offer.output)
    assert bool(warnings) == (invalid is None)
    assert tool.output_checks is None or tool.output_checks.is_valid(valid)
    assert invalid is None or (tool.output_checks is not None and not tool.output_checks.is_valid(invalid))
