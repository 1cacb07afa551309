"""The interpreter that the project's virtual environment was made with, which a jail has to show, or why it does not.

An environment below the workspace lies where commands write. Its pyvenv.cfg is read as hostile input, and believed
only where it names a real Python outside of everything that commands may write, which holds no home directory.
"""

import os
import pwd
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handrail.drivers._options import is_below
from handrail.drivers.scratch import is_scratch

CONFIGURATION: Final = "pyvenv.cfg"
CONFIGURATION_MAX: Final = 64 << 10
"""Greatest part of pyvenv.cfg that is read, in bytes."""
NOWHERE: Final = ("/proc", "/sys", "/dev", "/run", "/etc", "/boot")
"""No Python is there, and a jail shows nothing of the machine below them."""
PRIVATE: Final = (".ssh", ".gnupg", ".aws", ".config", ".local/share", ".bashrc", ".profile")
"""Names of entries that tell a home directory from the directory of a Python."""
_PYTHON: Final = re.compile(r"python3(?:\.\d+)?[a-z]*")


@dataclass(frozen=True, slots=True)
class ProjectPython:
    """A Python to be shown read-only."""

    prefix: str
    """The real path of the Python."""
    link: str | None = None
    """Another path of the same Python, by which the environment knows it."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """The environment names a Python that is not shown."""

    named: str
    reason: str


def find_python(venv: str, *, writable: Sequence[str], shown: Sequence[str]) -> ProjectPython | Hidden | None:
    """Find the Python of an environment; None if there is none, or if `shown` paths contain it already.

    `writable` are the real paths of all directories that commands may write.
    """
    named = _named(venv)
    if named is None:
        return None
    if not named.startswith("/") or "\0" in named or len(named) > os.pathconf("/", "PC_PATH_MAX"):
        return Hidden(named, "it is not an absolute path")
    real = os.path.realpath(named)
    prefix, name = os.path.split(real)
    if is_below(prefix, shown) or is_below(prefix, writable):
        return None
    reason = _refused(prefix, name, writable)
    if reason is not None:
        return Hidden(named, reason)
    link = os.path.dirname(os.path.normpath(named))
    leads = link != prefix and os.path.basename(os.path.normpath(named)) == name and os.path.realpath(link) == prefix
    return ProjectPython(prefix, link if leads else None)


def _named(venv: str) -> str | None:
    """Read the directory of programs that pyvenv.cfg names as `home`; a link or a pipe in its place is not opened."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(os.path.join(venv, CONFIGURATION), flags)
    except OSError:
        return None
    try:
        data = os.read(fd, CONFIGURATION_MAX) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    for line in os.fsdecode(data).splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip().lower() == "home":
            return value.strip()
    return None


def _refused(prefix: str, name: str, writable: Sequence[str]) -> str | None:
    """Why this is not shown; None for a Python that may be."""
    if name != "bin" or prefix == "/" or is_below(prefix, NOWHERE):
        return "it is not the bin directory of a Python"
    if is_scratch(prefix) or any(is_below(top, [prefix]) for top in writable) or _is_inside(prefix, writable):
        return "commands may write there"
    if _holds_home(prefix):
        return "it holds a home directory"
    if not _is_python(prefix):
        return "there is no Python"
    return None


def _is_inside(path: str, tops: Sequence[str]) -> bool:
    """Whether a path is in one of the directories by inode, not by name: a directory may be mounted twice."""
    known = set()
    for top in tops:
        with suppress(OSError):
            known.add(_identity(top))
    try:
        return any(_identity(each) in known for each in (path, *map(str, Path(path).parents)))
    except OSError:
        return True


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _holds_home(prefix: str) -> bool:
    homes = [os.path.expanduser("~")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    private = [os.path.join(home, name) for home in homes for name in ("", *PRIVATE)]
    return any(is_below(os.path.realpath(path), [prefix]) for path in private) or any(
        os.path.lexists(os.path.join(prefix, name)) for name in PRIVATE
    )


def _is_python(prefix: str) -> bool:
    """Whether there is an interpreter with its library, by their real paths."""
    return _has_file(prefix, "bin", "") and _has_file(prefix, "lib", "os.py")


def _has_file(prefix: str, directory: str, name: str) -> bool:
    top = os.path.join(prefix, directory)
    try:
        with os.scandir(top) as entries:
            found = [os.path.realpath(os.path.join(top, entry.name, name)) for entry in entries if _is_named(entry)]
    except OSError:
        return False
    return any(is_below(path, [prefix]) and os.path.isfile(path) for path in found)


def _is_named(entry: "os.DirEntry[str]") -> bool:
    return _PYTHON.fullmatch(entry.name) is not None
