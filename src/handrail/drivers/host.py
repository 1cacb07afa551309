"""Run commands on this machine without any isolation, and report that."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers._options import check_limits, check_mounts, check_network, check_workspace, fixed_env
from handrail.drivers._promises import host_report
from handrail.drivers._scratch import make_scratch, remove_scratch
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.sealed import runnable
from handrail.drivers.guard.spawn import spawn

UNLIMITED: Final = Limits(None, None, None, None, None, None, None)


async def open_host(
    *, workspace: str, limits: Limits = Limits(), network: str = "full", env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
) -> GuardedDriver:  # fmt: skip
    """Start the guard beside this process. File operations stay below the workspace, its TMPDIR and the mounts.

    Raises subclasses of OSError for the workspace and the mounts, HandrailError for other options, and Unavailable
    when the guard cannot start.
    """
    home = check_workspace(workspace)
    check_limits(limits)
    check_network(network)
    roots = [home]
    for source, target, _ in check_mounts(mounts):
        if source != target:
            raise HandrailError(f"the host driver cannot mount {source} at {target}: leave the target out")
        roots.append(source)
    scratch = make_scratch()
    try:
        guard = spawn(lambda arguments: [str(PROGRAM), *arguments])
        await guard.greet(jail=False, limits=limits, roots=[*roots, scratch])
    except BaseException:
        remove_scratch(scratch)
        raise
    return GuardedDriver(
        guard,
        report=host_report(),
        workspace=home,
        tmp=scratch,
        program=str(PROGRAM),
        env=fixed_env(home, scratch, env or {}, bin_dirs=[str(Path(sys.executable).parent)]),
        on_close=lambda: remove_scratch(scratch),
    )


async def open_own() -> GuardedDriver:
    """A guard for this process's own programs: it gives them its environment, sets no limits, and serves no files.

    All it does is kill their process trees. Raises Unavailable when it cannot start.
    """
    program, fds = runnable()
    guard = spawn(lambda arguments: [program, *arguments], fds=fds, own_environment=True)
    await guard.greet(jail=False, limits=UNLIMITED, roots=[])
    return GuardedDriver(guard, report=host_report(), workspace="/", tmp="/", program=program, env=None)
