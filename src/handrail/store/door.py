"""The door of a session: a unix socket beside its claim, by which other processes of the same user reach it.

A frame is a JSON object on a line of its own. The session says `hello`, then `count` and `state` whenever they change;
events themselves are read from the store. A client sends `{"no": 1, "do": …}` and gets `{"no": 1, "answer": …}`.
"""

import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import SocketAttribute, SocketStream

from handrail.contract.errors import Unavailable

DOOR_VERSION: Final = 1
"""Version of these frames, which `hello` carries."""
MAX_FRAME_BYTES: Final = 16 << 20
"""Bytes of one frame: a prompt with its pictures."""
_CREDENTIALS: Final = struct.Struct("3i")


@contextmanager
def short_path(directory: Path, name: str) -> Iterator[str]:
    """A path of a few characters for a file in `directory`: the address of a unix socket has at most 108 bytes."""
    if not os.path.isdir("/proc/self/fd"):
        yield str(directory / name)
        return
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)


def is_same_user(stream: SocketStream) -> bool:
    """Whether the process at the other end belongs to this user; where the kernel does not tell, the directory does."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    raw = stream.extra(SocketAttribute.raw_socket)
    _, user, _ = _CREDENTIALS.unpack(raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user) == os.geteuid()


class Gone(Unavailable):
    """The other end of a connection is closed."""


class Frames:
    """The frames of one connection. Sending is for one task at a time; a frame that is too long ends the connection."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._sending = anyio.Lock()

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame. Raises Gone if the other end is, Unavailable if the frame is too long."""
        data = json.dumps(frame, ensure_ascii=True, default=str).encode() + b"\n"
        if len(data) > MAX_FRAME_BYTES:
            raise Unavailable(f"The door takes {MAX_FRAME_BYTES:,} bytes at once, not {len(data):,}.", retryable=False)
        try:
            async with self._sending:
                await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise Gone("The other end of the door is gone.") from error

    async def read(self) -> AsyncIterator[dict[str, Any]]:
        """Yield frames until the other end closes, or sends what is not a frame."""
        kept = bytearray()
        while True:
            try:
                data = await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            kept += data
            if b"\n" in data:
                *lines, rest = bytes(kept).split(b"\n")
                kept = bytearray(rest)
                for line in lines:
                    if (frame := _frame(line)) is None:
                        return
                    yield frame
            if len(kept) > MAX_FRAME_BYTES:
                return

    async def close(self) -> None:
        """Close the connection, whatever still waits to be sent."""
        await anyio.aclose_forcefully(self._stream)


def _frame(line: bytes) -> dict[str, Any] | None:
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None
