"""Each provider gets the shape that its own SDK takes, in the same bytes in every process."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from anthropic.types import ToolParam
from google.genai.types import FunctionDeclaration
from mcp_types import Tool as McpTool
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter, ValidationError

from handrail.contract.errors import HandrailError
from handrail.schema.export import PROVIDERS, export
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

def work(items: list[Item], flags: set[str], mode: Literal["x", "y"] = "x") -> None: ...
schema = derive(work, injected=type("Context", (), {})).parameters
print(json.dumps([export(provider, "work", "Works.", schema) for provider in PROVIDERS]))
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
    assert len(json.loads(written.pop())) == len(PROVIDERS)
