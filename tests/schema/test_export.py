"""Each provider gets the shape that its own SDK takes, in the same bytes in every process."""

import json
import os
import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest
from anthropic.types import ToolParam
from google.genai.types import FunctionDeclaration
from mcp_types import Tool as McpTool
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter, ValidationError

from handrail import Tool, Toolbox
from handrail.contract.errors import HandrailError
from handrail.schema.export import PROVIDERS, export
from handrail.schema.navigate import children
from tests.schema.shapes import NESTED_SCHEMA

SDK_TYPES: dict[str, Any] = {
    "openai": ChatCompletionFunctionToolParam,
    "openai-responses": FunctionToolParam,
    "anthropic": ToolParam,
    "gemini": FunctionDeclaration,
    "mcp": McpTool,
}
PLACES = {
    "openai": ("function", "parameters"),
    "openai-responses": ("parameters",),
    "anthropic": ("input_schema",),
    "gemini": ("parametersJsonSchema",),
    "mcp": ("inputSchema",),
}
PROGRAM = """
import json
from typing import Literal
from pydantic import BaseModel
from handrail.schema.derive import derive
from handrail.schema.export import PROVIDERS, export

class Item(BaseModel):
    name: str
    kind: Literal["b", "a", "c"] = "a"

class Other(BaseModel):
    kind: Literal["d"]

def work(items: list[Item], flags: set[str], one: Item | Other, mode: Literal["x", "y"] = "x") -> dict[str, Other]: ...
made = derive(work, injected=type("Context", (), {}))
names = ["p", "q", "r", "s"]
union = [{"properties": {name: {"type": "array"} for name in names[at:]}, "required": names} for at in range(4)]
print(json.dumps([
    export(provider, "work", "Works.", schema, made.output)
    for provider in PROVIDERS for schema in (made.parameters, {"type": "object", "anyOf": union})
]))
"""


def inside(provider: str, exported: dict[str, Any]) -> Any:
    for step in PLACES[provider]:
        exported = exported[step]
    return exported


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("description", ["Does it.", ""])
def test_the_providers_own_type_takes_it(provider: str, description: str) -> None:
    exported = export(provider, "work", description, NESTED_SCHEMA)
    made = TypeAdapter(SDK_TYPES[provider]).validate_python(exported)
    assert inside(provider, exported) == NESTED_SCHEMA
    if provider in ("gemini", "mcp"):
        assert made.name == "work"
        assert made.model_dump(by_alias=True, exclude_none=True).get("description", "") == description


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_providers_own_type_takes_a_schema_from_outside(provider: str) -> None:
    TypeAdapter(SDK_TYPES[provider]).validate_python(export(provider, "work", "", OUTSIDE, {"type": "integer"}))


def test_the_check_against_the_sdk_can_fail() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(ToolParam).validate_python(export("openai", "work", "", NESTED_SCHEMA))
    with pytest.raises(ValidationError):
        TypeAdapter(FunctionToolParam).validate_python(export("anthropic", "work", "", NESTED_SCHEMA))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_our_own_words_are_not_shown_and_properties_of_their_name_are(provider: str) -> None:
    text = {"type": "string", "blank": "keep", "consequential": True}
    schema = {"type": "object", "properties": {"blank": text, "list": {"type": "array", "items": text}}}
    shown = inside(provider, export(provider, "work", "", schema))
    assert shown["properties"] == {"blank": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}}
    assert text["blank"] == "keep"


OUTSIDE: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "bare": {"type": "array"},
        "maybe": {"type": ["array", "null"]},
        "pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False},
        "deep": {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "array"}}}},
        "items": {"type": "string"},
    },
    "oneOf": [{"required": ["bare"]}, {"required": ["maybe"]}],
}
OTHERS = [provider for provider in PROVIDERS if provider != "mcp"]


def arrays(schema: Any) -> list[Any]:
    found = [schema] if "array" in schema.get("type", ()) else []
    return found + [inner for child in children(schema) for inner in arrays(child)]


def test_mcp_leaves_a_schema_as_it_was_given() -> None:
    assert inside("mcp", export("mcp", "work", "", OUTSIDE)) == OUTSIDE


@pytest.mark.parametrize("provider", OTHERS)
def test_the_draft_is_not_named_and_its_old_words_are_todays(provider: str) -> None:
    schema = inside(provider, export(provider, "work", "", OUTSIDE))
    assert "$schema" not in json.dumps(schema)
    pair = schema["properties"]["pair"]
    assert pair["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert pair["items"] is False
    assert "additionalItems" not in pair
    assert jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    assert not jsonschema_rs.meta.is_valid({**OUTSIDE, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    assert OUTSIDE["$schema"]  # what was given stays


def test_old_bounds_become_numbers() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}
    numbers = {
        "a": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
        "b": {"maximum": 5, "exclusiveMaximum": False},
    }
    schema = export("anthropic", "work", "", {**old, "properties": numbers})["input_schema"]
    assert schema["properties"] == {"a": {"type": "integer", "exclusiveMinimum": 1}, "b": {"maximum": 5}}


@pytest.mark.parametrize("provider", OTHERS)
def test_openai_and_gemini_see_items_of_every_array(provider: str) -> None:
    schema = inside(provider, export(provider, "work", "", OUTSIDE))
    assert all("items" in array for array in arrays(schema)) is (provider != "anthropic")
    assert schema["properties"]["items"] == {"type": "string"}


def test_a_union_at_the_root_is_left_out_for_openai_and_anthropic_and_checked_all_the_same() -> None:
    made = Tool("work", OUTSIDE, lambda context, arguments: None)
    for provider in ("openai", "openai-responses", "anthropic"):
        assert "oneOf" not in inside(provider, Toolbox([made]).schema_for("work", provider))
    for provider in ("gemini", "mcp"):
        assert "oneOf" in inside(provider, Toolbox([made]).schema_for("work", provider))
    assert made.checks.is_valid({"bare": []})
    assert not made.checks.is_valid({})


def test_what_only_the_branches_declare_is_still_shown() -> None:
    branches = [
        {"properties": {"type": {"const": "file"}, "path": {"type": "string"}}, "required": ["type", "path"]},
        {"properties": {"type": {"const": "page"}, "url": {"type": "string"}}, "required": ["type", "url"]},
    ]
    both = {"allOf": [{"properties": {"n": {"type": "integer"}}, "required": ["n"]}]}
    schema = export("anthropic", "work", "", {"type": "object", "anyOf": branches, **both})["input_schema"]
    assert schema == {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "type": {"anyOf": [{"const": "file"}, {"const": "page"}]},
            "path": {"type": "string"},
            "url": {"type": "string"},
        },
        "required": ["n", "type"],
    }


def test_the_root_that_is_a_reference_is_written_out() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}}}
    shown = export("openai", "work", "", schema)["function"]["parameters"]
    assert (shown["type"], shown["$defs"]) == ("object", schema["$defs"])
    assert "$ref" not in shown


def test_openai_sees_properties_even_where_there_are_none() -> None:
    assert export("openai", "work", "", {"type": "object"})["function"]["parameters"] == {
        "type": "object",
        "properties": {},
    }


REFUSED = [
    ("gemini", "2fast", "", {}, "begins with a letter"),
    ("gemini", "-x", "", {}, "begins with a letter"),
    ("anthropic", "work", "", {"filter[id]": {}}, r"parameter 'filter\[id\]'"),
    ("anthropic", "work", "", {"x" * 65: {}}, "1 to 64"),
    ("openai", "work", "x" * 1_048_577, {}, "1,048,576"),
    ("openai-responses", "work", "x" * 1_048_577, {}, "1,048,576"),
    *((provider, "work", "half \ud83d", {}, "half of a character pair") for provider in PROVIDERS),
    ("anthropic", "work", "", {"a": {"description": "half \ud83d"}}, "half of a character pair"),
]


@pytest.mark.parametrize(("provider", "name", "description", "properties", "rule"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_provider_refuses_is_refused_here_naming_tool_and_rule(
    provider: str, name: str, description: str, properties: Any, rule: str
) -> None:
    with pytest.raises(HandrailError, match=rf"tool {name}: {provider} does not accept it: .*{rule}"):
        export(provider, name, description, {"type": "object", "properties": properties})
    others = [other for other in PROVIDERS if other.partition("-")[0] != provider.partition("-")[0]]
    if "pair" not in rule:
        for other in others:  # the control: it is this provider's rule alone
            export(other, name, description, {"type": "object", "properties": properties})


def test_a_deeper_property_of_any_name_is_no_ones_concern() -> None:
    export("anthropic", "work", "", {"type": "object", "properties": {"a": {"properties": {"b[c]": {}}}}})


def test_only_mcp_carries_the_output_schema() -> None:
    def work(n: int) -> dict[str, int]: ...
    def quiet(n: int): ...  # type: ignore[no-untyped-def]

    box = Toolbox([work, quiet])
    assert box.schema_for("work")["outputSchema"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert TypeAdapter(McpTool).validate_python(box.schema_for("work")).output_schema is not None
    assert "outputSchema" not in box.schema_for("quiet")
    for provider in OTHERS:
        assert "utput" not in json.dumps(box.schema_for("work", provider))


def test_an_unknown_provider_is_told_which_there_are() -> None:
    with pytest.raises(HandrailError, match="openai, openai-responses, anthropic, gemini, mcp"):
        export("acme", "work", "", NESTED_SCHEMA)


def test_two_processes_with_different_hash_seeds_write_the_same_bytes() -> None:
    written = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(written) == 1
    assert len(json.loads(written.pop())) == 2 * len(PROVIDERS)
