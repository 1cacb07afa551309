"""Read an artifact as text, a page at a time: whole characters, and where to go on; other bytes are described."""

from typing import Any, Final

from handrail.artifacts.store import Scope, unknown
from handrail.contract.result import ArtifactRef

PAGE: Final = 40_000
"""Bytes of a page, unless another number is asked for."""
LARGEST: Final = 50 << 10
_WIDEST: Final = 4
_NEVER: Final = ("image/", "audio/", "video/", "font/")
_TEXTUAL: Final = ("json", "xml", "yaml", "javascript", "toml", "csv", "x-sh")


async def page(artifacts: Scope, ref: str, start: int = 0, length: int = PAGE) -> dict[str, Any]:
    """`text` from byte `start` on, its `end`, and `next_start` where there is more. Raises ToolFailed(invalid_args)."""
    info = artifacts.info(ref)
    if info is None:
        raise unknown(ref)
    begin = max(0, start - _WIDEST + 1)
    data = await artifacts.read(ref, begin, start - begin + max(1, min(length, LARGEST)) + _WIDEST)
    about: dict[str, Any] = {"ref": info.ref, "size": info.size, "media_type": info.media_type}
    if info.name is not None:
        about["name"] = info.name
    if not _is_text(info, data):
        return {"kind": "binary", **about, "begins_with": data[:16].hex(" ") if not start else ""}
    first = _boundary(data, start - begin)
    last = _boundary(data, min(len(data), start - begin + max(1, min(length, LARGEST))))
    if last <= first:  # the page is smaller than the character that stands there
        last = _boundary(data, min(len(data), first + _WIDEST))
    end = begin + last
    more = {"next_start": end} if end < info.size else {}
    text = data[first:last].decode("utf-8", "replace")
    return {"kind": "artifact", **about, "start": begin + first, "end": end, **more, "text": text}


def _boundary(data: bytes, at: int) -> int:
    """The beginning of the character in whose middle `at` is; `at` itself where the bytes are no text."""
    for back in range(min(_WIDEST, at + 1)):
        if at - back >= len(data) or data[at - back] & 0xC0 != 0x80:
            lead = data[at - back] if at - back < len(data) else 0
            return at - back if back == 0 or lead >= 0xC0 else at
    return at


def _is_text(info: ArtifactRef, data: bytes) -> bool:
    media_type = info.media_type.partition(";")[0]
    if media_type.startswith("text/") or media_type.endswith(_TEXTUAL):
        return True
    if media_type.startswith(_NEVER) or b"\0" in data:
        return False
    text = data.decode("utf-8", "replace")
    return text.count("\ufffd") <= len(text) // 50 + _WIDEST
