"""Turn a server's answer to a call into a Result: text, structured content, pictures, files, errors."""

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from handrail.contract.result import ArtifactRef, Failure, Image, Result, Success
from handrail.mcp._listing import Offer
from handrail.mcp._sifting import LEFT_OUT
from handrail.schema.validate import Validator
from handrail.toolkit.context import Context


async def read_answer(context: Context, offer: Offer, answer: types.CallToolResult, checks: Validator | None) -> Result:
    """Turn an answer into a Result. `checks` is the output schema that the server declared."""
    content = [await _read(context, block) for block in answer.content]
    structured = answer.structured_content
    text = "\n".join(part for part in content if isinstance(part, str))
    media = [part for part in content if not isinstance(part, str)]
    if answer.is_error:
        return _error(offer, text, media, structured)
    left_out = _left_out(answer)
    if checks is None:
        return Success(_plain(content, text, media, structured), left_out)
    if problem := _broken(checks, structured, given="structured_content" in answer.model_fields_set):
        message = f"The server's answer to {offer.name} breaks the output schema that it declared: {problem}."
        return Failure("execution_error", message, data={"content": await _kept(context, content)}, retryable=False)
    if not media:
        return Success(structured, left_out)
    also = json.dumps([_wire(part) for part in await _kept(context, media)], ensure_ascii=False)
    return Success(structured, (f"The server also sent {also}", *left_out))


def _left_out(answer: types.CallToolResult) -> tuple[str, ...]:
    """A warning for the model, if the answer had more blocks than are read."""
    count = (answer.meta or {}).get(LEFT_OUT)
    if not isinstance(count, int) or count <= 0:
        return ()
    return (f"The server sent {count:,} more blocks that are not texts; they were left out. Ask for less at once.",)


def _error(offer: Offer, text: str, media: list[Any], structured: Any) -> Failure:
    data: dict[str, Any] = {}
    if structured is not None:
        data["structured"] = structured
    if rest := [part for part in media if not isinstance(part, Image)]:
        data["content"] = rest
    return Failure("execution_error", text or f"{offer.original} failed, and the server gave no reason.", data=data)


def _plain(content: list[Any], text: str, media: list[Any], structured: Any) -> Any:
    """An answer without a declared schema. Text that only repeats the structured content is left out."""
    if structured is not None:
        rest = media if _repeats(text, structured) else content
        return {"structured": structured, "content": rest} if rest else structured
    if not media:
        return text
    return content[0] if len(content) == 1 else content


def _repeats(text: str, structured: Any) -> bool:
    try:
        return not text.strip() or json.loads(text) == structured
    except (ValueError, RecursionError):
        return False


def _broken(checks: Validator, structured: Any, *, given: bool) -> str:
    if structured is None and not given:
        return "there is no structured content"
    problems = checks.problems(structured)
    return "; ".join(
        f"{problem.path}: {problem.message}" if problem.path else problem.message for problem in problems[:3]
    )


async def _read(context: Context, block: types.ContentBlock) -> Any:
    """Read one block: text as text, pictures as Images, other bytes as artifacts, links as their description."""
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            data = _bytes(block.data)
            return "[a picture that cannot be decoded]" if data is None else Image(data, block.mime_type)
        case types.AudioContent():
            return await _artifact(context, block.data, block.mime_type, None)
        case types.EmbeddedResource():
            return await _resource(context, block.resource)
        case types.ResourceLink():
            known = {"description": block.description, "media_type": block.mime_type, "size": block.size}
            link = {"resource_link": str(block.uri), "name": block.name}
            return {**link, **{key: value for key, value in known.items() if value is not None}}


async def _resource(
    context: Context, resource: types.TextResourceContents | types.BlobResourceContents
) -> dict[str, Any]:
    found: dict[str, Any] = {"resource": str(resource.uri)}
    if resource.mime_type:
        found["media_type"] = resource.mime_type
    if isinstance(resource, types.TextResourceContents):
        return {**found, "text": resource.text}
    return {**found, "content": await _artifact(context, resource.blob, resource.mime_type, str(resource.uri))}


async def _artifact(context: Context, data: str, media_type: str | None, name: str | None) -> ArtifactRef | str:
    decoded = _bytes(data)
    if decoded is None:
        return "[bytes that cannot be decoded]"
    kept = await context.artifacts.put(decoded, media_type=media_type, name=name)
    context.artifacts.show(kept)
    return kept


async def _kept(context: Context, content: list[Any]) -> list[Any]:
    """The same value with pictures as artifacts, for positions where no picture is allowed."""
    return [await _as_artifact(context, part) if isinstance(part, Image) else part for part in content]


async def _as_artifact(context: Context, image: Image) -> ArtifactRef:
    kept = await context.artifacts.put(image.data, media_type=image.media_type)
    context.artifacts.show(kept)
    return kept


def _wire(part: Any) -> Any:
    if isinstance(part, ArtifactRef):
        return part.to_wire()
    if isinstance(part, Mapping):
        return {key: _wire(value) for key, value in part.items()}
    return part


def _bytes(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        return None
