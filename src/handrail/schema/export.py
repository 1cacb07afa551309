"""Show a tool to a provider, in its own shape and always in the same bytes."""

from collections.abc import Mapping
from typing import Any, Final

from handrail.contract.errors import HandrailError
from handrail.schema.walk import Schema, rewrite

PROVIDERS: Final = ("openai", "openai-responses", "anthropic", "gemini", "mcp")
OWN_KEYWORDS: Final = ("blank", "consequential")
"""Said to Handrail, not to the model."""


def export(provider: str, name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that a provider's own SDK takes. Raises HandrailError for an unknown provider."""
    schema = rewrite(parameters, _without_own)
    head: dict[str, Any] = {"name": name}
    if description:
        head["description"] = description
    match provider:
        case "openai":
            return {"type": "function", "function": {**head, "parameters": schema}}
        case "openai-responses":
            return {"type": "function", **head, "parameters": schema, "strict": False}
        case "anthropic":
            return {**head, "input_schema": schema}
        case "gemini":
            return {**head, "parametersJsonSchema": schema}
        case "mcp":
            return {**head, "inputSchema": schema}
    raise HandrailError(f"there is no provider {provider!r}; the providers are {', '.join(PROVIDERS)}")


def _without_own(schema: Schema) -> Schema:
    for keyword in OWN_KEYWORDS:
        schema.pop(keyword, None)
    return schema
