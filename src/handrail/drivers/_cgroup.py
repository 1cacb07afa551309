"""Cgroups of one sandbox: they keep its memory, and root's processes, where this user may make them.

Version 1 was tried on real hierarchies. Version 2 was tried on a directory that looks like one: the machines at hand
had all controllers in version 1.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Final

from handrail.aio import when_loop_closes
from handrail.contract.limits import Limits
from handrail.drivers._limit_notes import WATCH
from handrail.drivers.limit_table import number_of
from handrail.drivers.scratch import is_dead, process_tag

GUARD_ROOM: Final = 8 << 20
"""Bytes added to the limit of a cgroup for bubblewrap and the guard, which are in it too."""
GUARD_PROCESSES: Final = 4
"""Processes added likewise: bubblewrap, its child, the guard, and the supervisor of one command."""
MAX_PROCESSES: Final = 1 << 22
"""Processes from which on the kernel takes no number."""
MAX_WALKED: Final = 5_000
"""Cgroups of one hierarchy that are searched for leftovers."""
_REMOVE_WAITS: Final = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds before each try to remove a cgroup: its processes have ended, but the kernel may not have let go of them."""
_CONTROLLERS: Final = {"memory": "memory", "processes": "pids"}
_FILES: Final = {
    ("memory", 1): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ("memory", 2): ("memory.max", "memory.swap.max"),
    ("processes", 1): ("pids.max",),
    ("processes", 2): ("pids.max",),
}
"""Files of a cgroup, by limit and version: the one written first, then those that only some kernels have."""
_EVENTS: Final = {1: "memory.oom_control", 2: "memory.events"}
"""Names of the file that counts processes killed for memory, by version."""
_numbers: Final = count(1)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy, and the cgroup of this process in it."""

    version: int
    top: Path
    own: Path


@dataclass
class Group:
    """The cgroups of one sandbox."""

    kept: dict[str, Path] = field(default_factory=dict)
    """Cgroups that keep a limit, by the limit's name."""
    version: int = 1
    undo: Callable[[], object] = lambda: None
    """Stops the removal at the end of the event loop."""
    events: int = -1
    """A descriptor of the file that counts killed processes; -1 without a limit on memory."""

    @property
    def memory_by(self) -> str:
        """The mechanism that keeps the limit on memory, in words."""
        return f"a cgroup of version {self.version}" if "memory" in self.kept else WATCH

    def add(self, pid: int) -> None:
        """Move a process into the cgroups. Where that is refused, they are removed, and keep nothing."""
        try:
            for path in set(self.kept.values()):
                (path / "cgroup.procs").write_text(f"{pid}\n")
        except OSError:  # version 2 asks for the right to write in a common ancestor
            self.remove()

    def close_events(self) -> None:
        """Close the descriptor: the guard has its own."""
        if self.events >= 0:
            os.close(self.events)
            self.events = -1

    def remove(self) -> None:
        """Remove the cgroups; what still runs in them keeps them, and a later start removes them."""
        self.close_events()
        self.undo()
        paths, self.kept = set(self.kept.values()), {}
        for path in paths:
            remove_cgroup(path)


@contextmanager
def sandbox_group(limits: Limits) -> Iterator[Group]:
    """The cgroups for these limits, which may be none. They are removed here if the sandbox cannot be made."""
    group = make_group(limits, hierarchies())
    if group.kept:  # a partial, because a method would not keep the group alive until then
        group.undo = when_loop_closes(partial(Group.remove, group))
    try:
        yield group
    except BaseException:
        group.remove()
        raise
    finally:
        group.close_events()


def make_group(limits: Limits, found: Mapping[str, Hierarchy]) -> Group:
    """Make a cgroup for each limit that needs one: memory, and processes of root, whom the kernel does not count.

    A limit whose controller is missing, read-only or refused is not kept by the group.
    """
    group = Group()
    wanted = {"memory": limits.memory} | ({"processes": limits.processes} if os.geteuid() == 0 else {})
    name = f"{process_tag()}-{next(_numbers)}"
    for limit, value in wanted.items():
        hierarchy = found.get(_CONTROLLERS[limit])
        if value is None or hierarchy is None:
            continue
        with suppress(OSError):
            group.kept[limit] = _made(hierarchy, name, limit, number_of(limits, limit) or 0)
            group.version = hierarchy.version
            if limit == "memory":
                group.events = os.open(group.kept[limit] / _EVENTS[hierarchy.version], os.O_RDONLY | os.O_CLOEXEC)
    return group


def can_keep(limit: str) -> bool:
    """Whether a cgroup with this limit could be made here; nothing is made."""
    hierarchy = hierarchies().get(_CONTROLLERS[limit])
    try:
        return hierarchy is not None and _parent(hierarchy, _CONTROLLERS[limit]).is_dir()
    except OSError:
        return False


def _made(hierarchy: Hierarchy, name: str, limit: str, number: int) -> Path:
    """A cgroup with one limit set. Raises OSError, and leaves nothing then."""
    path = _parent(hierarchy, _CONTROLLERS[limit]) / name
    new = not path.exists()  # in version 2 one cgroup has both limits
    path.mkdir(exist_ok=True)
    first, *others = _FILES[limit, hierarchy.version]
    try:
        (path / first).write_text(_value(limit, number))
    except OSError:
        if new:
            path.rmdir()
        raise
    for other in others:  # a machine without swap accounting has no such file
        with suppress(OSError):
            (path / other).write_text("0" if other == "memory.swap.max" else _value(limit, number))
    return path


def _value(limit: str, number: int) -> str:
    if limit == "processes":
        return "max" if number + GUARD_PROCESSES >= MAX_PROCESSES else str(number + GUARD_PROCESSES)
    return str(min(number + GUARD_ROOM, (1 << 63) - 1))


def _parent(hierarchy: Hierarchy, controller: str) -> Path:
    """Find where a cgroup can be made: below our own, whose limits then hold too; in version 2 often beside it.

    There a cgroup with processes cannot share its controllers out. Raises PermissionError where neither is possible.
    """
    places = [hierarchy.own]
    if hierarchy.version == 2 and hierarchy.own != hierarchy.top:
        places.append(hierarchy.own.parent)
    for place in places:
        shared = hierarchy.version == 1 or controller in _words(place / "cgroup.subtree_control")
        if shared and os.access(place, os.W_OK):
            return place
    raise PermissionError(f"no cgroup with {controller} can be made here")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def hierarchies() -> dict[str, Hierarchy]:
    """Locate this process in each mounted hierarchy, by controller."""
    try:
        return _located(_mounts(), Path("/proc/self/cgroup").read_text())
    except OSError:
        return {}


@lru_cache(maxsize=1)
def _mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def _located(mounts: str, own: str) -> dict[str, Hierarchy]:
    places = dict(_own_places(own))
    found: dict[str, Hierarchy] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = [*after.split(" "), "", "", ""][:3]
        root, top = [*before.split(" "), "", "", "", "", ""][3:5]
        if kind not in ("cgroup", "cgroup2"):
            continue
        names = options.split(",") if kind == "cgroup" else [""]
        for controller in _CONTROLLERS.values():
            key = controller if kind == "cgroup" else ""
            place = places.get(key)
            if key not in names or place is None or (key == "" and controller in found):
                continue
            path = _below(top, root, place)
            if path is not None and (key or controller in _words(path / "cgroup.controllers")):
                found[controller] = Hierarchy(1 if key else 2, Path(top), path)
    return found


def _own_places(text: str) -> Iterator[tuple[str, str]]:
    """Yield each controller and the cgroup of this process; version 2 has the name ''."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for name in names.split(","):
            yield name, path


def _below(top: str, root: str, place: str) -> Path | None:
    """The directory of a cgroup under the mount at `top`, which shows the hierarchy from `root` on."""
    if "\\" in top:  # a path with blanks: nobody mounts cgroups there
        return None
    if root in ("/", place) or place.startswith(f"{root}/"):
        inside = place if root == "/" else place[len(root) :]
        path = Path(top + inside.rstrip("/")) if inside.strip("/") else Path(top)
        return path if path.is_dir() else None
    return None


def remove_cgroup(path: Path) -> bool:
    """Remove an empty cgroup; one with processes stays. Nothing in it is killed. Returns whether it is gone."""
    for wait in _REMOVE_WAITS:
        time.sleep(wait)
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            continue
        return True
    return False


def reap_cgroups() -> None:
    """Remove the empty cgroups of dead processes of ours, wherever in the hierarchies they are."""
    for top in {hierarchy.top for hierarchy in hierarchies().values()}:
        for path in _tagged(top):
            if is_dead(path.name):
                with suppress(OSError):
                    path.rmdir()


def _tagged(top: Path) -> Iterator[Path]:
    waiting, walked = [top], 0
    while waiting and walked < MAX_WALKED:
        place = waiting.pop()
        walked += 1
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if re.match(r"handrail-\d+-\d+-", entry.name):
                    yield Path(entry.path)
                else:
                    waiting.append(Path(entry.path))
