"""Artifacts as resources: listed, and read whole or by range."""

from base64 import b64encode
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from handrail.artifacts.store import Scope
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef
from handrail.mcp._clients import Caller, Clients
from handrail.mcp._content import ARTIFACTS, INCOMPLETE_META, described

PAGE: Final = 100
"""Number of artifacts in one answer to `resources/list`."""
MAX_READ_BYTES: Final = 4 << 20
"""Size of the part of an artifact in one answer, in bytes."""
Context = ServerRequestContext[Clients, Any]


async def list_resources(context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    """The artifacts that results have named, a page at a time."""
    found = [handle for scope in _scopes(context) for handle in scope.own()]
    cursor = "0" if params is None or params.cursor is None else params.cursor
    if not cursor.isdecimal() or len(cursor) > 12:
        raise MCPError(types.INVALID_PARAMS, f"{cursor[:80]!r} is not a cursor of this server")
    end = int(cursor) + PAGE
    return types.ListResourcesResult(
        resources=[types.Resource.model_validate(described(handle)) for handle in found[int(cursor) : end]],
        next_cursor=str(end) if end < len(found) else None,
    )


async def list_templates(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    """The template by which an artifact is read by range."""
    template = types.ResourceTemplate(
        name="artifact",
        uri_template=ARTIFACTS + "{ref}{?start,length}",
        description="The bytes of an artifact, or a range of them: start counts from 0.",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """All of an artifact, or the bytes from `start` on, at most `length` of them."""
    uri = str(params.uri)
    ref, start, length = _parsed(uri)
    scope, handle = _found(context, uri, ref)
    left = max(0, handle.size - start)
    if (left if length is None else min(left, length)) > MAX_READ_BYTES:
        raise MCPError(
            types.INVALID_PARAMS,
            f"{ref} has {handle.size} bytes, and one answer holds {MAX_READ_BYTES}: "
            f"read it by range, as in {ARTIFACTS}{ref}?start={start}&length={MAX_READ_BYTES}",
        )
    try:
        data = await scope.read(handle, start, length)
    except ToolFailed as error:
        raise MCPError(types.INTERNAL_ERROR, error.failure.message) from None
    return types.ReadResourceResult(contents=[_contents(uri, handle, data)])


def _contents(uri: str, handle: ArtifactRef, data: bytes) -> types.TextResourceContents | types.BlobResourceContents:
    """The content, as text if it is text; a range that cuts a character in two is given as bytes."""
    about: dict[str, Any] = {"uri": uri, "mimeType": handle.media_type}
    if handle.incomplete:
        about["_meta"] = INCOMPLETE_META
    try:
        if handle.media_type.startswith("text/") or "json" in handle.media_type:
            return types.TextResourceContents.model_validate({**about, "text": data.decode()})
    except UnicodeDecodeError:
        pass
    return types.BlobResourceContents.model_validate({**about, "blob": b64encode(data).decode()})


def _parsed(uri: str) -> tuple[str, int, int | None]:
    """The reference, the start and the length that an address names."""
    if not uri.startswith(ARTIFACTS):
        raise _unknown(uri)
    parts = urlsplit(uri)
    query = parse_qs(parts.query, keep_blank_values=True)
    numbers = {name: values[-1] for name, values in query.items()}
    for name, value in numbers.items():
        if name not in ("start", "length") or not value.isdecimal() or len(value) > 15:
            raise MCPError(types.INVALID_PARAMS, f"{name[:40]}={value[:40]} in {uri[:200]}: write ?start=0&length=1000")
    length = int(numbers["length"]) if "length" in numbers else None
    return parts.path.strip("/"), int(numbers.get("start", "0")), length


def _found(context: Context, uri: str, ref: str) -> tuple[Scope, ArtifactRef]:
    for scope in _scopes(context):
        if (handle := scope.info(ref)) is not None:
            return scope, handle
    raise _unknown(uri)


def _scopes(context: Context) -> list[Scope]:
    client: Caller = context.lifespan_context.of(context)
    return [served.opened.artifacts for served in client.sessions.values() if served.opened is not None]


def _unknown(uri: str) -> MCPError:
    message = f"There is no resource {uri[:200]}. Use an address exactly as in a result."
    return MCPError(types.INVALID_PARAMS, message, {"uri": uri[:200]})
