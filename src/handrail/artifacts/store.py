"""The store of artifacts: named by content, checked when read; each session has its own scope."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from inspect import isawaitable
from os import PathLike, fstat
from pathlib import Path, PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from handrail.artifacts._blobs import PIECE, Blob, LinkedFiles, Tampered, Writer
from handrail.artifacts._blobs import ArtifactTooLarge as ArtifactTooLarge
from handrail.artifacts._index import Index, Located
from handrail.artifacts._own_blobs import OwnBlobs, StoreFailed
from handrail.contract.blobs import Blobs
from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.limits import MAX_ARTIFACT_BYTES
from handrail.contract.result import ArtifactRef, Failure
from handrail.misuse import refuse
from handrail.threads import Work, in_thread

if TYPE_CHECKING:
    from handrail.scrub import ByteStream, Scrubber

INLINE_BYTES: Final = 64 << 10
"""Largest content that is read or written without a thread, in bytes."""
BINARY: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
_OWNER: Final = ""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
PICTURED: Final = ("image/", "audio/", "video/")
STREAM_CHUNK: Final = 1 << 20
Read = Callable[[int, int], bytes | Awaitable[bytes]]
"""`read(start, length)` returns bytes: fewer at the end, none after it."""


class Scope:
    """The artifacts that one session may see. Any other reference raises ToolFailed(invalid_args)."""

    def __init__(
        self, index: Index, session: str, *, sees_all: bool = False, scrubber: "Scrubber | None" = None
    ) -> None:
        self._index = index
        self._session = session
        self._viewer = None if sees_all else session
        self._scrubber = scrubber

    def __repr__(self) -> str:
        return f"<Scope of session {self._session}>"

    async def put(
        self, data: bytes | str, *, media_type: str | None = None, name: str | None = None, incomplete: bool = False
    ) -> ArtifactRef:
        """Store bytes, or a text as UTF-8. Equal content has the same reference and is stored once.

        `incomplete` marks content that lacks a part: every reader is told, and no tool is given it for the whole.
        Raises OSError, such as ArtifactTooLarge.
        """
        if not isinstance(data, str | bytes | bytearray | memoryview):
            advice = "put_file(path)" if isinstance(data, PurePath) else "text or bytes, such as json.dumps(…)"
            refuse("what put() was given", data, advice)
        media_type = media_type or (TEXT if isinstance(data, str) else BINARY)
        if len(data) <= INLINE_BYTES and self._index.contents.inline:
            return self._store(_parts(data), media_type, name, incomplete)
        if len(data) > MAX_ARTIFACT_BYTES:
            raise ArtifactTooLarge
        return await self._in_thread(self._store, _parts(data), media_type, name, incomplete)

    async def put_file(
        self, path: str | Path, *, media_type: str | None = None, name: str | None = None
    ) -> ArtifactRef:
        """Store a file of this machine, piece by piece. Raises OSError."""
        return await self._in_thread(self._store, _file(Path(path)), media_type or BINARY, name, False)

    async def put_stream(
        self, chunks: AsyncIterable[bytes], *, media_type: str | None = None, name: str | None = None,
        incomplete: bool | Callable[[], bool] = False,
    ) -> ArtifactRef:  # fmt: skip
        """Store chunks as they come. If the stream fails, nothing is stored.

        `incomplete` is as in `put`, or a function that is asked after the last chunk.
        """
        writer = self._writer(media_type or BINARY)
        try:
            async for chunk in chunks:
                await in_thread(writer.add, chunk)
            lacks = incomplete() if callable(incomplete) else incomplete
            return await self._in_thread(self._finish, writer, media_type or BINARY, name, lacks)
        finally:
            writer.abandon()

    async def read(self, ref: str | ArtifactRef, start: int = 0, length: int | None = None) -> bytes:
        """A range of bytes, shorter at the end, checked against its checksums.

        Of an artifact that is `incomplete`, which `info` tells, the bytes that are there.
        """
        if not isinstance(start, int) or not isinstance(length, int | None) or min(start, length or 0) < 0:
            raise ValueError(f"start and length must not be negative, but are {start!r} and {length!r}.")
        located = self._located(ref)
        left = located[1].size - start
        if (left if length is None else min(length, left)) <= INLINE_BYTES and self._index.contents.inline:
            return self._read(located, start, length)
        return await self._in_thread(self._read, located, start, length)

    def read_now(self, ref: str | ArtifactRef) -> bytes:
        """All bytes of an artifact, read in this thread."""
        return self._read(self._located(ref), 0, None)

    def info(self, ref: str | ArtifactRef) -> ArtifactRef | None:
        """Size, type, name and completeness of an artifact; None if this session may not read it."""
        located = self._index.find(self._viewer, _reference(ref))
        return None if located is None else located[1].handle

    def has(self, ref: str | ArtifactRef) -> bool:
        """Whether the artifact exists and this session may read it."""
        return self._index.find(self._viewer, _reference(ref)) is not None

    def fault(self, ref: str | ArtifactRef) -> str:
        """Why an artifact's content cannot replace an argument, as the end of a sentence; "" if it can."""
        info = self.info(ref)
        if info is None:
            return "there is no such artifact"
        if info.incomplete:
            return "the artifact is incomplete: a part of it was discarded; produce the value in smaller parts"
        return ""

    def pin(self, ref: str | ArtifactRef) -> None:
        """Keep an artifact until `unpin`; pins are counted."""
        self._require(self._index.change(self._viewer, _reference(ref), pins=1), ref)

    def unpin(self, ref: str | ArtifactRef) -> None:
        """Remove one pin. An artifact without pins that no result named is dropped."""
        self._require(self._index.change(self._viewer, _reference(ref), pins=-1), ref)

    def show(self, ref: str | ArtifactRef) -> bool:
        """Note that a result names the artifact, so that a sweep keeps it. False if there is no such artifact."""
        return self._index.change(self._viewer, _reference(ref), shown=True)

    def share(self, ref: str | ArtifactRef, session: str) -> None:
        """Let another session read an artifact too."""
        self._require(self._index.share(self._viewer, _reference(ref), session), ref)

    def sweep(self) -> int:
        """Drop artifacts without pins that no result named. Returns how many there were."""
        return self._index.sweep(self._viewer)

    def own(self) -> list[ArtifactRef]:
        """Artifacts that this session and its descendants stored and a result named."""
        return [entry.handle for _, entry in self._index.below(self._session) if entry.shown]

    def child(self, session: str) -> "Scope":
        """The scope of a child session; parent and child see each other's artifacts."""
        self._index.register(session, self._session)
        return Scope(self._index, session, scrubber=self._scrubber)

    def without(self, scrubber: "Scrubber") -> "Scope":
        """The same scope with a scrubber: new content is stored without secrets, except pictures, sound and film."""
        return Scope(self._index, self._session, sees_all=self._viewer is None, scrubber=scrubber)

    def clean(self, text: str) -> str:
        """The text without the secrets of this scope's scrubber."""
        return text if self._scrubber is None else self._scrubber.text(text)

    def fork(self, session: str) -> "Scope":
        """The scope of a session that starts with copies of this one's artifacts and pins, and is independent."""
        for _, entry in self._index.below(self._session):
            self._index.share(self._session, entry.ref, session, pins=True)
        return Scope(self._index, session, scrubber=self._scrubber)

    async def _in_thread(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in a thread. A cancelled caller does not wait for a user's own store."""
        if self._index.contents.inline:
            return await in_thread(work, *arguments)
        value: T = await Work(partial(work, *arguments)).wait()
        return value

    def _writer(self, media_type: str) -> "Writer | _CleanWriter":
        writer = self._index.writer()
        if self._scrubber is None or media_type.startswith(PICTURED):
            return writer
        return _CleanWriter(writer, self._scrubber.byte_stream())

    def _store(
        self, parts: Iterator[bytes | memoryview], media_type: str, name: str | None, incomplete: bool
    ) -> ArtifactRef:
        writer = self._writer(media_type)
        try:
            for part in parts:
                writer.add(part)
            return self._finish(writer, media_type, name, incomplete)
        finally:
            writer.abandon()

    def _finish(
        self, writer: "Writer | _CleanWriter", media_type: str, name: str | None, incomplete: bool
    ) -> ArtifactRef:
        try:
            if self._scrubber is not None and name is not None:
                name = self._scrubber.text(name)
            return self._index.add(self._session, writer, media_type, name, incomplete).handle
        finally:
            writer.abandon()  # here too, since nobody waits for this thread who was cancelled

    def _read(self, located: Located, start: int, length: int | None) -> bytes:
        owner, entry = located
        try:
            return owner.read(entry, start, length)
        except FileNotFoundError:
            raise unknown(entry.ref) from None
        except StoreFailed as error:
            message = f"The artifact {entry.ref} cannot be read: {error}. Try again later."
            raise ToolFailed(Failure("unavailable", message)) from error
        except Tampered as error:
            changed = f"was changed {self._index.contents.place} and cannot be read"
            message = f"The artifact {entry.ref} {changed}: {error}. Create it again."
            raise ToolFailed(Failure("execution_error", message)) from None

    def _located(self, ref: str | ArtifactRef) -> Located:
        located = self._index.find(self._viewer, _reference(ref))
        if located is None:
            raise unknown(_reference(ref))
        return located

    def _require(self, done: bool, ref: str | ArtifactRef) -> None:
        if not done:
            raise unknown(_reference(ref))


class _CleanWriter:
    """A Writer that removes secrets from everything it is given."""

    def __init__(self, writer: Writer, stream: "ByteStream") -> None:
        self._writer, self._stream = writer, stream
        self.abandon = writer.abandon

    def add(self, data: bytes | memoryview) -> None:
        self._writer.add(self._stream.add(bytes(data)))

    def finish(self) -> tuple[Blob, list[Path]]:
        self._writer.add(self._stream.end())
        return self._writer.finish()


def unknown(ref: str) -> ToolFailed:
    """The failure for a reference that is unknown, or not visible here."""
    message = f"There is no artifact {ref[:80]!r}. Use a reference exactly as in a result."
    return ToolFailed(Failure("invalid_args", message, field="ref"))


def _reference(ref: str | ArtifactRef) -> str:
    if not isinstance(ref, str | ArtifactRef):
        refuse("the artifact", ref, "its reference, a text such as 'a_…', or the ArtifactRef that put() returned")
    return ref.ref if isinstance(ref, ArtifactRef) else ref


def _parts(data: bytes | str) -> Iterator[bytes | memoryview]:
    if isinstance(data, str):
        for begin in range(0, len(data), PIECE):
            yield data[begin : begin + PIECE].encode("utf-8", "replace")
    else:
        yield memoryview(data)


def _file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        if fstat(file.fileno()).st_size > MAX_ARTIFACT_BYTES:
            raise ArtifactTooLarge
        while part := file.read(PIECE):
            yield part


class Artifacts(Scope):
    """All artifacts in a directory, as its owner sees them; `scope` is what one session sees.

    Without a directory they are in a private one, which is created when needed and removed by `close`. With `blobs` the
    bytes are there, and the directory only says which session has which.

    Example:
        ```python
        artifacts = Artifacts("kept")
        kept = await artifacts.scope("s1").put("three pages", name="report.txt")
        print(await artifacts.read(kept.ref, 6, 5))
        #> b'pages'
        ```
    """

    def __init__(self, directory: str | PathLike[str] | None = None, *, blobs: Blobs | None = None) -> None:
        if not isinstance(directory, str | PathLike | None):
            refuse("Artifacts.directory", directory, "the path of a directory, or leave it out for a private one")
        if directory is not None and Path(directory).is_file():
            refuse("Artifacts.directory", str(directory), "the path of a directory: this is a file")
        contents = LinkedFiles() if blobs is None else OwnBlobs(blobs)
        super().__init__(Index(None if directory is None else str(directory), contents), _OWNER, sees_all=True)
        self._where = "a private directory" if directory is None else str(directory)

    def __repr__(self) -> str:
        return f"<Artifacts in {self._where}>"

    def scope(self, session_id: str, parent: str | None = None) -> Scope:
        """The scope of a session: its own artifacts, those of its ancestors and descendants, and shared ones."""
        if not session_id:
            raise ValueError("A session's id must not be empty.")
        self._index.register(session_id, parent)
        return Scope(self._index, session_id)

    def contents(self, session_id: str) -> Iterator[tuple[ArtifactRef, int, Iterator[bytes]]]:
        """Every artifact of a session and its descendants: its handle, its pins and its bytes, in pieces.

        Raises HandrailError where one cannot be read.
        """
        for owner, entry in self._index.below(session_id):
            yield entry.handle, entry.pins, self._pieces((owner, entry))

    def _pieces(self, located: Located) -> Iterator[bytes]:
        try:
            for start in range(0, located[1].size, PIECE):
                yield self._read(located, start, PIECE)
        except ToolFailed as error:
            raise HandrailError(error.failure.message) from error

    def incoming(
        self, session_id: str, ref: str, media_type: str, name: str | None, pins: int, incomplete: bool | None
    ) -> "Incoming":
        """An artifact that is loaded in pieces, as `contents` gave it. None for `incomplete`: the mark is unknown."""
        return Incoming(self._index, session_id, ArtifactRef(ref, 0, media_type, name), pins, incomplete)

    def forget(self, session_id: str) -> None:
        """Drop all artifacts of a session and its descendants. Other sessions keep the ones they hold too."""
        self._index.forget(session_id)

    def close(self) -> None:
        """Remove a private directory with its artifacts; a given one stays as it is. May be called twice."""
        self._index.close()

    def __enter__(self) -> "Artifacts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Incoming:
    """An artifact that is being loaded into a session. Without `finish`, or after `abandon`, nothing is added."""

    def __init__(self, index: Index, session: str, handle: ArtifactRef, pins: int, incomplete: bool | None) -> None:
        self._index, self._session, self._handle, self._pins = index, session, handle, pins
        self._incomplete = incomplete
        self._writer = index.writer()
        self.add, self.abandon = self._writer.add, self._writer.abandon

    def finish(self) -> None:
        """Add the artifact. Raises HandrailError if its bytes do not match its reference."""
        try:
            handle = self._handle
            made = self._index.add(self._session, self._writer, handle.media_type, handle.name, self._incomplete)
            if made.ref != self._handle.ref:
                raise HandrailError(f"the artifact {self._handle.ref} does not have the content that it is named by")
            self._index.change(self._session, made.ref, pins=self._pins, shown=True)
        finally:
            self.abandon()


def scope_for(session: str, given: "Artifacts | Scope | None") -> "tuple[Scope, Artifacts | None]":
    """The scope for a session: the given one, or that of the given store, or of a new store, which is returned too."""
    if isinstance(given, Scope) and not isinstance(given, Artifacts):
        return given, None
    if given is None:
        own = Artifacts()
        return own.scope(session), own
    if not isinstance(given, Artifacts):
        directory = repr(given) if isinstance(given, str) else ""
        refuse("Session.artifacts", given, f"Artifacts({directory}) or one of its scopes, or leave it out")
    return given.scope(session), None


async def keep_stream(
    artifacts: Scope, read: Read, name: str | None = None, *, media_type: str = TEXT,
    incomplete: bool | Callable[[], bool] = False,
) -> ArtifactRef:  # fmt: skip
    """Store everything that `read` returns, in chunks. If `read` raises, nothing is stored."""
    return await artifacts.put_stream(_chunks(read), media_type=media_type, name=name, incomplete=incomplete)


async def _chunks(read: Read) -> AsyncIterator[bytes]:
    start = 0
    while True:
        given = read(start, STREAM_CHUNK)
        data = await given if isawaitable(given) else given
        if not data:
            return
        yield data
        start += len(data)
