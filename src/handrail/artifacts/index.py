"""Who holds which artifact, and who may see it: a session, those above and below it, and whom it is shared with."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from handrail.artifacts.blobs import Writer
from handrail.artifacts.entries import Entry, Holding, load_all, reference
from handrail.artifacts.home import Home

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
