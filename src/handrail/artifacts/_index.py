"""The index of artifacts: which session holds which, and who may see it.

A session sees its own, those of its ancestors and descendants, and what is shared with it. Each artifact is a hard link
to its content, or to the file that stands for it, and a small description on disk, so a later process finds it, and
dropping it in one session never takes it from another.
"""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol

from handrail.artifacts._blobs import PIECE, Blob, Contents, Tampered, Writer
from handrail.artifacts._private_directory import PrivateDirectory
from handrail.contract.result import ArtifactRef

PREFIX: Final = "a_"
_REFERENCE_DIGITS: Final = 32
_SESSION_FILE: Final = "session.json"
_CUT_LINE: Final = re.compile(rb"\n\[\xe2\x80\xa6 [\d,]+ (?:characters|bytes) were discarded here\]\n")
"""Marker line in place of the middle of a long text: earlier versions wrote it without marking the artifact."""
_MAX_CUT_LINE_BYTES: Final = 100
_MIN_CUT_BYTES: Final = 64 << 10
"""Size of the smallest artifact of an earlier version that may lack its middle, in bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One artifact of one session; the fields are its description on disk."""

    ref: str
    size: int
    media_type: str
    name: str | None
    checksums: str
    pins: int = 0
    shown: bool = False
    """Whether a result named the artifact; if so, a sweep keeps it."""
    incomplete: bool = False

    @property
    def blob(self) -> Blob:
        return Blob(self.size, bytes.fromhex(self.checksums))

    @property
    def handle(self) -> ArtifactRef:
        return ArtifactRef(self.ref, self.size, self.media_type, self.name, self.incomplete)


class SessionArtifacts:
    """The artifacts of one session, and the session's parent. Not thread-safe."""

    def __init__(self, home: Path, session: str, parent: str | None, contents: Contents) -> None:
        self.session = session
        self.parent = parent
        self._contents = contents
        self._entries: dict[str, Entry] | None = None
        self._directory = home / "sessions" / sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def entries(self) -> dict[str, Entry]:
        """Entries by reference; read from disk on first use."""
        if self._entries is None:
            found = (self._entry(path) for path in self._directory.glob("a_*.json"))
            self._entries = {entry.ref: entry for entry in found if entry is not None}
        return self._entries

    def holds(self, ref: str) -> bool:
        """Whether the session has this artifact, and its link exists."""
        return ref in self.entries and self.link(ref).is_file()

    def link(self, ref: str) -> Path:
        """The link to the content. The reference must be one of `entries`."""
        return self._directory / ref

    def read(self, entry: Entry, start: int, length: int | None) -> bytes:
        """A range of an artifact's bytes. Raises the errors of `Contents.read`."""
        return self._contents.read(self.link(entry.ref), entry.blob, start, length)

    def add(
        self, blob: Blob, sources: Sequence[Path], media_type: str, name: str | None, incomplete: bool | None
    ) -> Entry:
        """Add a blob by linking the first of the sources that still exists.

        None for `incomplete`: an earlier version may have exported it. Once an artifact is incomplete, it stays so.
        """
        ref = reference(blob)
        known = self.entries.get(ref)
        if known is not None and known.blob != blob:
            raise OSError(f"{ref} already names other content")
        if not self._directory.exists():
            self._directory.mkdir(mode=0o700, parents=True)
            _write(self._directory / _SESSION_FILE, {"session": self.session, "parent": self.parent})
        self._link(sources, ref)
        entry = Entry(ref, blob.size, media_type, name, blob.checksums.hex())
        if known is not None:
            entry = replace(entry, name=name or known.name, pins=known.pins, shown=known.shown)
        if known is not None and known.incomplete:
            incomplete = True
        entry = replace(entry, incomplete=self._was_cut(entry) if incomplete is None else incomplete)
        self.save(entry)
        return entry

    def save(self, entry: Entry) -> None:
        """Write an entry to disk."""
        _write(self._directory / f"{entry.ref}.json", asdict(entry))
        self.entries[entry.ref] = entry

    def drop(self, ref: str) -> None:
        """Drop an artifact; its content is removed when no session holds it any more."""
        entry = self.entries.pop(ref)
        (self._directory / f"{ref}.json").unlink(missing_ok=True)
        (self._directory / ref).unlink(missing_ok=True)
        self._contents.dropped(self._directory.parent.parent, entry.blob.digest)

    def remove(self) -> None:
        """Drop every artifact, and the directory."""
        for ref in list(self.entries):
            self.drop(ref)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _entry(self, path: Path) -> Entry | None:
        """The description in a file. One of an earlier version is completed; None if it describes no artifact."""
        data = _read(path)
        try:
            entry = Entry(**data)
            right = entry.blob.consistent and reference(entry.blob) == entry.ref == path.stem
        except (TypeError, ValueError):
            return None
        if right and "incomplete" not in data and self._was_cut(entry):
            entry = replace(entry, incomplete=True)
            with suppress(OSError):  # a directory that may only be read: looked at again next time
                _write(path, asdict(entry))
        return entry if right else None

    def _was_cut(self, entry: Entry) -> bool:
        """Whether an earlier version stored the artifact without its middle. Contents elsewhere are not read."""
        is_text = entry.media_type.startswith("text/") or "json" in entry.media_type
        if not is_text or entry.size < _MIN_CUT_BYTES or not self._contents.inline:
            return False
        before = b""
        with suppress(Tampered, OSError):
            for start in range(0, entry.size, PIECE):
                piece = self.read(entry, start, PIECE)
                if _CUT_LINE.search(before + piece):
                    return True
                before = piece[-_MAX_CUT_LINE_BYTES:]
        return False

    def _link(self, sources: Sequence[Path], ref: str) -> None:
        """Create this session's link, replacing one that was tampered with."""
        target, fresh = self.link(ref), self._directory / f"new-{token_hex(8)}"
        try:
            os.link(sources[0], fresh)
        except FileNotFoundError:  # another process dropped the same content meanwhile
            os.link(sources[-1], fresh)
        os.replace(fresh, target)
        fresh.unlink(missing_ok=True)  # replacing a link by one to the same file does nothing


def reference(blob: Blob) -> str:
    """The short name of a blob."""
    return PREFIX + blob.digest[:_REFERENCE_DIGITS]


def _load_sessions(home: Path, contents: Contents) -> dict[str, SessionArtifacts]:
    """Every session in the directory; those that are unreadable are skipped."""
    sessions: dict[str, SessionArtifacts] = {}
    for label in sorted((home / "sessions").glob(f"*/{_SESSION_FILE}")):
        data = _read(label)
        session, parent = data.get("session"), data.get("parent")
        if not isinstance(session, str) or not (parent is None or isinstance(parent, str)):
            continue
        artifacts = SessionArtifacts(home, session, parent, contents)
        if artifacts.link(_SESSION_FILE) == label:
            sessions[session] = artifacts
    return sessions


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write(path: Path, data: dict[str, Any]) -> None:
    fresh = path.with_name(f"new-{token_hex(8)}")
    fresh.write_text(json.dumps(data), encoding="utf-8")
    os.replace(fresh, path)


class Finishing(Protocol):
    """A file that is complete except for its end."""

    def finish(self) -> tuple[Blob, list[Path]]: ...


Located = tuple[SessionArtifacts, Entry]
"""An artifact, and the session that holds it."""


class Index:
    """The artifacts of all sessions, in a given directory or a private one. Thread-safe."""

    def __init__(self, directory: str | None, contents: Contents) -> None:
        self.contents = contents
        self._home = PrivateDirectory()
        self._directory = None if directory is None else Path(directory).absolute()
        self._lock = threading.RLock()
        self._parents: dict[str, str | None] = {}
        self._sessions: dict[str, SessionArtifacts] = {}
        self._loaded = directory is None

    def writer(self) -> Writer:
        """Start a new file."""
        return Writer(self._path, self.contents)

    def register(self, session: str, parent: str | None) -> None:
        """Make a session known. Its first parent stays."""
        with self._lock:
            self._load()
            if self._parents.get(session) is None:
                self._parents[session] = parent

    def add(
        self, session: str, writer: Finishing, media_type: str, name: str | None, incomplete: bool | None = False
    ) -> Entry:
        """Finish a file for this session. Content that it can see already keeps its media type and its mark."""
        blob, sources = writer.finish()
        with self._lock:
            if known := self.find(session, reference(blob)):
                media_type = known[1].media_type
                incomplete = known[1].incomplete or incomplete
            return self._artifacts_of(session).add(blob, sources, media_type, name, incomplete)

    def find(self, session: str | None, ref: str) -> Located | None:
        """The artifact, if this session may see it. None as the session stands for the store's owner, who sees all."""
        with self._lock:
            self._load()
            for owner in self._visible(session):
                if owner.holds(ref):
                    return owner, owner.entries[ref]
        return None

    def change(self, session: str | None, ref: str, *, pins: int = 0, shown: bool = False) -> bool:
        """Change the pins, or note that a result named it. Unpinning drops one without pins that no result named."""
        with self._lock:
            located = self.find(session, ref)
            if located is None:
                return False
            owner, entry = located
            changed = replace(entry, pins=max(0, entry.pins + pins), shown=entry.shown or shown)
            if pins < 0 and not changed.pins and not changed.shown:
                owner.drop(ref)
            elif changed != entry:
                owner.save(changed)
            return True

    def sweep(self, session: str | None) -> int:
        """Drop artifacts without pins that were never shown. Returns how many there were."""
        with self._lock:
            self._load()
            own = [self._sessions[session]] if session in self._sessions else []
            idle = [
                (owner, entry.ref)
                for owner in (self._sessions.values() if session is None else own)
                for entry in owner.entries.values()
                if not entry.pins and not entry.shown
            ]
            for owner, ref in idle:
                owner.drop(ref)
            return len(idle)

    def share(self, session: str | None, ref: str, to: str, *, pins: bool = False) -> bool:
        """Add an artifact to another session, with its pins if asked."""
        with self._lock:
            located = self.find(session, ref)
            if located is None:
                return False
            owner, entry = located
            receiver = self._artifacts_of(to)
            made = receiver.add(entry.blob, [owner.link(ref)], entry.media_type, entry.name, entry.incomplete)
            receiver.save(replace(made, shown=True, pins=made.pins + (entry.pins if pins else 0)))
            return True

    def below(self, session: str) -> list[Located]:
        """The artifacts of a session and of its descendants, each content once, by reference."""
        with self._lock:
            self._load()
            family = [owner for name, owner in self._sessions.items() if session in self._above(name)]
            found = {ref: (owner, entry) for owner in family for ref, entry in owner.entries.items()}
            return [found[ref] for ref in sorted(found)]

    def forget(self, session: str) -> None:
        """Drop the artifacts of a session and its descendants, shown or not."""
        with self._lock:
            self._load()
            for name in [name for name in self._sessions if session in self._above(name)]:
                self._sessions.pop(name).remove()
                self._parents.pop(name, None)

    def close(self) -> None:
        """Forget everything, and remove a private directory, with the contents kept elsewhere for it."""
        with self._lock:
            for artifacts in () if self._directory or self.contents.inline else self._sessions.values():
                artifacts.remove()
            self._sessions.clear()
        self.contents.close()
        with self._lock:
            self._loaded = self._directory is None
            self._home.close()

    @property
    def _path(self) -> Path:
        return self._directory or self._home.path

    def _load(self) -> None:
        if not self._loaded and self._directory is not None:
            self._sessions = _load_sessions(self._directory, self.contents)
            self._parents |= {name: artifacts.parent for name, artifacts in self._sessions.items()}
            self._loaded = True

    def _artifacts_of(self, session: str) -> SessionArtifacts:
        self._load()
        if session not in self._sessions:
            parent = self._parents.get(session)
            self._sessions[session] = SessionArtifacts(self._path, session, parent, self.contents)
        return self._sessions[session]

    def _visible(self, session: str | None) -> Iterator[SessionArtifacts]:
        if session is None:
            yield from self._sessions.values()
            return
        above = set(self._above(session))
        for name, owner in self._sessions.items():
            if name in above or session in self._above(name):
                yield owner

    def _above(self, session: str) -> list[str]:
        """The session and its ancestors; a cycle is followed once."""
        line: list[str] = []
        at: str | None = session
        while at is not None and at not in line:
            line.append(at)
            at = self._parents.get(at)
        return line
