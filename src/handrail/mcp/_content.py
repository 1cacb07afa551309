"""Tools and results as the protocol writes them: definitions with schemas and hints, envelopes, images and links."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import mcp_types as types

from handrail.contract.result import ArtifactRef, FailureKind, Result, images_in
from handrail.contract.truncated import Truncated
from handrail.contract.wire import sendable
from handrail.session.session import Session, core_of
from handrail.toolkit.tool import Tool

ARTIFACTS: Final = "handrail://artifacts/"
"""Prefix of every artifact's address; `?start=…&length=…` reads a range of bytes."""
INCOMPLETE: Final = "Incomplete: a part of it was discarded before it was stored."
INCOMPLETE_META: Final = {"handrail/incomplete": True}
HANDLE: Final = "sandbox"
"""The argument that names another sandbox."""
HANDLE_TOOLS: Final = ("sandbox_open", "sandbox_close")
_HANDLE_SCHEMA: Final = {"type": "string", "description": "The sandbox to use, as sandbox_open returned it."}
_TEXT: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_CUT: Final = {"description": "What is left of an answer that was too long; its warnings say where all of it is."}


def definitions(session: Session, *, handles: bool) -> list[types.Tool]:
    """Every tool that the session offers to clients of the protocol, sorted by name."""
    schemas, made = session.schemas("mcp"), []
    if core_of(session).tools.lacks_search():
        schemas = sorted([*schemas, core_of(session).tools.search_schema()], key=lambda each: each["name"])
    for schema in schemas:
        tool = core_of(session).tools.find(schema["name"])
        if "mcp" not in tool.callable_from:
            continue
        takes_handle = handles and tool.name not in HANDLE_TOOLS
        made.append(
            types.Tool(
                name=tool.name,
                description=tool.description or None,
                input_schema=_with_handle(schema["inputSchema"]) if takes_handle else schema["inputSchema"],
                output_schema=envelope_schema(schema.get("outputSchema")),
                annotations=_hints(tool),
            )
        )
    return made


def envelope_schema(result: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of an envelope whose result has this schema. It holds for failures, and for answers that were cut."""
    strings = {"type": "array", "items": {"type": "string"}}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "ok": {"type": "boolean"},
            "tool": {"type": "string"},
            "result": {},
            "kind": {"type": "string", "enum": list(get_args(FailureKind))},
            "message": {"type": "string"},
            "field": {"type": "string"},
            "expected": {"type": "string"},
            "retryable": {"type": "boolean"},
            "data": {"type": "object"},
            "warnings": strings,
        },
        "required": ["ok", "tool"],
    }
    if result is None:
        return schema
    own = {keyword: value for keyword, value in result.items() if keyword not in ("$defs", "$schema")}
    if not _refers_elsewhere(own) and not _refers_elsewhere(result.get("$defs", {})):
        schema["properties"]["result"] = {"anyOf": [_TEXT if own.get("type") == "string" else own, _CUT]}
        if "$defs" in result:  # references are resolved from the root
            schema["$defs"] = result["$defs"]
    return schema


def call_result(tool: str, result: Result) -> types.CallToolResult:
    """The envelope as text and as data, then the images, then a link to each artifact that it names."""
    envelope = result.to_envelope(tool)
    written = json.dumps(envelope, ensure_ascii=False)
    text = sendable(written)
    value = result.value if result.ok else result.data
    content: list[types.ContentBlock] = [types.TextContent(text=text)]
    for _, image in images_in(value):
        content.append(types.ImageContent(data=image.base64(), mime_type=image.media_type))
    for handle in {handle.ref: handle for handle in _artifacts_in(value)}.values():
        content.append(types.ResourceLink.model_validate({**described(handle), "type": "resource_link"}))
    return types.CallToolResult(
        content=content,
        structured_content=envelope if text == written else json.loads(text),
        is_error=not result.ok,
    )


def described(handle: ArtifactRef) -> dict[str, Any]:
    """An artifact as a resource."""
    name = sendable(handle.name or handle.ref)
    mark = {"description": INCOMPLETE, "_meta": INCOMPLETE_META} if handle.incomplete else {}
    return {"uri": ARTIFACTS + handle.ref, "name": name, "mimeType": handle.media_type, "size": handle.size, **mark}


def _hints(tool: Tool) -> types.ToolAnnotations:
    changes = not set(tool.effects) <= {"reads"}
    return types.ToolAnnotations(
        read_only_hint=not changes,
        destructive_hint=(tool.risk != "safe" or "spends" in tool.effects) if changes else None,
        open_world_hint="reaches_out" in tool.effects,
    )


def _with_handle(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "properties": {**schema.get("properties", {}), HANDLE: _HANDLE_SCHEMA}}


def _refers_elsewhere(schema: Any) -> bool:
    """Whether the schema has a reference that would lead to another place inside an envelope."""
    if isinstance(schema, Mapping):
        reference = schema.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#/$defs/"):
            return True
        return any(word in schema for word in ("$id", "$dynamicRef", "$recursiveRef")) or any(
            _refers_elsewhere(inner) for inner in schema.values()
        )
    return isinstance(schema, list | tuple) and any(_refers_elsewhere(inner) for inner in schema)


def _artifacts_in(value: Any) -> Iterator[ArtifactRef]:
    if isinstance(value, ArtifactRef):
        yield value
    elif isinstance(value, Truncated):
        yield from _artifacts_in(value.whole)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _artifacts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _artifacts_in(inner)
