"""Run commands on this machine without any isolation, and report that."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from handrail.contract.driver import Mount, Report
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver, NotEnforced, claim
from handrail.drivers._home import GitIdentity, make_home
from handrail.drivers._limit_notes import UNLIMITED, LimitNotes
from handrail.drivers._options import check_mounts, check_network, check_virtual_env, check_workspace, fixed_env
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.sealed import runnable
from handrail.drivers.guard.spawn import spawn
from handrail.drivers.scratch import make_scratch, remove_scratch

USE_JAIL: Final = "use the jail driver"
WEAKER: Final[NotEnforced] = {
    "file_isolation": ("absent", "commands see every file this user sees", USE_JAIL),
    "process_isolation": ("absent", "commands see and can signal this user's other processes", USE_JAIL),
    "network_isolation": ("absent", "commands use this machine's network", USE_JAIL),
    "no_privileges": ("advisory", "capabilities are dropped, but no system call is filtered", USE_JAIL),
    "limit_memory": ("advisory", "the guard's watch keeps it, and commands on this machine can evade it", USE_JAIL),
    "limit_processes": ("absent", "the kernel counts all of this user's processes together", USE_JAIL),
    "limit_tmp": ("absent", "temporary files are on this machine's own disk", USE_JAIL),
    "limit_workspace": ("absent", "the workspace is an ordinary directory"),
}  # fmt: skip
NOTES: Final = (
    "No isolation: commands run as this user, on this machine.",
    "Advisory: chains of processes that each fork and exit at once, and commands that attack the guard, may survive.",
)


async def open_host(
    *, workspace: str, limits: Limits = Limits(), network: str = "full", env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (), git_identity: GitIdentity | None = None, virtual_env: str | None = None,
) -> GuardedDriver:  # fmt: skip
    """Start the guard beside this process. File operations stay below the workspace, HOME, TMPDIR and the mounts.

    Raises subclasses of OSError for the workspace and the mounts, HandrailError for other options, and Unavailable
    when the guard cannot start.
    """
    top = check_workspace(workspace)
    check_network(network)
    venv = check_virtual_env(virtual_env)
    roots = [top]
    for source, target, _ in check_mounts(mounts):
        if source != target:
            raise HandrailError(f"the host driver cannot mount {source} at {target}: leave the target out")
        roots.append(source)
    home, scratch = make_home(roots, git_identity), make_scratch()

    def release() -> None:
        remove_scratch(scratch)
        remove_scratch(home)

    try:
        guard = spawn(lambda arguments: [str(PROGRAM), *arguments])
        await guard.greet(jail=False, limits=limits, roots=[*roots, scratch, home])
    except BaseException:
        release()
        raise
    return GuardedDriver(
        guard,
        report=replace(host_report(), lasting=tuple(roots), passing=(scratch, home)),
        workspace=top,
        tmp=scratch,
        program=str(PROGRAM),
        env=fixed_env(top, scratch, env or {}, home=home, venv=venv, bin_dirs=[str(Path(sys.executable).parent)]),
        on_close=release,
        limits=LimitNotes(replace(limits, tmp=None)),
    )


async def open_own(env: Mapping[str, str] | None = None, *, privileges: bool = False) -> GuardedDriver:
    """A guard for this process's own programs: it sets no limits and serves no files. Without `env` they get its own.

    All it does is kill their process trees, and take root's capabilities from them unless they keep their `privileges`.
    Raises Unavailable when it cannot start.
    """
    program, fds = runnable()
    kept = ["--privileges", "kept"] if privileges else []
    guard = spawn(lambda arguments: [program, *arguments, *kept], fds=fds, own_environment=True)
    await guard.greet(jail=False, limits=UNLIMITED, roots=[])
    return GuardedDriver(guard, report=host_report(), workspace="/", tmp="/", program=program, env=env)


def host_report() -> Report:
    """What it claims: nothing is isolated."""
    return claim("host", network="full", weaker=WEAKER, notes=NOTES)
