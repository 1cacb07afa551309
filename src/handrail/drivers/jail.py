"""Run commands in a jail of namespaces, made by bubblewrap, with the guard as its first process; no daemon, no root."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from handrail.contract.driver import Limits, Mount, Report
from handrail.contract.errors import HandrailError, Unavailable
from handrail.drivers.bubblewrap import find_bubblewrap
from handrail.drivers.elsewhere import explainer
from handrail.drivers.guard.spawn import Guard, spawn
from handrail.drivers.guarded import GuardedDriver
from handrail.drivers.jail_view import GUARD_APART, SYSTEM, View, bin_dirs, holds_home, interpreter_dirs, make_view
from handrail.drivers.places import check_limits, check_mounts, check_network, check_workspace, fixed_env
from handrail.drivers.promises import jail_report
from handrail.drivers.remedies import remedy

_FIRST: Final = (
    "--unshare-user", "--unshare-all", "--new-session", "--as-pid-1", "--hostname", "sandbox",
    "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SYS_RESOURCE",
    "--clearenv",
)  # fmt: skip

TMP: Final = "/tmp"
_OURS: Final = ("/proc", "/dev", os.path.dirname(GUARD_APART))
"""What the jail makes itself, and nothing may cover."""


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
    _check_targets(shown, home)
    bwrap = find_bubblewrap(bubblewrap)
    view = make_view(home, network=network, tmp=limits.tmp, mounts=shown)
    report = _report(network, home)
    guard = _spawn(bwrap, network, view)
    driver = GuardedDriver(
        guard,
        report=report,
        workspace=home,
        tmp=TMP,
        program=view.guard,
        explain=explainer([*SYSTEM, *interpreter_dirs(), home, *(target for _, target, _ in shown)]),
        env=fixed_env(home, TMP, env or {}, bin_dirs=bin_dirs()),
    )
    try:
        await guard.greet(jail=True, limits=limits, roots=["/"])
    except Unavailable as error:
        raise Unavailable(f"{error}: {remedy(str(error))}", retryable=error.retryable) from None
    return driver


def _spawn(bwrap: str, network: str, view: View) -> Guard:
    shared = ["--share-net"] if network == "full" else []
    first = [bwrap, *_FIRST, *shared, *view.words, "--chdir", "/"]
    return spawn(lambda arguments: [*first, "--", view.guard, *arguments])


def _check_targets(shown: Sequence[tuple[str, str, bool]], workspace: str) -> None:
    """Raises HandrailError for a mount that would hide what the jail needs."""
    for source, target, _ in shown:
        if target in (workspace, "/workspace"):
            raise HandrailError(f"the mount of {source} would hide the workspace: give it another target")
        if target in _OURS or os.path.dirname(target) == _OURS[-1] or _OURS[-1].startswith(f"{target}/"):
            raise HandrailError(f"a mount cannot appear at {target}, which the jail makes itself: give another target")


def _report(network: str, workspace: str) -> Report:
    foreign = os.stat(workspace).st_uid != os.geteuid()
    return jail_report(network=network, root=os.geteuid() == 0, foreign=foreign, home=holds_home(workspace))
