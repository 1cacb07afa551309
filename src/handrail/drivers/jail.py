"""Run commands in a jail of namespaces, made by bubblewrap, with the guard as its first process; no daemon, no root."""

import os
from collections.abc import Mapping, Sequence

from handrail.contract.driver import Limits, Mount
from handrail.contract.errors import Unavailable
from handrail.drivers.bubblewrap import find_bubblewrap
from handrail.drivers.elsewhere import explainer
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.spawn import spawn
from handrail.drivers.guarded import GuardedDriver
from handrail.drivers.jail_view import GUARD_INSIDE, SYSTEM, bin_dirs, interpreter_dirs, view_words
from handrail.drivers.places import check_limits, check_mounts, check_network, check_workspace, fixed_env
from handrail.drivers.promises import jail_report
from handrail.drivers.remedies import remedy

_FIRST = (
    "--unshare-user", "--unshare-all", "--new-session", "--as-pid-1", "--hostname", "sandbox",
    "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SYS_RESOURCE",
    "--clearenv",
)  # fmt: skip


async def open_jail(
    *, workspace: str, limits: Limits = Limits(), network: str = "none", env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (), bubblewrap: str | None = None,
) -> GuardedDriver:  # fmt: skip
    """Start the guard as the first process of a new jail. The workspace keeps its path; /workspace leads to it too.

    `bubblewrap` is the path of one that is not in a usual place. Raises OSError's children for the workspace and
    mounts, HandrailError for options, and Unavailable, with the reason, where no jail can be made.
    """
    home = check_workspace(workspace)
    check_limits(limits)
    check_network(network)
    shown = check_mounts(mounts)
    bwrap = find_bubblewrap(bubblewrap)
    view = view_words(home, guard=str(PROGRAM), network=network, tmp=limits.tmp, mounts=shown)
    shared = ["--share-net"] if network == "full" else []

    def words(arguments: tuple[str, ...]) -> list[str]:
        closing = ["--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/"]
        return [bwrap, *_FIRST, *shared, *view, *closing, "--", GUARD_INSIDE, *arguments]

    guard = spawn(words)
    try:
        await guard.greet(jail=True, limits=limits, roots=["/"])
    except Unavailable as error:
        raise Unavailable(f"{error}: {remedy(str(error))}", retryable=error.retryable) from None
    return GuardedDriver(
        guard,
        report=jail_report(network=network, root=os.geteuid() == 0),
        workspace=home,
        program=GUARD_INSIDE,
        explain=explainer([*SYSTEM, *interpreter_dirs(), home, *(target for _, target, _ in shown)]),
        env=fixed_env(home, "/tmp", env or {}, bin_dirs=bin_dirs()),
    )
