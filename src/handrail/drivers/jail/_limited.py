"""Start a jail within its limits: in a cgroup where one can be made, with a size for what is of its own."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from handrail.contract.driver import Feature, Standing
from handrail.contract.limits import Limits
from handrail.drivers._cgroup import Group, can_keep, sandbox_group
from handrail.drivers._limit_notes import LimitNotes
from handrail.drivers._reaper import reap
from handrail.drivers.jail._start import Starting
from handrail.drivers.limit_table import check_least
from handrail.drivers.scratch import is_own_and_empty

Weaker = dict[Feature, tuple[Standing, str, str]]
"""Standing, reason and remedy of each feature that is not enforced."""
_ORDINARY_WORKSPACE: Final[Weaker] = {
    "limit_workspace": (
        "advisory",
        "the workspace is an ordinary directory of this machine",
        "leave the workspace out, and the sandbox makes one with a size",
    ),
}
_ROOT: Final[Weaker] = {
    "limit_processes": (
        "advisory",
        "the kernel does not count root's processes, and no cgroup can be made here that does",
        "run as an ordinary user",
    ),
}


@dataclass(frozen=True, slots=True)
class Limited:
    """The limits of one jail, and what keeps them."""

    limits: Limits
    group: Group
    workspace: str
    own: bool
    """Whether the workspace is an empty directory that this process made: then it may be a tmpfs instead."""

    @property
    def size(self) -> int | None:
        """Bytes of the workspace, where it has a size."""
        return self.limits.workspace if self.own else None

    @property
    def notes(self) -> LimitNotes:
        return LimitNotes(self.limits, self.group.memory_by, self.size is not None)

    def for_guard(self) -> Limits:
        """The limits that the guard keeps: a cgroup does the rest."""
        return replace(self.limits, memory=None) if "memory" in self.group.kept else self.limits

    def weaker(self) -> Weaker:
        """The limits that are not enforced, with their reasons."""
        found = {} if self.own else dict(_ORDINARY_WORKSPACE)
        counted = "processes" in self.group.kept or (self.limits.processes is None and can_keep("processes"))
        return found | ({} if os.geteuid() != 0 or counted else dict(_ROOT))

    def spaces(self, home: Sequence[str] | None, inside: str) -> dict[str, str]:
        """The directories inside that have a size: HOME, at the path `inside`, and the workspace."""
        sized = {"home": inside} if home is not None and self.limits.tmp is not None else {}
        return sized | ({} if self.size is None else {"workspace": self.workspace})

    def releasing(self, release: Callable[[], None]) -> Callable[[], None]:
        """Release something else, then the cgroups, which are empty only when the jail has ended."""

        def both() -> None:
            release()
            self.group.remove()

        return both


@contextmanager
def starting(bwrap: str, limits: Limits, workspace: str) -> Iterator[tuple[Starting, Limited]]:
    """Start bubblewrap, and move it into its cgroups while it waits to be told what to show.

    Raises HandrailError for a limit below which nothing works, and Unavailable.
    """
    check_least(limits)
    reap()
    own = is_own_and_empty(workspace)
    with sandbox_group(limits) as group, Starting(bwrap, group.events) as begun:
        group.add(begun.guard.pid)
        yield begun, Limited(limits, group, workspace, own)
