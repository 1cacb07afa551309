"""Blobs: storage for the bytes of artifacts, for programs that bring a store of their own."""

from typing import BinaryIO, Protocol


class Blobs(Protocol):
    """A store of bytes by key, given as `Artifacts(blobs=…)`.

    A key is 64 hexadecimal digits and names one content for ever. The four are plain functions, called in any thread,
    several at once, and may take their time. Whatever they raise fails one call, never the session. Bytes are checked
    after they are read, so a store need not check them. Two directories of artifacts must not have keys in common: give
    each a prefix of its own.

    Example:
        ```python
        class InMemory:
            def __init__(self):
                self.kept = {}
            def put(self, key, content):
                self.kept[key] = content.read()
            def read(self, key, start, length):
                return self.kept[key][start : start + length]
            def has(self, key):
                return key in self.kept
            def remove(self, key):
                self.kept.pop(key, None)

        blobs: Blobs = InMemory()
        artifacts = Artifacts(blobs=blobs)
        kept = await artifacts.scope("s1").put("three pages")
        print(await artifacts.scope("s1").read(kept.ref), len(blobs.kept))
        artifacts.close()
        #> b'three pages' 1
        ```
    """

    def put(self, key: str, content: BinaryIO) -> None:
        """Store all of `content`, a file open for reading, in place of the key's old content: all or nothing."""
        ...

    def read(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start` on. Raises KeyError or FileNotFoundError if there is no such key."""
        ...

    def has(self, key: str) -> bool:
        """Whether there is such a key; then its content is not put again."""
        ...

    def remove(self, key: str) -> None:
        """Remove a key that no session holds any more. The key may be absent."""
        ...
