"""Run commands on this machine without any isolation, and say so plainly."""

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
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.sealed import runnable
from handrail.drivers.guard.spawn import spawn
from handrail.drivers.scratch import make_scratch, remove_scratch

UNLIMITED: Final = Limits(None, None, None, None, None, None, None)


async def open_host(
    *, workspace: str, limits: Limits = Limits(), network: str = "full", env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
) -> GuardedDriver:  # fmt: skip
    """Start the guard beside this process. File operations stay below the workspace, its /tmp and the mounts.

    Raises OSError's children for the workspace and mounts, HandrailError for options, Unavailable when it cannot start.
    """
    home = check_workspace(workspace)
    check_limits(limits)
    check_network(network)
    roots = [home]
    for source, target, _ in check_mounts(mounts):
        if source != target:
            raise HandrailError(f"the host driver cannot show {source} at {target}: leave the target out")
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
    """A guard for programs of this process's own: in its environment, without limits, and with no files to look after.

    All it does is end their trees. Raises Unavailable when it cannot start.
    """
    program, fds = runnable()
    guard = spawn(lambda arguments: [program, *arguments], fds=fds, own_environment=True)
    await guard.greet(jail=False, limits=UNLIMITED, roots=[])
    return GuardedDriver(guard, report=host_report(), workspace="/", tmp="/", program=program, env=None)
