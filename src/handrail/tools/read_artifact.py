"""Read an artifact, a page at a time."""

from typing import Annotated, Any, Final

from pydantic import Field

from handrail.artifacts.store import Scope, unknown
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef, Failure, Success
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool

_MAX_CHARACTER_BYTES: Final = 4
"""Size of the longest character in UTF-8, in bytes."""
LACKS: Final = "This artifact is incomplete: a part of it was discarded before it was stored."
_BINARY_TYPES: Final = ("image/", "audio/", "video/", "font/")
_TEXT_SUFFIXES: Final = ("json", "xml", "yaml", "javascript", "toml", "csv", "x-sh")


@tool(effects=["reads"])
async def read_artifact(
    ref: Annotated[str, Field(min_length=1)],
    context: Context,
    start: Annotated[int, Field(ge=0)] = 0,
    length: Annotated[int | None, Field(ge=1)] = None,
) -> Any:
    """Read part of an artifact: an output that was too long to show, or a shared file.

    Args:
        ref: The reference, such as a_0123abcd, exactly as in a result.
        start: The first byte, counted from 0.
        length: How many bytes to read at most; by default as many as fit.
    """
    info = context.artifacts.info(ref)
    if info is not None and start >= info.size > 0:
        message = f"{ref} has {info.size:,} bytes; start {start:,} is past the end."
        raise ToolFailed(Failure("invalid_args", message, field="start", expected=f"0 to {info.size - 1}"))
    most = context.caps.file
    value = await _page(context.artifacts, ref, start, min(length or most, most))
    if value["kind"] == "binary":
        advice = f'{ref} is not text. Pass {{"$artifact": "{ref}"}} to a tool that takes its content.'
        return Success(value, (LACKS,) if value.get("incomplete") else (advice,))
    notes = [LACKS] if info is not None and info.incomplete else []
    if "next_start" in value:
        notes.append(f"{value['size'] - value['end']:,} bytes follow; go on with start={value['end']}.")
        if length is not None and length > most:
            notes.append(f"At most {most:,} bytes are read at once.")
    return Success(value, tuple(notes))


async def _page(artifacts: Scope, ref: str, start: int, length: int) -> dict[str, Any]:
    """`text` from byte `start`, its `end`, and `next_start` if more follows. Raises ToolFailed(invalid_args)."""
    info = artifacts.info(ref)
    if info is None:
        raise unknown(ref)
    length = max(1, min(length, info.size))
    begin = max(0, start - _MAX_CHARACTER_BYTES + 1)
    data = await artifacts.read(ref, begin, start - begin + length + _MAX_CHARACTER_BYTES)
    about: dict[str, Any] = {"ref": info.ref, "size": info.size, "media_type": info.media_type}
    if info.name is not None:
        about["name"] = info.name
    if info.incomplete:
        about["incomplete"] = True
    if not _is_text(info, data):
        return {"kind": "binary", **about, "begins_with": data[:16].hex(" ") if not start else ""}
    first = _boundary(data, start - begin)
    last = _boundary(data, min(len(data), start - begin + length))
    if last <= first:  # the page is smaller than its first character
        last = _boundary(data, min(len(data), first + _MAX_CHARACTER_BYTES))
    end = begin + last
    more = {"next_start": end} if end < info.size else {}
    text = data[first:last].decode("utf-8", "replace")
    return {"kind": "artifact", **about, "start": begin + first, "end": end, **more, "text": text}


def _boundary(data: bytes, at: int) -> int:
    """The start of the character that contains byte `at`; `at` itself if the bytes are not text."""
    for back in range(min(_MAX_CHARACTER_BYTES, at + 1)):
        if at - back >= len(data) or data[at - back] & 0xC0 != 0x80:
            lead = data[at - back] if at - back < len(data) else 0
            return at - back if back == 0 or lead >= 0xC0 else at
    return at


def _is_text(info: ArtifactRef, data: bytes) -> bool:
    media_type = info.media_type.partition(";")[0]
    if media_type.startswith("text/") or media_type.endswith(_TEXT_SUFFIXES):
        return True
    if media_type.startswith(_BINARY_TYPES) or b"\0" in data:
        return False
    text = data.decode("utf-8", "replace")
    return text.count("\ufffd") <= len(text) // 50 + _MAX_CHARACTER_BYTES
