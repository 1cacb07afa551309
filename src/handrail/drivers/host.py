"""Run commands on this machine without any isolation, and report that."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers._home import make_home
from handrail.drivers._limit_notes import UNLIMITED, LimitNotes
from handrail.drivers._options import (
    GitIdentity,
    check_mounts,
    check_network,
    check_virtual_env,
    check_workspace,
    fixed_env,
)
from handrail.drivers._reports import host_report
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.sealed import runnable
from handrail.drivers.guard.spawn import spawn
from handrail.drivers.scratch import make_scratch, remove_scratch


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
