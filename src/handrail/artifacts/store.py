"""The store of artifacts: named by content, checked when read; each session has its own view."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from inspect import isawaitable
from pathlib import Path
from types import TracebackType
from typing import Final

import anyio

from handrail.artifacts._blobs import PIECE, Tampered, Writer, read_range
from handrail.artifacts._index import Index
from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.result import ArtifactRef, Failure

INLINE: Final = 64 << 10
"""Bytes that are read or written at once; more of them go to a thread."""
BINARY: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
_OWNER: Final = ""
STEP: Final = 1 << 20
Read = Callable[[int, int], bytes | Awaitable[bytes]]
"""`read(start, length)`: shorter at the end, empty behind it."""


class Scope:
    """A session's view. An unknown reference, or one of somebody else, raises ToolFailed(invalid_args)."""

    def __init__(self, index: Index, session: str, *, sees_all: bool = False) -> None:
        self._index = index
        self._session = session
        self._eyes = None if sees_all else session

    async def put(self, data: bytes | str, *, media_type: str | None = None, name: str | None = None) -> ArtifactRef:
        """Keep bytes, or a text as UTF-8. The same content gives the same reference, and is stored once."""
        media_type = media_type or (TEXT if isinstance(data, str) else BINARY)
        if len(data) <= INLINE:
            return self._store(_parts(data), media_type, name)
        return await anyio.to_thread.run_sync(self._store, _parts(data), media_type, name)

    async def put_file(
        self, path: str | Path, *, media_type: str | None = None, name: str | None = None
    ) -> ArtifactRef:
        """Keep a file of this machine, piece by piece. Raises OSError."""
        return await anyio.to_thread.run_sync(self._store, _file(Path(path)), media_type or BINARY, name)

    async def put_stream(
        self, chunks: AsyncIterable[bytes], *, media_type: str | None = None, name: str | None = None
    ) -> ArtifactRef:
        """Keep what comes, chunk by chunk; nothing stays behind if it breaks off."""
        writer = self._index.writer()
        try:
            async for chunk in chunks:
                await anyio.to_thread.run_sync(writer.add, chunk)
            return await anyio.to_thread.run_sync(self._finish, writer, media_type or BINARY, name)
        finally:
            writer.abandon()

    async def read(self, ref: str | ArtifactRef, start: int = 0, length: int | None = None) -> bytes:
        """A range of bytes, shorter at the end, checked against what was written."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"start and length count from 0 upwards, not {start} and {length}.")
        named = _name(ref)
        found = self._index.find(self._eyes, named)
        if found is None:
            raise unknown(named)
        holder, entry = found
        wanted = entry.size - start if length is None else min(length, entry.size - start)
        place, blob = holder.place(named), entry.blob
        try:
            if wanted <= INLINE:
                return read_range(place, blob, start, length)
            return await anyio.to_thread.run_sync(read_range, place, blob, start, length)
        except FileNotFoundError:
            raise unknown(named) from None
        except Tampered as error:
            message = f"The artifact {named} was changed on disk and is not given out: {error}. Make it again."
            raise ToolFailed(Failure("execution_error", message)) from None

    def info(self, ref: str | ArtifactRef) -> ArtifactRef | None:
        """Size, type and name; None for what this session may not read."""
        found = self._index.find(self._eyes, _name(ref))
        return None if found is None else found[1].handle

    def has(self, ref: str | ArtifactRef) -> bool:
        """Whether this session may read it, and it is there."""
        return self._index.find(self._eyes, _name(ref)) is not None

    def pin(self, ref: str | ArtifactRef) -> None:
        """Hold it until `unpin`; pins are counted."""
        self._must(self._index.change(self._eyes, _name(ref), pins=1), ref)

    def unpin(self, ref: str | ArtifactRef) -> None:
        """Take one pin away. What then has none and was never shown in a result is dropped."""
        self._must(self._index.change(self._eyes, _name(ref), pins=-1), ref)

    def show(self, ref: str | ArtifactRef) -> bool:
        """It is named in a result, so it stays readable. False when there is nothing to be shown."""
        return self._index.change(self._eyes, _name(ref), shown=True)

    def share(self, ref: str | ArtifactRef, session: str) -> None:
        """Let another session read it too, for as long as that session holds it."""
        self._must(self._index.give(self._eyes, _name(ref), session), ref)

    def sweep(self) -> int:
        """Drop what nobody pins and nobody was shown; how many there were."""
        return self._index.sweep(self._eyes)

    def child(self, session: str) -> "Scope":
        """The view of a child session, which sees this one's artifacts as this one sees the child's."""
        self._index.enter(session, self._session)
        return Scope(self._index, session)

    def fork(self, session: str) -> "Scope":
        """A session that begins with everything this one holds, pins too, and goes its own way."""
        for ref in self._index.refs(self._session):
            self._index.give(self._session, ref, session, pins=True)
        return Scope(self._index, session)

    def _store(self, parts: Iterator[bytes | memoryview], media_type: str, name: str | None) -> ArtifactRef:
        writer = self._index.writer()
        try:
            for part in parts:
                writer.add(part)
            return self._finish(writer, media_type, name)
        finally:
            writer.abandon()

    def _finish(self, writer: Writer, media_type: str, name: str | None) -> ArtifactRef:
        return self._index.add(self._session, writer, media_type, name).handle

    def _must(self, done: bool, ref: str | ArtifactRef) -> None:
        if not done:
            raise unknown(_name(ref))


def unknown(ref: str) -> ToolFailed:
    """What to raise for a reference that leads nowhere."""
    message = f"There is no artifact {ref[:80]!r} here. Use a reference exactly as a result gave it."
    return ToolFailed(Failure("invalid_args", message, field="ref"))


def _name(ref: str | ArtifactRef) -> str:
    return ref.ref if isinstance(ref, ArtifactRef) else ref


def _parts(data: bytes | str) -> Iterator[bytes | memoryview]:
    if isinstance(data, str):
        for begin in range(0, len(data), PIECE):
            yield data[begin : begin + PIECE].encode("utf-8", "replace")
    else:
        yield memoryview(data)


def _file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(PIECE):
            yield part


class Artifacts(Scope):
    """All artifacts of a directory, as its owner sees them; `scope` gives a session its own view.

    Without a directory they are kept in a private one, which is made when it is needed and removed by `close`.
    """

    def __init__(self, directory: str | None = None) -> None:
        super().__init__(Index(directory), _OWNER, sees_all=True)

    def scope(self, session_id: str, parent: str | None = None) -> Scope:
        """What this session may see: its own, its ancestors', its descendants', and what was shared with it."""
        if not session_id:
            raise ValueError("A session's id is not empty.")
        self._index.enter(session_id, parent)
        return Scope(self._index, session_id)

    def close(self) -> None:
        """Give a private directory back; a given one stays as it is. May be called twice."""
        self._index.close()

    def __enter__(self) -> "Artifacts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def scope_for(session: str, given: "Artifacts | Scope | None") -> "tuple[Scope, Artifacts | None]":
    """What a session sees: the given scope, the given store's scope of it, or that of a new store, which comes too."""
    if isinstance(given, Scope) and not isinstance(given, Artifacts):
        return given, None
    if given is None:
        own = Artifacts()
        return own.scope(session), own
    if not isinstance(given, Artifacts):
        raise HandrailError(f"artifacts is an Artifacts or one of its scopes, not {type(given).__name__}")
    return given.scope(session), None


async def keep_stream(artifacts: Scope, read: Read, name: str | None = None, *, media_type: str = TEXT) -> ArtifactRef:
    """Store everything that `read` gives, piece by piece. Raises what `read` raises; then nothing is stored."""
    return await artifacts.put_stream(_chunks(read), media_type=media_type, name=name)


async def _chunks(read: Read) -> AsyncIterator[bytes]:
    start = 0
    while True:
        given = read(start, STEP)
        data = await given if isawaitable(given) else given
        if not data:
            return
        yield data
        start += len(data)
