"""What a jail shows of the machine: the system and the interpreter read-only, the workspace, and what was asked for."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from handrail.drivers.etc_copy import GUARD_IN_ETC, etc_copy, make_room
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.scratch import place_outside

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
GUARD_APART: Final = "/run/handrail/guard"
"""Where the guard's program is shown when the copy of /etc cannot show it."""
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


@dataclass(frozen=True, slots=True)
class View:
    """The words for bubblewrap, and where the guard's program is inside."""

    words: list[str]
    guard: str


@lru_cache(maxsize=1)
def interpreter_dirs() -> tuple[str, ...]:
    """Where the running interpreter and its virtual environment live; never a whole home directory."""
    programs = os.path.dirname(os.path.realpath(sys.executable))
    dirs = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    if os.path.basename(programs) == "bin":
        dirs.append(os.path.dirname(programs))
    found = dict.fromkeys(map(os.path.abspath, dirs))
    return tuple(path for path in found if os.path.isdir(path) and not holds_home(path))


@lru_cache(maxsize=64)
def holds_home(path: str) -> bool:
    """Whether this user's home directory is there, or below."""
    home = os.path.realpath(os.path.expanduser("~"))
    return _is_below(home, [os.path.realpath(path)])


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


def _is_below(path: str, tops: Sequence[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)


def _interpreter(workspace: str) -> Iterator[Shown]:
    covered = [*SYSTEM, workspace]
    for path in interpreter_dirs():
        if not _is_below(path, covered):
            yield Shown(path, ("--ro-bind", path, path))
            covered.append(path)


def _own(workspace: str, tmp: int | None, targets: Sequence[str]) -> Iterator[Shown]:
    size = str(tmp if tmp is not None else DEFAULT_TMP)
    yield Shown("/proc", ("--proc", "/proc"))
    yield Shown("/dev", _DEV)
    yield Shown(OUTER_DEVICES, ("--dev-bind", "/dev", OUTER_DEVICES))
    for path in ("/dev/shm", "/tmp"):
        yield Shown(path, ("--size", size, "--perms", "1777", "--tmpfs", path))
    if any(_is_below(path, ["/var/tmp"]) for path in targets):
        yield Shown("/var/tmp", ("--size", size, "--perms", "1777", "--tmpfs", "/var/tmp"))
    else:  # a link costs less than a mount
        yield Shown("/var/tmp", ("--symlink", "/tmp", "/var/tmp"))
    if not _is_below("/workspace", [workspace]):
        yield Shown("/workspace", ("--symlink", workspace, "/workspace"))


def _guard(copy: str, targets: Sequence[str]) -> str:
    """In the copy of /etc, unless something hides it there, or nothing can be run from where the copy lies."""
    hidden = any(_is_below(GUARD_IN_ETC, [target]) for target in targets)
    return GUARD_APART if hidden or os.statvfs(copy).f_flag & os.ST_NOEXEC else GUARD_IN_ETC


def make_view(workspace: str, *, network: str, tmp: int | None, mounts: Sequence[tuple[str, str, bool]]) -> View:
    """What lies deeper comes later, so that nothing hides anything else."""
    theirs = [workspace, *(source for source, _, writable in mounts if writable)]
    copy = etc_copy(network, place_outside(theirs, quick=True))  # what runs as the guard must not be theirs to change
    links, dirs = _system()
    targets = [workspace, *(target for _, target, _ in mounts)]
    shown = [*links, *map(_directory, dirs), Shown("/etc", ("--ro-bind", copy, "/etc"))]
    shown += [*_interpreter(workspace), *_own(workspace, tmp, targets)]
    shown.append(Shown(workspace, ("--bind", workspace, workspace)))
    guard = _guard(copy, targets)
    if guard == GUARD_APART:
        shown.append(Shown(guard, ("--ro-bind", str(PROGRAM), guard)))
    for source, asked, writable in mounts:
        target = workspace + asked.removeprefix("/workspace") if _is_below(asked, ["/workspace"]) else asked
        if _is_below(target, ["/etc"]):
            make_room(copy, target, is_dir=os.path.isdir(source))
        shown.append(Shown(target, ("--bind" if writable else "--ro-bind", source, target)))
    latest = {item.target: item for item in shown}
    ordered = sorted(latest.values(), key=lambda item: item.target.count("/"))
    return View([word for item in ordered for word in item.words], guard)
