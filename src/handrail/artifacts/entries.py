"""What one session holds: its artifacts by reference, written on disk too, so that a later process finds them.

Each artifact is a hard link of the content and a small description. Dropping one never takes it from another session.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from handrail.artifacts.blobs import Blob
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
