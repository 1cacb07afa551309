"""Run commands in a jail of namespaces, made by bubblewrap, with the guard as its first process; no daemon, no root."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from handrail.contract.driver import Mount, Report
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers._options import check_limits, check_mounts, check_network, fixed_env
from handrail.drivers._promises import jail_report
from handrail.drivers.elsewhere import explainer
from handrail.drivers.guard.sealed import open_sealed
from handrail.drivers.guard.spawn import Guard, spawn
from handrail.drivers.jail._bubblewrap import find_bubblewrap
from handrail.drivers.jail._places import check_jail_workspace, check_sources, check_targets, holds_temporary
from handrail.drivers.jail._remedies import MISPLACED, remedy
from handrail.drivers.jail._view import GUARD_INSIDE, SYSTEM, bin_dirs, holds_home, interpreter_dirs, view_words

_FIRST: Final = (
    "--unshare-user", "--unshare-all", "--new-session", "--as-pid-1", "--hostname", "sandbox",
    "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SYS_RESOURCE",
    "--clearenv",
)  # fmt: skip

TMP: Final = "/tmp"


async def open_jail(
    *, workspace: str, limits: Limits = Limits(), network: str = "none", env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (), bubblewrap: str | None = None,
) -> GuardedDriver:  # fmt: skip
    """Start the guard as the first process of a new jail. The workspace keeps its path; /workspace leads to it too.

    `bubblewrap` is the path of one that is not in a usual place. Raises OSError's children for the workspace and
    mounts, HandrailError for options, and Unavailable, with the reason, where no jail can be made.
    """
    home = check_jail_workspace(workspace)
    check_limits(limits)
    check_network(network)
    check_sources(mounts, home)
    shown = check_targets(check_mounts(mounts), home)
    bwrap = find_bubblewrap(bubblewrap)
    view = view_words(home, network=network, tmp=limits.tmp, mounts=shown)
    report = _report(network, home)
    guard = _spawn(bwrap, network, view)
    driver = GuardedDriver(
        guard,
        report=report,
        workspace=home,
        tmp=TMP,
        program=GUARD_INSIDE,
        explain=explainer([*SYSTEM, *interpreter_dirs(), home, *(target for _, target, _ in shown)]),
        env=fixed_env(home, TMP, env or {}, bin_dirs=bin_dirs()),
    )
    try:
        await guard.greet(jail=True, limits=limits, roots=["/"])
    except Unavailable as error:
        said = f"{error}: {remedy(str(error))}"
        if shown and re.search(MISPLACED, str(error)):
            raise HandrailError(said) from None  # what was asked for is wrong, not this machine
        raise Unavailable(said, retryable=error.retryable) from None
    return driver


def _spawn(bwrap: str, network: str, view: Sequence[str]) -> Guard:
    shared = ["--share-net"] if network == "full" else []
    program = open_sealed()
    named, naming = os.pipe()
    own = ["--perms", "0755", "--file", str(program), GUARD_INSIDE, "--chdir", "/", "--info-fd", str(naming)]
    try:
        first = [bwrap, *_FIRST, *shared, *view, *own]
        return spawn(lambda arguments: [*first, "--", GUARD_INSIDE, *arguments], fds=[program, naming], info=named)
    except BaseException:
        os.close(named)
        raise
    finally:
        os.close(program)
        os.close(naming)


def _report(network: str, workspace: str) -> Report:
    foreign = os.stat(workspace).st_uid != os.geteuid()
    root, home, temporary = os.geteuid() == 0, holds_home(workspace), holds_temporary(workspace)
    return jail_report(network=network, root=root, foreign=foreign, home=home, temporary=temporary)
