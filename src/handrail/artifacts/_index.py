"""Who holds which artifact, and who may see it: a session, those above and below it, and whom it is shared with."""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from handrail.artifacts._blobs import Blob, Writer
from handrail.artifacts._private_directory import Home
from handrail.contract.result import ArtifactRef

PREFIX: Final = "a_"
_SHOWN_DIGITS: Final = 32
_LABEL: Final = "session.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One artifact as one session holds it."""

    ref: str
    size: int
    media_type: str
    name: str | None
    checksums: str
    pins: int = 0
    shown: bool = False
    """Whether it was ever named in a result: then it stays."""

    @property
    def blob(self) -> Blob:
        return Blob(self.size, bytes.fromhex(self.checksums))

    @property
    def handle(self) -> ArtifactRef:
        return ArtifactRef(self.ref, self.size, self.media_type, self.name)


class Holding:
    """The artifacts of one session, and whose child it is. Not safe for several threads at once."""

    def __init__(self, home: Path, session: str, parent: str | None) -> None:
        self.session = session
        self.parent = parent
        self.entries: dict[str, Entry] = {}
        self._directory = home / "sessions" / sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def place(self, ref: str) -> Path:
        """Where the content is. Only a reference that is in `entries` may be asked for."""
        return self._directory / ref

    def add(self, blob: Blob, sources: Sequence[Path], media_type: str, name: str | None) -> Entry:
        """Hold what was written; the first of the sources that is still there is linked."""
        ref = reference(blob)
        known = self.entries.get(ref)
        if known is not None and known.blob != blob:
            raise OSError(f"{ref} already names other content")
        if not self._directory.exists():
            self._directory.mkdir(mode=0o700, parents=True)
            _write(self._directory / _LABEL, {"session": self.session, "parent": self.parent})
        self._link(sources, ref)
        entry = Entry(ref, blob.size, media_type, name, blob.checksums.hex())
        if known is not None:
            entry = replace(entry, name=name or known.name, pins=known.pins, shown=known.shown)
        self.keep(entry)
        return entry

    def keep(self, entry: Entry) -> None:
        """Write an entry down as it is now."""
        _write(self._directory / f"{entry.ref}.json", asdict(entry))
        self.entries[entry.ref] = entry

    def drop(self, ref: str) -> None:
        """Let go of one artifact; its content goes when nobody else holds it."""
        entry = self.entries.pop(ref)
        (self._directory / f"{ref}.json").unlink(missing_ok=True)
        (self._directory / ref).unlink(missing_ok=True)
        stored = self._directory.parent.parent / "objects" / entry.blob.digest
        with suppress(FileNotFoundError):
            if stored.stat().st_nlink == 1:
                stored.unlink()

    def _link(self, sources: Sequence[Path], ref: str) -> None:
        """A link of its own, which replaces one that was tampered with."""
        place, fresh = self.place(ref), self._directory / f"new-{token_hex(8)}"
        try:
            os.link(sources[0], fresh)
        except FileNotFoundError:  # another process let go of the same content at this moment
            os.link(sources[-1], fresh)
        os.replace(fresh, place)
        fresh.unlink(missing_ok=True)  # where both were the same file, replacing did nothing


def reference(blob: Blob) -> str:
    """The short name of a content."""
    return PREFIX + blob.digest[:_SHOWN_DIGITS]


def load_all(home: Path) -> dict[str, Holding]:
    """Every session that the directory knows. What cannot be read, or does not fit its reference, is left out."""
    found: dict[str, Holding] = {}
    for label in sorted((home / "sessions").glob(f"*/{_LABEL}")):
        told = _read(label)
        session, parent = told.get("session"), told.get("parent")
        if not isinstance(session, str) or not (parent is None or isinstance(parent, str)):
            continue
        holding = Holding(home, session, parent)
        if holding.place(_LABEL) == label:
            found[session] = holding
            holding.entries = {entry.ref: entry for path in label.parent.glob("a_*.json") if (entry := _entry(path))}
    return found


def _entry(path: Path) -> Entry | None:
    try:
        entry = Entry(**_read(path))
        right = entry.blob.sound and reference(entry.blob) == entry.ref == path.stem
    except (TypeError, ValueError):
        return None
    return entry if right else None


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _write(path: Path, told: dict[str, Any]) -> None:
    fresh = path.with_name(f"new-{token_hex(8)}")
    fresh.write_text(json.dumps(told), encoding="utf-8")
    os.replace(fresh, path)


Found = tuple[Holding, Entry]


class Index:
    """Every session's holdings in one directory, or in a private one. Safe to use from several threads."""

    def __init__(self, directory: str | None) -> None:
        self._home = Home()
        self._directory = None if directory is None else Path(directory).absolute()
        self._lock = threading.RLock()
        self._parents: dict[str, str | None] = {}
        self._holdings: dict[str, Holding] = {}
        self._loaded = directory is None

    def writer(self) -> Writer:
        """A new file on its way in."""
        return Writer(self._path)

    def enter(self, session: str, parent: str | None) -> None:
        """Make a session known; whose child it is stays what it was said to be first."""
        with self._lock:
            self._load()
            if self._parents.get(session) is None:
                self._parents[session] = parent

    def add(self, session: str, writer: Writer, media_type: str, name: str | None) -> Entry:
        """Finish what was written, for this session. What it can see already keeps its type."""
        blob, sources = writer.finish()
        with self._lock:
            if known := self.find(session, reference(blob)):
                media_type = known[1].media_type
            return self._holding(session).add(blob, sources, media_type, name)

    def find(self, session: str | None, ref: str) -> Found | None:
        """The artifact as this session may see it; None is the owner of the store, who sees everything."""
        with self._lock:
            self._load()
            for holder in self._visible(session):
                entry = holder.entries.get(ref)
                if entry is not None and holder.place(ref).is_file():
                    return holder, entry
        return None

    def change(self, session: str | None, ref: str, *, pins: int = 0, shown: bool = False) -> bool:
        """Count pins, or note that it was shown. One that nobody pins and nobody was shown is dropped."""
        with self._lock:
            found = self.find(session, ref)
            if found is None:
                return False
            holder, entry = found
            changed = replace(entry, pins=max(0, entry.pins + pins), shown=entry.shown or shown)
            if pins < 0 and not changed.pins and not changed.shown:
                holder.drop(ref)
            elif changed != entry:
                holder.keep(changed)
            return True

    def sweep(self, session: str | None) -> int:
        """Drop what nobody pins and nobody was shown; how many there were."""
        with self._lock:
            self._load()
            own = [self._holdings[session]] if session in self._holdings else []
            idle = [
                (holder, entry.ref)
                for holder in (self._holdings.values() if session is None else own)
                for entry in holder.entries.values()
                if not entry.pins and not entry.shown
            ]
            for holder, ref in idle:
                holder.drop(ref)
            return len(idle)

    def give(self, session: str | None, ref: str, to: str, *, pins: bool = False) -> bool:
        """Let another session hold it too, with its pins where asked."""
        with self._lock:
            found = self.find(session, ref)
            if found is None:
                return False
            holder, entry = found
            given = self._holding(to)
            made = given.add(entry.blob, [holder.place(ref)], entry.media_type, entry.name)
            given.keep(replace(made, shown=True, pins=made.pins + (entry.pins if pins else 0)))
            return True

    def refs(self, session: str) -> list[str]:
        """What the session itself holds."""
        with self._lock:
            self._load()
            return list(self._holdings[session].entries) if session in self._holdings else []

    def close(self) -> None:
        """Forget everything; remove what was private."""
        with self._lock:
            self._holdings.clear()
            self._loaded = self._directory is None
            self._home.close()

    @property
    def _path(self) -> Path:
        return self._directory or self._home.path

    def _load(self) -> None:
        if not self._loaded and self._directory is not None:
            self._holdings = load_all(self._directory)
            self._parents |= {name: held.parent for name, held in self._holdings.items()}
            self._loaded = True

    def _holding(self, session: str) -> Holding:
        self._load()
        if session not in self._holdings:
            self._holdings[session] = Holding(self._path, session, self._parents.get(session))
        return self._holdings[session]

    def _visible(self, session: str | None) -> Iterator[Holding]:
        if session is None:
            yield from self._holdings.values()
            return
        above = set(self._above(session))
        for name, holder in self._holdings.items():
            if name in above or session in self._above(name):
                yield holder

    def _above(self, session: str) -> list[str]:
        """The session and its ancestors; a circle is walked once."""
        found: list[str] = []
        at: str | None = session
        while at is not None and at not in found:
            found.append(at)
            at = self._parents.get(at)
        return found
