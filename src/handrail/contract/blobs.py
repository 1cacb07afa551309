"""Blobs: where the bytes of artifacts are kept, for those who bring a store of their own."""

from typing import BinaryIO, Protocol


class Blobs(Protocol):
    """A store of bytes by key, given as `Artifacts(blobs=…)`.

    A key is 64 hexadecimal digits and names one content for ever. The four are plain functions, called in any thread,
    several at once, and may take their time. Whatever they raise fails one call, never the session. Bytes are checked
    after they are read, so a store need not check them. Two directories of artifacts must not have keys in common: give
    each a prefix of its own.
    """

    def put(self, key: str, content: BinaryIO) -> None:
        """Store everything in `content`, a file open for reading. Replaces what has this key; all of it or nothing."""
        ...

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start` on. Raises KeyError or FileNotFoundError if there is no such key."""
        ...

    def has(self, key: str) -> bool:
        """Whether there is such a key; then its content is not put again."""
        ...

    def remove(self, key: str) -> None:
        """Remove it: no session holds it any more. There may be no such key."""
        ...
