"""The view of a jail: the parts of the machine that it shows, and the workspaces and mounts that it refuses."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from handrail.drivers._options import ResolvedMount, check_workspace, is_below
from handrail.drivers.jail._etc import copies, etc_copy, make_room
from handrail.drivers.jail._project_python import ProjectPython
from handrail.drivers.limit_table import MAX_NUMBER
from handrail.drivers.scratch import directory_outside, temporary_directories

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
GUARD_INSIDE: Final = "/run/handrail/guard"
OWN_DIRECTORY: Final = os.path.dirname(GUARD_INSIDE)
OUTER_DEVICES: Final = "/run/handrail/dev"
"""Path of the machine's devices in the jail; the guard takes a few, and hides the rest before any command runs."""
HOME: Final = "/home/sandbox"
OWN_HOME: Final = f"{OWN_DIRECTORY}/home"
"""HOME where the workspace or a mount holds the other path."""
DEFAULT_TMP: Final = 1 << 30
NO_WORKSPACE: Final = frozenset({*SYSTEM, "/etc", "/run", "/dev", "/var", "/boot"})
NO_TARGET: Final = ("/proc", "/sys", OWN_DIRECTORY)
DEVICES: Final = frozenset(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "fd", "stdin",
                                "stdout", "stderr")
)  # fmt: skip
_DEV: Final = (
    "--perms", "0755", "--tmpfs", "/dev", "--dir", "/dev/pts", "--symlink", "pts/ptmx", "/dev/ptmx",
    "--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin",
    "--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr",
)  # fmt: skip
Origin = tuple[str, str]
"""A path inside, and the path outside that appears there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the view: a target path, and bubblewrap's arguments that make it."""

    target: str
    arguments: tuple[str, ...]


def check_jail_workspace(workspace: str) -> str:
    """Return the real path. Raises as `check_workspace`, and HandrailError for a directory of the system itself."""
    home = check_workspace(workspace)
    if home in NO_WORKSPACE or is_below(home, (*NO_TARGET, "/etc")):
        raise HandrailError(
            f"the workspace cannot be {home}, which the jail needs itself: choose a directory of its own"
        )
    return home


def check_sources(mounts: Sequence[Mount], workspace: str) -> None:
    """Raise HandrailError for a source below the workspace or another mount that a link leads out of there."""
    tops = [workspace, *(os.path.realpath(mount.source) for mount in mounts)]
    for mount in mounts:
        path = os.path.abspath(mount.source)
        for top in tops:
            if path != top and is_below(path, [top]) and not is_below(os.path.realpath(path), [top]):
                raise HandrailError(
                    f"the source {mount.source} is a link that leads out of {top}: give the path that it leads to"
                )


def check_targets(mounts: Sequence[ResolvedMount], workspace: str) -> list[ResolvedMount]:
    """The mounts, with targets below /workspace moved to the workspace's own path.

    Raises HandrailError for one that hides what the jail needs, or has a link on the way to its target.
    """
    placed = [mount._replace(target=_below_workspace(mount.target, workspace)) for mount in mounts]
    origins = [(workspace, workspace), *((mount.target, mount.source) for mount in placed)]
    for source, target, _ in placed:
        if source == "/" or is_below(source, ["/proc"]) or is_below(source, ["/sys"]):
            raise HandrailError(
                f"{source} would show the machine itself, its processes and settings: mount only what is needed"
            )
        if target == workspace:
            raise HandrailError(f"the mount of {source} would hide the workspace: give it another target")
        if target == "/usr":
            raise HandrailError(f"a mount at {target} would hide the system's programs: give a path of its own")
        if target == "/dev" or target in DEVICES or is_below(OWN_DIRECTORY, [target]) or is_below(target, NO_TARGET):
            raise HandrailError(f"a mount cannot appear at {target}, which the jail makes itself: give another target")
        if crosses_link(target, origins):
            raise HandrailError(f"the mount of {source} would not appear at {target}: there is a link on the way to it")
    return placed


def _below_workspace(target: str, workspace: str) -> str:
    """/workspace is another name of the workspace."""
    if is_below(target, ["/workspace"]) and not is_below(workspace, ["/workspace"]):
        return workspace + target.removeprefix("/workspace")
    return target


def crosses_link(target: str, origins: Sequence[Origin]) -> bool:
    """Whether there is a link on the way to a target below one of these.

    bubblewrap would follow it, to wherever an earlier command wanted it to lead.
    """
    for top, source in origins:
        if target != top and is_below(target, [top]):
            path = source
            for name in os.path.relpath(target, top).split("/"):
                path = os.path.join(path, name)
                if os.path.islink(path):
                    return True
    return False


@lru_cache(maxsize=1)
def interpreter_dirs() -> tuple[str, ...]:
    """Return the directories of the running interpreter and its virtual environment; never a whole home directory."""
    programs = os.path.dirname(os.path.realpath(sys.executable))
    prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    if os.path.basename(programs) == "bin":
        prefixes.append(os.path.dirname(programs))
    paths = dict.fromkeys([*map(os.path.abspath, prefixes), *map(os.path.realpath, prefixes)])  # a link needs its end
    return tuple(path for path in paths if os.path.isdir(path) and not holds_home(path))


@lru_cache(maxsize=64)
def holds_home(path: str) -> bool:
    """Whether this user's home directory is there, or below."""
    home = os.path.realpath(os.path.expanduser("~"))
    return is_below(home, [os.path.realpath(path)])


@lru_cache(maxsize=64)
def holds_temporary(workspace: str) -> bool:
    """Whether this user's other programs keep temporary files there, or below."""
    directories = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    return any(is_below(os.path.realpath(path), [workspace]) for path in directories)


@lru_cache(maxsize=1)
def _system() -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The system's links, and its directories."""
    links = tuple(Entry(path, ("--symlink", os.readlink(path), path)) for path in SYSTEM if os.path.islink(path))
    return links, tuple(path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path))


def _system_directory(path: str) -> Entry:
    """An empty one is made, because that costs less than a mount."""
    try:
        with os.scandir(path) as entries:
            empty = next(entries, None) is None
    except OSError:
        empty = False
    return Entry(path, ("--dir", path) if empty else ("--ro-bind", path, path))


def _interpreter(workspace: str, origins: Sequence[Origin]) -> Iterator[Entry]:
    """Yield read-only mounts of the interpreter, even below the workspace: this process still loads code from there."""
    covered = [*SYSTEM, workspace] if workspace in interpreter_dirs() else [*SYSTEM]
    for path in interpreter_dirs():
        if not is_below(path, covered) and not crosses_link(path, origins):
            yield Entry(path, ("--ro-bind", path, path))
            covered.append(path)


def _own(workspace: str, tmp: int | None, mounts: Sequence[ResolvedMount]) -> Iterator[Entry]:
    """Return the arguments for a jail's own parts: /proc, devices, temporary files, and the name /workspace."""
    size = str(min(tmp if tmp is not None else DEFAULT_TMP, MAX_NUMBER))
    yield Entry("/proc", ("--proc", "/proc"))
    yield Entry("/dev", _DEV)
    yield Entry(OUTER_DEVICES, ("--dev-bind", "/dev", OUTER_DEVICES))
    for path in ("/dev/shm", "/tmp"):
        yield Entry(path, ("--size", size, "--perms", "1777", "--tmpfs", path))
    sources = {workspace: workspace} | {mount.target: mount.source for mount in mounts}
    mounted = any(is_below(target, ["/var/tmp"]) for target in (*sources, *interpreter_dirs()))
    if mounted or ("/var" in sources and os.path.isdir(f"{sources['/var']}/tmp")):
        yield Entry("/var/tmp", ("--size", size, "--perms", "1777", "--tmpfs", "/var/tmp"))
    elif "/var" not in sources:  # a link costs less than a mount
        yield Entry("/var/tmp", ("--symlink", "/tmp", "/var/tmp"))
    if not is_below("/workspace", [workspace]):
        yield Entry("/workspace", ("--symlink", workspace, "/workspace"))


def private(size: int) -> tuple[str, ...]:
    """Bubblewrap's arguments, without a path, for a tmpfs of this size that only this user may enter."""
    return "--size", str(min(size, MAX_NUMBER)), "--perms", "0700", "--tmpfs"


def _hidden_copies(writable: Sequence[Origin]) -> Iterator[Entry]:
    """Hide copies of /etc below writable directories, because other jails of this process show them."""
    for copy in copies():
        for top, source in writable:
            if is_below(copy, [source]):
                inside = os.path.normpath(os.path.join(top, os.path.relpath(copy, source)))
                yield Entry(inside, ("--tmpfs", inside))


_wide: set[str] = set()
"""Directories with temporary ones below them that jails of this process may write: no copy of /etc is put there."""


def _copy_of_etc(network: str, writable: Sequence[str]) -> str:
    _wide.update(path for path in writable if any(is_below(each, [path]) for each in temporary_directories()))
    return etc_copy(network, directory_outside([*_wide, *writable], in_memory=True))


def _in_order(entries: Sequence[Entry], origins: Sequence[Origin]) -> list[str]:
    """Deeper targets come later, so that nothing hides anything else. Raises HandrailError for a link on the way."""
    latest = {entry.target: entry for entry in entries}
    for target in latest:
        if crosses_link(target, origins):
            raise HandrailError(f"nothing can appear at {target}: there is a link on the way to it; remove it")
    ordered = sorted(latest.values(), key=lambda entry: entry.target.count("/"))
    return [argument for entry in ordered for argument in entry.arguments]


def home_inside(workspace: str, mounts: Sequence[ResolvedMount]) -> str:
    """The path of HOME: never one that would have to be made in the workspace or in a mount."""
    tops = [workspace, *(mount.target for mount in mounts)]
    return HOME if HOME in tops or not is_below(HOME, tops) else OWN_HOME


def _base(base: ProjectPython, entries: Sequence[Entry]) -> Iterator[Entry]:
    """The Python of the project's environment; its other name only where nothing of the machine would be changed."""
    if any(is_below(entry.target, [base.prefix]) for entry in entries):
        return
    yield Entry(base.prefix, ("--ro-bind", base.prefix, base.prefix))
    taken = [base.prefix, *(entry.target for entry in entries if "--tmpfs" not in entry.arguments)]
    link = base.link
    if link and not is_below(link, taken) and not any(is_below(entry.target, [link]) for entry in entries):
        yield Entry(link, ("--symlink", base.prefix, link))


def view_arguments(
    workspace: str, *, network: str, tmp: int | None, mounts: Sequence[ResolvedMount],
    home: Sequence[str] | None = None, base: ProjectPython | None = None, size: int | None = None,
) -> list[str]:  # fmt: skip
    """Bubblewrap's arguments. Raises HandrailError for a mount that cannot appear, or has a link on the way to it.

    `home` are the arguments that make HOME, without its path, and `base` is the interpreter of the project's
    environment. With a `size` in bytes the workspace is an empty tmpfs, and nothing of the machine.
    """
    origins = [(workspace, workspace), *((mount.target, mount.source) for mount in mounts)]
    writable = [(workspace, workspace), *((mount.target, mount.source) for mount in mounts if mount.writable)]
    copy = _copy_of_etc(network, [source for _, source in writable])
    links, directories = _system()
    entries = [*links, *map(_system_directory, directories), Entry("/etc", ("--ro-bind", copy, "/etc"))]
    entries += [*_interpreter(workspace, origins), *_own(workspace, tmp, mounts)]
    if home is not None:
        inside = home_inside(workspace, mounts)
        entries.append(Entry(inside, (*home, inside)))
    own = ("--bind", workspace) if size is None else private(size)
    entries.append(Entry(workspace, (*own, workspace)))
    for mount in mounts:
        if is_below(mount.target, ["/etc"]):
            make_room(copy, mount.target, is_dir=os.path.isdir(mount.source))
        bind = "--bind" if mount.writable else "--ro-bind"
        entries.append(Entry(mount.target, (bind, mount.source, mount.target)))
    if base is not None:
        entries += _base(base, entries)
    entries += _hidden_copies(writable)
    return _in_order(entries, origins)
