"""Write a tool's definition for a provider: its format, its rules, and always the same bytes."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from handrail.contract.errors import HandrailError
from handrail.schema.navigate import OWN_KEYWORDS, Schema, resolve, rewrite

PROVIDERS: Final = ("openai", "openai-responses", "anthropic", "gemini", "mcp")
MAX_DESCRIPTION_CHARS: Final = 1_048_576
"""Length of a description that OpenAI accepts, in characters; older deployments accepted 1,024."""
DEFERRED: Final = "handrail/deferred"
"""Key in a schema's `_meta`: the model finds the tool by its provider's own search, if there is one."""
HOSTED: Final = "handrail/hosted"
"""Key in a schema's `_meta`: a provider's definition of a tool that it runs itself, {provider: definition}."""
_OPENAI: Final = ("openai", "openai-responses")
_NEED_ITEMS: Final = (*_OPENAI, "gemini")
"""Providers that refuse a whole request for an array without `items`."""
_NO_UNION: Final = (*_OPENAI, "anthropic")
"""Providers that refuse a whole request for a union at the root."""
_UNIONS: Final = ("allOf", "anyOf", "oneOf")
_GEMINI_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}", re.ASCII)
_ANTHROPIC_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


def export(
    provider: str,
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    output: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The definition that a provider's own SDK accepts.

    Raises HandrailError for an unknown provider, and for a tool that the provider would refuse with the whole request.
    """
    check_provider(provider)
    schema = rewrite(parameters, _without_own)
    if provider != "mcp":  # MCP takes a schema as it is
        schema = _for_provider(provider, schema)
    head: dict[str, Any] = {"name": name}
    if description:
        head["description"] = description
    made = _in_format(provider, head, schema)
    if provider == "mcp" and output is not None:
        made["outputSchema"] = rewrite(output, _without_own)
    if rule := next(_broken_rules(provider, name, description, schema, made), None):
        raise HandrailError(f"tool {name}: {provider} does not accept it: {rule}")
    return made


def check_provider(provider: str) -> None:
    """Raise HandrailError for an unknown provider."""
    if provider not in PROVIDERS:
        raise HandrailError(f"there is no provider {provider!r}; the providers are {', '.join(PROVIDERS)}")


def meta_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `_meta` of a schema of the form `mcp`, for models that know it."""
    meta = schema.get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def for_every_model(schemas: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tools that any model can use, without deferred and hosted ones."""
    return [each for each in schemas if not meta_of(each).get(DEFERRED) and not meta_of(each).get(HOSTED)]


def _in_format(provider: str, head: dict[str, Any], schema: Schema) -> dict[str, Any]:
    match provider:
        case "openai":
            return {"type": "function", "function": {**head, "parameters": schema}}
        case "openai-responses":
            return {"type": "function", **head, "parameters": schema, "strict": False}
        case "anthropic":
            return {**head, "input_schema": schema}
        case "gemini":
            return {**head, "parametersJsonSchema": schema}
    return {**head, "inputSchema": schema}


def _broken_rules(provider: str, name: str, description: str, schema: Schema, made: Mapping[str, Any]) -> Iterator[str]:
    """The provider's rules that the tool breaks."""
    if provider == "gemini" and not _GEMINI_NAME.fullmatch(name):
        yield "a name has at most 64 characters and begins with a letter or _"
    if provider == "anthropic":
        wrong = [key for key in schema.get("properties", {}) if not _ANTHROPIC_KEY.fullmatch(key)]
        if wrong:
            yield f"parameter {wrong[0][:80]!r} is not 1 to 64 of the characters A-Z, a-z, 0-9, _, . and -"
    if provider in _OPENAI and len(description) > MAX_DESCRIPTION_CHARS:
        yield f"a description has at most {MAX_DESCRIPTION_CHARS:,} characters"
    try:
        json.dumps(made, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "a text in it has half of a character pair (a lone surrogate), which cannot be sent"


def _without_own(schema: Schema) -> Schema:
    for keyword in OWN_KEYWORDS:
        schema.pop(keyword, None)
    return schema


def _for_provider(provider: str, schema: Schema) -> Schema:
    def change(inner: Schema) -> Schema:
        inner = _latest_draft(inner)
        kinds = inner.get("type")
        if provider in _NEED_ITEMS and "items" not in inner and (kinds == "array" or "array" in (kinds or ())):
            inner["items"] = {}
        return inner

    changed: Schema = rewrite(schema, change)
    if "$ref" in changed:
        changed = {
            **resolve(changed, changed),
            **{keyword: value for keyword, value in changed.items() if keyword != "$ref"},
        }
    if provider in _NO_UNION and any(keyword in changed for keyword in _UNIONS):
        changed = _without_unions(changed)
    if provider in _OPENAI:
        changed = {keyword: value for keyword, value in changed.items() if keyword not in ("enum", "not")}
        changed.setdefault("properties", {})
    return changed


def _latest_draft(schema: Schema) -> Schema:
    """The same schema in the latest draft, which providers read, without naming another draft."""
    schema.pop("$schema", None)
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        schema["items"] = schema.pop("additionalItems", {})
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool):
            if schema.pop(exclusive) and bound in schema:
                schema[exclusive] = schema.pop(bound)
    return schema


def _without_unions(schema: Schema) -> Schema:
    """Remove the unions at the root but keep the properties that only they declare; validation keeps the unions."""
    properties = dict(schema.get("properties") or {})
    required = list(schema.get("required") or ())
    for keyword in _UNIONS:
        branches = [resolve(schema, branch) for branch in schema.get(keyword) or ()]
        branches = [branch for branch in branches if isinstance(branch, Mapping)]
        new = {key for branch in branches for key in branch.get("properties") or {}} - properties.keys()
        for branch in branches:
            for key, inner in (branch.get("properties") or {}).items():
                if key in new:
                    properties[key] = _either(properties[key], inner) if key in properties else inner
        needed = [set(branch.get("required") or ()) for branch in branches]
        always = set.union(*needed) if keyword == "allOf" and needed else set.intersection(*needed) if needed else set()
        required += [key for key in properties if key in always and key not in required]
    rest = {keyword: value for keyword, value in schema.items() if keyword not in (*_UNIONS, "properties", "required")}
    more = {"properties": properties} if properties else {}
    return {**rest, **more, **({"required": required} if required else {})}


def _either(one: Any, other: Any) -> Any:
    if one == other:
        return one
    known = one["anyOf"] if isinstance(one, Mapping) and one.keys() == {"anyOf"} else [one]
    return {"anyOf": [*known, other]}
