"""What a jail shows of the machine: the system and the interpreter read-only, the workspace, and what was asked for."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from handrail.contract.errors import HandrailError
from handrail.drivers._options import is_below
from handrail.drivers.jail._etc import copies, etc_copy, make_room
from handrail.drivers.scratch import place_outside, usual_places

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
GUARD_INSIDE: Final = "/run/handrail/guard"
OUTER_DEVICES: Final = "/run/handrail/dev"
"""From here the guard takes the few devices that a jail has; it hides the rest before anything runs."""
DEFAULT_TMP: Final = 1 << 30
_DEV: Final = (
    "--perms", "0755", "--tmpfs", "/dev", "--dir", "/dev/pts", "--symlink", "pts/ptmx", "/dev/ptmx",
    "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin",
    "--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """One thing that appears at `target`."""

    target: str
    words: tuple[str, ...]


@lru_cache(maxsize=1)
def interpreter_dirs() -> tuple[str, ...]:
    """Where the running interpreter and its virtual environment live; never a whole home directory."""
    programs = os.path.dirname(os.path.realpath(sys.executable))
    dirs = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    if os.path.basename(programs) == "bin":
        dirs.append(os.path.dirname(programs))
    found = dict.fromkeys([*map(os.path.abspath, dirs), *map(os.path.realpath, dirs)])  # a link must lead somewhere
    return tuple(path for path in found if os.path.isdir(path) and not holds_home(path))


@lru_cache(maxsize=64)
def holds_home(path: str) -> bool:
    """Whether this user's home directory is there, or below."""
    home = os.path.realpath(os.path.expanduser("~"))
    return is_below(home, [os.path.realpath(path)])


def bin_dirs() -> list[str]:
    """The interpreter's own programs come first on the path."""
    return [os.path.dirname(sys.executable)]


@lru_cache(maxsize=1)
def _system() -> tuple[tuple[Shown, ...], tuple[str, ...]]:
    """The links, and the directories."""
    links = tuple(Shown(path, ("--symlink", os.readlink(path), path)) for path in SYSTEM if os.path.islink(path))
    return links, tuple(path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path))


def _directory(path: str) -> Shown:
    """An empty one is made, because that costs less than a mount."""
    try:
        with os.scandir(path) as entries:
            empty = next(entries, None) is None
    except OSError:
        empty = False
    return Shown(path, ("--dir", path) if empty else ("--ro-bind", path, path))


def _interpreter(workspace: str, places: Sequence[tuple[str, str]]) -> Iterator[Shown]:
    """Below the workspace too: this very process goes on to load and run what is in there."""
    covered = [*SYSTEM, workspace] if workspace in interpreter_dirs() else [*SYSTEM]
    for path in interpreter_dirs():
        if not is_below(path, covered) and not leads_astray(path, places):
            yield Shown(path, ("--ro-bind", path, path))
            covered.append(path)


def _own(workspace: str, tmp: int | None, mounts: Sequence[tuple[str, str, bool]]) -> Iterator[Shown]:
    size = str(tmp if tmp is not None else DEFAULT_TMP)
    yield Shown("/proc", ("--proc", "/proc"))
    yield Shown("/dev", _DEV)
    yield Shown(OUTER_DEVICES, ("--dev-bind", "/dev", OUTER_DEVICES))
    for path in ("/dev/shm", "/tmp"):
        yield Shown(path, ("--size", size, "--perms", "1777", "--tmpfs", path))
    targets = {workspace: workspace} | {target: source for source, target, _ in mounts}
    mounted = any(is_below(path, ["/var/tmp"]) for path in targets)
    if mounted or ("/var" in targets and os.path.isdir(f"{targets['/var']}/tmp")):
        yield Shown("/var/tmp", ("--size", size, "--perms", "1777", "--tmpfs", "/var/tmp"))
    elif "/var" not in targets:  # a link costs less than a mount
        yield Shown("/var/tmp", ("--symlink", "/tmp", "/var/tmp"))
    if not is_below("/workspace", [workspace]):
        yield Shown("/workspace", ("--symlink", workspace, "/workspace"))


def leads_astray(target: str, places: Sequence[tuple[str, str]]) -> bool:
    """Whether there is a link on the way to a target below one of these places, each given as (target, source).

    bubblewrap would follow it, to wherever an earlier command wanted it to lead.
    """
    for top, source in places:
        if target != top and is_below(target, [top]):
            at = source
            for name in os.path.relpath(target, top).split("/"):
                at = os.path.join(at, name)
                if os.path.islink(at):
                    return True
    return False


def _hidden_copies(theirs: Sequence[tuple[str, str]]) -> Iterator[Shown]:
    """A copy of /etc that lies below what commands may write: other jails of this process see it."""
    for copy in copies():
        for top, source in theirs:
            if is_below(copy, [source]):
                inside = os.path.normpath(os.path.join(top, os.path.relpath(copy, source)))
                yield Shown(inside, ("--tmpfs", inside))


_wide: set[str] = set()
"""What jails of this process may write, or could, and a copy might otherwise be put below."""


def _copy_of_etc(network: str, sources: Sequence[str]) -> str:
    _wide.update(source for source in sources if any(is_below(place, [source]) for place in usual_places()))
    return etc_copy(network, place_outside([*_wide, *sources], quick=True))


def _in_order(shown: Sequence[Shown], places: Sequence[tuple[str, str]]) -> list[str]:
    """What lies deeper comes later, so that nothing hides anything else. Raises HandrailError for a link on the way."""
    latest = {item.target: item for item in shown}
    for target in latest:
        if leads_astray(target, places):
            raise HandrailError(f"nothing can be shown at {target}: there is a link on the way to it; take it away")
    ordered = sorted(latest.values(), key=lambda item: item.target.count("/"))
    return [word for item in ordered for word in item.words]


def view_words(workspace: str, *, network: str, tmp: int | None, mounts: Sequence[tuple[str, str, bool]]) -> list[str]:
    """The words for bubblewrap. Raises HandrailError for a mount that has no place, or whose way a link was put."""
    places = [(workspace, workspace), *((target, source) for source, target, _ in mounts)]
    theirs = [(workspace, workspace), *((target, source) for source, target, writable in mounts if writable)]
    copy = _copy_of_etc(network, [source for _, source in theirs])
    links, dirs = _system()
    shown = [*links, *map(_directory, dirs), Shown("/etc", ("--ro-bind", copy, "/etc"))]
    shown += [*_interpreter(workspace, places), *_own(workspace, tmp, mounts)]
    shown.append(Shown(workspace, ("--bind", workspace, workspace)))
    for source, target, writable in mounts:
        if is_below(target, ["/etc"]):
            make_room(copy, target, is_dir=os.path.isdir(source))
        shown.append(Shown(target, ("--bind" if writable else "--ro-bind", source, target)))
    shown += _hidden_copies(theirs)
    return _in_order(shown, places)
