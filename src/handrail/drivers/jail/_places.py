"""Where the workspace and the mounts of a jail may be: they hide nothing that it needs, and no link leads astray."""

import os
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from handrail.drivers._options import check_workspace, is_below
from handrail.drivers.jail._view import GUARD_INSIDE, SYSTEM, leads_astray

Shown = tuple[str, str, bool]
"""A mount: its real source, its target, whether it can be written."""
OURS: Final = os.path.dirname(GUARD_INSIDE)
NO_WORKSPACE: Final = frozenset({*SYSTEM, "/etc", "/run", "/dev", "/var", "/boot"})
NO_PLACE: Final = ("/proc", "/sys", OURS)
DEVICES: Final = frozenset(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "fd", "stdin",
                                "stdout", "stderr")
)  # fmt: skip


def check_jail_workspace(workspace: str) -> str:
    """Its real path. Raises what `check_workspace` does, and HandrailError for a directory of the system itself."""
    home = check_workspace(workspace)
    if home in NO_WORKSPACE or is_below(home, (*NO_PLACE, "/etc")):
        raise HandrailError(
            f"the workspace cannot be {home}, which the jail needs itself: choose a directory of its own"
        )
    return home


def check_targets(mounts: Sequence[Shown], workspace: str) -> list[Shown]:
    """The mounts, at their places inside. Raises HandrailError for one that hides what is needed, or leads astray."""
    placed = [(source, _place(target, workspace), writable) for source, target, writable in mounts]
    places = [(workspace, workspace), *((target, source) for source, target, _ in placed)]
    for source, target, _ in placed:
        if source == "/" or is_below(source, ["/proc"]) or is_below(source, ["/sys"]):
            raise HandrailError(
                f"{source} would show the machine itself, its processes and settings: mount what is needed"
            )
        if target == workspace:
            raise HandrailError(f"the mount of {source} would hide the workspace: give it another target")
        if target == "/dev" or target in DEVICES or is_below(OURS, [target]) or is_below(target, NO_PLACE):
            raise HandrailError(f"a mount cannot appear at {target}, which the jail makes itself: give another target")
        if leads_astray(target, places):
            raise HandrailError(f"the mount of {source} would not appear at {target}: there is a link on the way to it")
    return placed


def check_sources(mounts: Sequence[Mount], workspace: str) -> None:
    """Raises HandrailError for a source below the workspace or another mount that a link leads out of there."""
    tops = [workspace, *(os.path.realpath(mount.source) for mount in mounts)]
    for mount in mounts:
        path = os.path.abspath(mount.source)
        for top in tops:
            if path != top and is_below(path, [top]) and not is_below(os.path.realpath(path), [top]):
                raise HandrailError(f"the source {mount.source} is a link that leads out of {top}: name where it leads")


def _place(target: str, workspace: str) -> str:
    """/workspace is another name of the workspace."""
    if is_below(target, ["/workspace"]) and not is_below(workspace, ["/workspace"]):
        return workspace + target.removeprefix("/workspace")
    return target


@lru_cache(maxsize=64)
def holds_temporary(workspace: str) -> bool:
    """Whether this user's other programs keep temporary files there, or below."""
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    return any(is_below(os.path.realpath(place), [workspace]) for place in places)
