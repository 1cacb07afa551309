"""The words of the guard's protocol, as PROTOCOL.md writes them: frames out of values, and values out of frames."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from handrail.contract.driver import FileStat

VERSION: Final = 1
FRAME_MAX: Final = 4 << 20
INPUT_MAX: Final = 64 << 10
INPUT_WINDOW: Final = 256 << 10
FIRST_CREDIT: Final = 1 << 20
NO_LIMIT: Final = (1 << 64) - 1
NO_MODE: Final = (1 << 32) - 1

HELLO, START, INPUT, CLOSE, CREDIT, SIGNAL, FILE = range(1, 8)
GREETED, STARTED, FAILED, OUTPUT, TAKEN, DEAF, EXITED, BROKEN = range(65, 73)
READ, WRITE, STAT, LIST, MAKE_DIR, REMOVE = range(1, 7)
AT_START, AT_CWD, AT_EXEC = 1, 2, 3
LEFT_RUNNING, BY_SIGNAL, SUPERVISOR_LOST = 1, 2, 4
SHELLS: Final = (None, "sh", "bash")

_HEAD: Final = struct.Struct("<IBI")
HEAD_SIZE: Final = _HEAD.size
_PREFIX: Final = 4
_RECORD: Final = struct.Struct("<BIQqII")
_TYPES: Final[tuple[Literal["file", "directory", "symlink", "other"], ...]] = (
    "file", "directory", "symlink", "other",
)  # fmt: skip


class BadFrame(ValueError):
    """Bytes that are no frame of this protocol."""


def frame(kind: int, id: int, body: bytes = b"") -> bytes:
    """One frame, ready to send. Raises ValueError when it is larger than the guard takes."""
    size = len(body) + _HEAD.size - _PREFIX
    if size > FRAME_MAX:
        raise ValueError(f"this takes {size:,} bytes, and one request may take {FRAME_MAX:,}")
    return _HEAD.pack(size, kind, id) + body


def strings(texts: Iterable[bytes]) -> bytes:
    """NUL-terminated strings, counted. Raises ValueError for a text with NUL in it."""
    listed = list(texts)
    if any(b"\0" in text for text in listed):
        raise ValueError("a NUL character cannot be part of a command, a path or an environment")
    joined = b"".join(text + b"\0" for text in listed)
    return struct.pack("<II", len(listed), len(joined)) + joined


def hello(jail: bool, limits: Iterable[int], roots: Iterable[bytes]) -> bytes:
    """The first frame; `limits` are processes, open files, file size and cpu seconds."""
    return frame(HELLO, 0, struct.pack("<HBB4Q", VERSION, jail, 0, *limits) + strings(roots))


def start(id: int, words: Iterable[bytes], *, line: bool, cwd: bytes, env: Iterable[bytes], input: bool) -> bytes:
    """Run a command: words, or one line for the shell."""
    return frame(START, id, bytes((line, input)) + strings((cwd,)) + strings(words) + strings(env))


def file(id: int, op: int, path: bytes, *, start: int = 0, length: int = NO_LIMIT, mode: int = NO_MODE) -> bytes:
    """A file operation."""
    return frame(FILE, id, struct.pack("<BQQI", op, start, length, mode) + strings((path,)))


def number(body: bytes | memoryview) -> int:
    """A body that begins with a u32."""
    return int.from_bytes(body[:4], "little")


def split(view: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Every whole frame at the beginning of `view`: kind, id, body, which is part of the view. Raises BadFrame."""
    at, end = 0, len(view)
    while end - at >= _HEAD.size:
        size, kind, id = _HEAD.unpack_from(view, at)
        if not _HEAD.size - _PREFIX <= size <= FRAME_MAX:
            raise BadFrame(f"a frame of {size:,} bytes")
        if end - at < size + _PREFIX:
            return
        yield kind, id, view[at + _HEAD.size : at + _PREFIX + size]
        at += size + _PREFIX


def records(body: bytes) -> Iterator[tuple[str, str, FileStat]]:
    """Each record of a STAT or LIST answer: name, real path or "", and what it says under an empty path."""
    at = 0
    while at < len(body):
        kind, mode, size, mtime, name_size, real_size = _RECORD.unpack_from(body, at)
        at += _RECORD.size
        name = body[at : at + name_size].decode("utf-8", "surrogateescape")
        at += name_size
        real = body[at : at + real_size].decode("utf-8", "surrogateescape")
        at += real_size
        yield name, real, FileStat("", "", _TYPES[kind], size, mode, mtime / 1e9)
