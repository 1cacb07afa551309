"""Small tables that outlive a command: a JSON file each, for this user alone, outside of every workspace."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from handrail.contract.errors import HandrailError


class NoHome(HandrailError):
    """The user has no home directory, as in a container that runs as an arbitrary user id."""


def person_directory(variable: str, usual: str) -> Path:
    """The directory of this person that the variable names, or the usual one in their home. Raises NoHome."""
    given, home = os.environ.get(variable, ""), os.path.expanduser("~")
    if os.path.isabs(given):
        return Path(given)
    if not os.path.isabs(home):  # what it would lead to may be the workspace, where commands write
        raise NoHome("this user has no home directory; set HOME to the whole path of one")
    return Path(home, usual)


def state_directory() -> Path:
    """The directory of these files. Raises NoHome."""
    return person_directory("XDG_STATE_HOME", ".local/state") / "handrail"


class JsonFile(MutableMapping[str, Any]):
    """A table in a file; every change is written at once, and read again by whoever opens it next."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def path(self) -> Path:
        """Raises NoHome."""
        return state_directory() / self._name

    def __getitem__(self, key: str) -> Any:
        return self._read()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        with self.changed() as table:
            table[key] = value

    def __delitem__(self, key: str) -> None:
        with self.changed() as table:
            del table[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    @contextmanager
    def changed(self) -> Iterator[dict[str, Any]]:
        """The table, to be changed: it is written at the end, and no other process changes it meanwhile."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            table = self._read()
            yield table
            self._write(table)
        finally:
            os.close(directory)

    def _read(self) -> dict[str, Any]:
        try:
            table = json.loads(self.path.read_text())
        except (FileNotFoundError, NoHome):
            return {}
        except ValueError as error:
            raise HandrailError(
                f"{self.path} is damaged ({error}); remove it, and agree to its content again"
            ) from None
        return table if isinstance(table, dict) else {}

    def _write(self, table: dict[str, Any]) -> None:
        descriptor, new = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)  # readable by this user alone
        with os.fdopen(descriptor, "w") as file:
            json.dump(table, file, indent=1, sort_keys=True)
        os.replace(new, self.path)


class Part(MutableMapping[str, str]):
    """The table under one key of a kept one."""

    def __init__(self, whole: JsonFile, key: str) -> None:
        self._whole, self._key = whole, key
        self._table: dict[str, str] = dict(whole.get(key) or {})

    def __getitem__(self, key: str) -> str:
        return self._table[key]

    def __setitem__(self, key: str, value: str) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        with self._whole.changed() as whole:
            self._table = whole[self._key] = {**(whole.get(self._key) or {})}
            del self._table[key]

    def update(self, more: Any = (), /, **named: str) -> None:
        """All of them in one write, to what other processes have written meanwhile."""
        with self._whole.changed() as whole:
            self._table = whole[self._key] = {**(whole.get(self._key) or {}), **dict(more, **named)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)
