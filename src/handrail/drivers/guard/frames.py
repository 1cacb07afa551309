"""The guard's protocol, as PROTOCOL.md describes it: build frames from values, and read values from frames."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from handrail.contract.driver import FileStat

VERSION: Final = 4
FRAME_MAX: Final = 4 << 20
INPUT_MAX: Final = 64 << 10
INPUT_WINDOW: Final = 256 << 10
FIRST_CREDIT: Final = 1 << 20
OVERDRAFT: Final = 1 << 20
"""Bytes left in the pipes of an ended command, by which its output may exceed its credit."""
READ_MAX: Final = (512 << 20) + 1
STAT_MAX: Final = 128 << 10
LIST_MAX: Final = 256 << 20
"""Bytes of the whole answer of a LIST; the two above likewise for READ and STAT."""
CODE_MAX: Final = 255
ERRNO_MAX: Final = 4095
FLAGS_MAX: Final = 15
PID_MAX: Final = 1 << 22
MODE_MAX: Final = 0o7777
SIZE_MAX: Final = (1 << 63) - 1
NS_MAX: Final = 10**9 - 1
NO_LIMIT: Final = (1 << 64) - 1
NO_MODE: Final = (1 << 32) - 1

HELLO, START, INPUT, CLOSE, CREDIT, SIGNAL, FILE = range(1, 8)
GREETED, STARTED, FAILED, OUTPUT, TAKEN, DEAF, EXITED, BROKEN = range(65, 73)
READ, WRITE, STAT, LIST, MAKE_DIR, REMOVE = range(1, 7)
AT_START, AT_CWD, AT_EXEC = 1, 2, 3
LEFT_RUNNING, BY_SIGNAL, NO_ANSWER, OUT_OF_MEMORY = 1, 2, 4, 8
SHELLS: Final = (None, "sh", "bash")

_HEAD: Final = struct.Struct("<IBI")
HEAD_SIZE: Final = _HEAD.size
_PREFIX: Final = 4
_GREETING: Final = struct.Struct("<HBBI")
_RECORD: Final = struct.Struct("<BIQqIII")
_TYPES: Final[tuple[Literal["file", "directory", "symlink", "other"], ...]] = (
    "file", "directory", "symlink", "other",
)  # fmt: skip


class BadFrame(ValueError):
    """Bytes that are not a frame of this protocol."""


def frame(kind: int, id: int, body: bytes = b"") -> bytes:
    """One frame, ready to send. Raises ValueError when it is larger than the guard takes."""
    size = len(body) + _HEAD.size - _PREFIX
    if size > FRAME_MAX:
        raise ValueError(f"this takes {size:,} bytes, and one request may take {FRAME_MAX:,}")
    return _HEAD.pack(size, kind, id) + body


def renumber(frame: bytes, id: int) -> bytes:
    """The same frame about another request."""
    size, kind, _ = _HEAD.unpack_from(frame)
    return _HEAD.pack(size, kind, id) + frame[_HEAD.size :]


def strings(texts: Iterable[bytes]) -> bytes:
    """NUL-terminated strings, counted. Raises ValueError for a text with NUL in it."""
    listed = list(texts)
    if any(b"\0" in text for text in listed):
        raise ValueError("a NUL character cannot be part of a command, a path or an environment")
    joined = b"".join(text + b"\0" for text in listed)
    return struct.pack("<II", len(listed), len(joined)) + joined


def hello(jail: bool, limits: Iterable[int], roots: Iterable[bytes]) -> bytes:
    """The first frame; `limits` are processes, open files, file size, cpu seconds and memory."""
    return frame(HELLO, 0, struct.pack("<HBB5Q", VERSION, jail, 0, *limits) + strings(roots))


def start(
    id: int, argv: Iterable[bytes], *, line: bool, cwd: bytes, env: Iterable[bytes] | None, input: bool,
    pipes: bool = False,
) -> bytes:  # fmt: skip
    """Run a command: arguments, or one line for the shell; without `env`, in the guard's own environment.

    With `pipes`, the descriptors of its input and its output are passed along.
    """
    flags = input | (env is None) << 1 | pipes << 2
    return frame(START, id, bytes((line, flags)) + strings((cwd,)) + strings(argv) + strings(env or ()))


def file(id: int, op: int, path: bytes, *, start: int = 0, length: int = NO_LIMIT, mode: int = NO_MODE) -> bytes:
    """A file operation."""
    return frame(FILE, id, struct.pack("<BQQI", op, start, length, mode) + strings((path,)))


class Greeting(NamedTuple):
    """A guard's first frame."""

    shell: str | None
    pid: int
    """The guard's own pid, as the guard sees it."""


def greeting(body: memoryview) -> Greeting:
    """Read a guard's first frame. Raises BadFrame, also for another version."""
    if len(body) != _GREETING.size:
        raise BadFrame("a greeting of the wrong size")
    version, shell, nothing, pid = _GREETING.unpack(body)
    if version != VERSION:
        raise BadFrame(f"it speaks version {version}, and this is version {VERSION}: reinstall handrail")
    if shell >= len(SHELLS) or nothing or not 0 < pid <= PID_MAX:
        raise BadFrame("a greeting out of range")
    return Greeting(SHELLS[shell], pid)


def whole(body: memoryview, least: int, most: int) -> int:
    """A body that is one u32. Raises BadFrame unless it is in this range."""
    number = int.from_bytes(body[:4], "little")
    if len(body) != 4 or not least <= number <= most:
        raise BadFrame("a number out of range")
    return number


def pair(body: memoryview, most: int, most_flags: int) -> tuple[int, int]:
    """A body that is one u32 and one u8. Raises BadFrame unless they are in range."""
    if len(body) != 5 or body[4] > most_flags:
        raise BadFrame("flags out of range")
    return whole(body[:4], 0, most), body[4]


def words(text: bytes) -> str:
    """Decode a guard's message on one line without control characters, because terminals and models read it."""
    decoded = text.decode("utf-8", "replace")
    return " ".join("".join(each if each.isprintable() else " " for each in decoded).split())


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
    """Each record of a STAT or LIST answer: name, real path or "", and the rest as a FileStat without paths.

    Raises BadFrame for anything but a record, a name with a slash, and a path that is not absolute.
    """
    at = 0
    while at < len(body):
        if len(body) - at < _RECORD.size:
            raise BadFrame("a record that ends too early")
        kind, mode, size, seconds, ns, name_size, real_size = _RECORD.unpack_from(body, at)
        at += _RECORD.size
        if kind >= len(_TYPES) or mode > MODE_MAX or size > SIZE_MAX or ns > NS_MAX:
            raise BadFrame("a record out of range")
        if name_size + real_size > len(body) - at:
            raise BadFrame("a record out of range")
        name = body[at : at + name_size].decode("utf-8", "surrogateescape")
        at += name_size
        real = body[at : at + real_size].decode("utf-8", "surrogateescape")
        at += real_size
        if "/" in name or name in (".", "..") or "\0" in name + real or (real and not real.startswith("/")):
            raise BadFrame("a record with a bad name or path")
        yield name, real, FileStat("", "", _TYPES[kind], size, mode, seconds + ns / 1e9)
