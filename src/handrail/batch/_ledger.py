"""The ledger of a batch: results.jsonl, where a line is the commit, and batch.json, which says of what."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from handrail.batch.task import LOST, Done
from handrail.contract.errors import HandrailError
from handrail.misuse import shown

VERSION: Final = 1
RESULTS: Final = "results.jsonl"
ABOUT: Final = "batch.json"
SESSIONS: Final = "sessions.db"
"""Name of the store in the directory of a batch."""


class Ledger:
    """Results by task and sample. Only one process at a time has a ledger open; lines are appended, never changed.

    Raises HandrailError for a directory of another batch, one that another process works in, and a line that is not a
    result. A torn last line, which a killed process leaves, is cut off.
    """

    def __init__(self, out: Path, about: Mapping[str, Any]) -> None:
        self.path = out / RESULTS
        self.results: dict[tuple[str, int], Done] = {}
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            _check_about(out, about, has_results=os.fstat(self._file).st_size > 0)
            end = self._read()
            if end < os.fstat(self._file).st_size:
                os.ftruncate(self._file, end)
            _write_about(out, about)
        except BaseException:
            self.close()
            raise

    def append(self, done: Done) -> None:
        """Write a result. Raises OSError, with nothing of it written, if the disk is full."""
        line = f"{done.to_json()}\n".encode()
        end = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            os.ftruncate(self._file, end)  # half a line in the middle would make the file unreadable
            raise
        self.results[done.key] = done

    def close(self) -> None:
        """Let another process open it. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = f"another batch works in {self.path.parent}; wait for it, or give another --out"
            raise HandrailError(why) from None

    def _read(self) -> int:
        """Read every line. Returns where the last whole one ends."""
        end = 0
        for number, line in enumerate(self._lines(), 1):
            whole = line.endswith(b"\n")
            try:
                done = Done.from_json(line)
                if (known := self.results.get(done.key)) is not None and known.reason != LOST:
                    raise ValueError(f"task {done.id!r}, sample {done.sample} has a result above it")
            except ValueError as error:
                if not whole:  # torn: the process that wrote it was killed
                    return end
                raise HandrailError(
                    f"{self.path}, line {number} was not written by this batch: {error}; "
                    "nothing was changed. Remove the line, or give another --out"
                ) from None
            self.results[done.key] = done
            end += len(line)
            if not whole:
                os.write(self._file, b"\n")
                end += 1
        return end

    def _lines(self) -> Iterator[bytes]:
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            yield from file


def read_results(out: Path) -> list[Done]:
    """The results of a batch, the last one of each sample; a torn last line is left out. It may be running."""
    found: dict[tuple[str, int], Done] = {}
    with (out / RESULTS).open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                done = Done.from_json(line)
                found[done.key] = done
    return list(found.values())


def _check_about(out: Path, about: Mapping[str, Any], *, has_results: bool) -> None:
    """Raise HandrailError unless the directory is new or of the same batch."""
    try:
        known = json.loads((out / ABOUT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if has_results:
            raise HandrailError(f"{out} has results and no {ABOUT}; give another --out") from None
        return
    except ValueError as error:
        raise HandrailError(f"{out / ABOUT} cannot be read: {error}; give another --out") from None
    wanted = json.loads(_about_text(about))
    for name in ("version", "tasks", *sorted({*known, *wanted})) if isinstance(known, dict) else ("",):
        old, new = (each.get(name) if isinstance(each, dict) else each for each in (known, wanted))
        if old != new:
            what = "of other tasks" if name == "tasks" else f"with {name} {shown(old)}, and this is {shown(new)}"
            raise HandrailError(f"{out} is the directory of a batch {what}; give another --out")


def _write_about(out: Path, about: Mapping[str, Any]) -> None:
    path, new = out / ABOUT, out / f".{ABOUT}.{os.getpid()}"
    if path.exists():
        return
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_about_text(about) + "\n")
    new.replace(path)


def _about_text(about: Mapping[str, Any]) -> str:
    return json.dumps({"version": VERSION, **about}, indent=2, sort_keys=True, default=str)
