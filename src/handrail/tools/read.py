"""Read a text file by lines, list a directory, show an image; describe any other file."""

from codecs import getincrementaldecoder
from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.limits import Caps
from handrail.contract.result import Failure, Image, Success
from handrail.sandbox.dispatch import Listing
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.images import MAX_IMAGE_BYTES, image_type
from handrail.toolkit.tool import tool
from handrail.tools._paths import FilePath, explain_errors, lookup, remember_version, require_file

MAX_COUNTED_BYTES: Final = 64 << 20
"""Size up to which a file is read to its end, in bytes, so that its number of lines is known."""
READ_CHUNK: Final = 1 << 20
MAX_SCANNED_LINE_BYTES: Final = 8 << 20
"""Length of a line in a large file, in bytes, after which the search for its end stops."""
NOTE_ROOM: Final = 40
"""Bytes for the note at the end of a line that was cut."""


@tool(effects=["reads"], needs=["files", "range_read"])
async def read(
    path: FilePath,
    context: Context,
    offset: Annotated[int, Field(ge=1)] = 1,
    limit: Annotated[int | None, Field(ge=1)] = None,
) -> Any:
    """Read a text file by lines, list a directory, or look at an image.

    Args:
        path: The file or directory, absolute or relative to the workspace.
        offset: The first line to read, counted from 1; for a directory, the first entry.
        limit: How many lines, or entries, to read at most; by default as many as fit.
    """
    sandbox = context.sandbox
    stat = await lookup(sandbox, path)
    with explain_errors(sandbox, path):
        if stat.type == "directory":
            return await _listing(context, path, offset, limit)
        require_file(path, stat, "it cannot be read")
        return await _file(context, path, stat, offset, limit)


async def _file(context: Context, path: str, stat: FileStat, offset: int, limit: int | None) -> Any:
    sandbox = context.sandbox
    head = await sandbox.read_bytes(path, length=8192)
    if media_type := image_type(head):
        return await _read_image(sandbox, path, stat, media_type)
    if b"\0" in head:
        return {"kind": "binary", "path": path, "size": stat.size, "begins_with": head[:16].hex(" ")}
    remember_version(context, stat)
    return await _text(context, path, stat, offset, limit)


async def _listing(context: Context, path: str, offset: int, limit: int | None) -> Any:
    entries = await context.sandbox.list(path)
    _check_offset(path, offset, len(entries), "entries")
    most = min(limit or context.caps.entries, context.caps.entries)
    page = entries[offset - 1 : offset - 1 + most]
    left = len(entries) - (offset - 1 + len(page))
    listing = Listing(path, tuple(page), left > 0).to_data(context.caps)
    value = {**listing, "entry_count": len(entries)}
    note = f"{left} entries are not shown; go on with offset={offset + len(page)}."
    return Success(value, (note,) if left > 0 else ())


async def _read_image(sandbox: Sandbox, path: str, stat: FileStat, media_type: str) -> Any:
    data = b"" if stat.size > MAX_IMAGE_BYTES else await sandbox.read_bytes(path, length=MAX_IMAGE_BYTES + 1)
    size = max(stat.size, len(data))
    if size <= MAX_IMAGE_BYTES:
        return Image(data, media_type)
    value = {"kind": "image", "path": path, "size": size, "media_type": media_type, "shown": False}
    largest = MAX_IMAGE_BYTES >> 20
    note = f"{path} is larger than {largest} MiB and is not shown; make a smaller copy with bash, and read that."
    return Success(value, (note,))


async def _text(context: Context, path: str, stat: FileStat, offset: int, limit: int | None) -> Any:
    lines = _Lines(offset, limit, context.caps)
    at = 0
    while at < stat.size or at == 0:
        data = await context.sandbox.read_bytes(path, start=at, length=READ_CHUNK)
        at += len(data)
        lines.feed(data)
        if not data or (lines.full and stat.size > MAX_COUNTED_BYTES):
            break
    whole = at >= stat.size
    lines.finish(whole)
    total = lines.number if whole else None
    if not whole and not lines.kept:
        message = (
            f"{path} has a line longer than {MAX_SCANNED_LINE_BYTES >> 20} MiB before line {offset}; read it with bash."
        )
        raise ToolFailed(Failure("invalid_args", message, field="offset"))
    _check_offset(path, offset, lines.number, "lines")
    text, damaged = _decode(b"".join(lines.kept))
    last = offset + len(lines.kept) - 1
    truncated = not whole or last < lines.number
    value = {
        "kind": "file", "text": text, "path": path, "start_line": offset, "end_line": last, "total_lines": total,
        "size": stat.size, "truncated": truncated,
    }  # fmt: skip
    notes = [f"{path} is empty."] if not lines.number else []
    if truncated:
        notes.append(f"Lines {offset} to {last} of {total or 'many'} are shown; go on with offset={last + 1}.")
    if lines.cut:
        notes.append(f"{lines.cut} lines longer than {lines.longest} bytes are cut; read them with bash (cut -c).")
    if damaged:
        notes.append("Some bytes are not UTF-8 and are shown as \ufffd.")
    return Success(value, tuple(notes))


def _check_offset(path: str, offset: int, count: int, what: str) -> None:
    if offset > 1 and offset > count:
        raise ToolFailed(
            Failure("invalid_args", f"{path} has {count} {what}; offset {offset} is past the end.", field="offset")
        )


def _decode(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), True


class _Lines:
    """Splits chunks into lines: counts all of them, keeps the requested ones, and buffers at most one more."""

    def __init__(self, offset: int, limit: int | None, caps: Caps) -> None:
        self.kept: list[bytes] = []
        self.cut = 0
        self.number = 0
        """Lines seen so far."""
        self._room = caps.file
        self.longest = min(caps.line, max(1, caps.file - NOTE_ROOM))
        self._first, self._last = offset, offset + min(limit or caps.lines, caps.lines) - 1
        self._full = False
        self._rest = bytearray()
        self._rest_size = 0

    @property
    def full(self) -> bool:
        return self.number >= self._last or self._full or self._rest_size > MAX_SCANNED_LINE_BYTES

    def feed(self, data: bytes) -> None:
        pieces = data.split(b"\n")
        for piece in pieces[:-1]:
            self._grow(piece)
            self._end(b"\n")
        self._grow(pieces[-1])

    def finish(self, whole: bool) -> None:
        """Add the last line if it has no line end, and one that is too long as far as it was read."""
        if self._rest_size and (whole or self._rest_size > MAX_SCANNED_LINE_BYTES):
            self._end(b"")

    def _grow(self, piece: bytes) -> None:
        self._rest_size += len(piece)
        if len(self._rest) <= self.longest:
            self._rest += piece[: self.longest + 1]

    def _end(self, line_end: bytes) -> None:
        self.number += 1
        if self._first <= self.number <= self._last and not self._full:
            line, is_cut = bytes(self._rest), self._rest_size > self.longest
            if is_cut:
                line = _whole_characters(line[: self.longest])
                line += f" [… {self._rest_size - len(line):,} more bytes]".encode()
            self._room -= len(line + line_end)
            self._full = self._room < 0 and bool(self.kept)  # the first line is shown in any case
            if not self._full:
                self.kept.append(line + line_end)
                self.cut += is_cut
        self._rest.clear()
        self._rest_size = 0


def _whole_characters(data: bytes) -> bytes:
    """The data without an incomplete character at its end."""
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return data[: len(data) - len(decoder.getstate()[0])]
