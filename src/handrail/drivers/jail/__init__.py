"""Run commands in a jail of namespaces made by bubblewrap, with the guard as its first process; no daemon, no root."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from handrail.contract.driver import Feature, Mount, Report, Standing
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._explain import Explain, explainer
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers._home import git_configuration, make_home
from handrail.drivers._options import (
    VENV,
    GitIdentity,
    ResolvedMount,
    check_git_identity,
    check_mounts,
    check_network,
    check_virtual_env,
    fixed_env,
    is_below,
    may_write,
)
from handrail.drivers._reports import claim
from handrail.drivers.guard.spawn import Guard
from handrail.drivers.jail._bubblewrap import BAD_TARGET, find_bubblewrap, remedy
from handrail.drivers.jail._limited import Limited, starting
from handrail.drivers.jail._project_python import Hidden, ProjectPython, find_python
from handrail.drivers.jail._view import (
    DEFAULT_TMP,
    GUARD_INSIDE,
    HOME,
    SYSTEM,
    check_jail_workspace,
    check_sources,
    check_targets,
    holds_home,
    holds_temporary,
    home_inside,
    interpreter_dirs,
    private,
    view_arguments,
)
from handrail.drivers.scratch import remove_scratch

__all__ = ["DEFAULT_TMP", "find_bubblewrap", "interpreter_dirs", "open_jail"]

TMP: Final = "/tmp"
_NOT_SHOWN: Final = (
    "The workspace's .venv says that it was made with the Python in {named!r}, which is not shown: {reason}. Make the "
    "environment again with a Python that can be shown."
)


async def open_jail(
    *, workspace: str, limits: Limits = Limits(), network: str = "none", env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (), bubblewrap: str | None = None, git_identity: GitIdentity | None = None,
    virtual_env: str | None = None,
) -> GuardedDriver:  # fmt: skip
    """Start the guard as the first process of a new jail. The workspace keeps its path; /workspace leads to it too.

    `bubblewrap` is the path of one that is not on the system's PATH. Raises subclasses of OSError for the workspace and
    the mounts, HandrailError for other options, and Unavailable, with the reason, where no jail can be made.
    """
    top = check_jail_workspace(workspace)
    check_network(network)
    venv = check_virtual_env(virtual_env)
    resolved = _resolved([*mounts, *_shown(venv, top)], top)
    chosen, inside = env or {}, home_inside(top, resolved)
    with (
        starting(find_bubblewrap(bubblewrap), limits, top) as (begun, kept),
        _home(top, resolved, chosen, git_identity, limits.tmp) as (home, release),
    ):
        found = _find_python(top, resolved, venv)
        base = found if isinstance(found, ProjectPython) else None
        view = view_arguments(
            top, network=network, tmp=limits.tmp, mounts=resolved, home=home, base=base, size=kept.size
        )
        begun.show(view, network=network)
        driver = GuardedDriver(
            begun.guard,
            report=_report(network, top, found, resolved, kept, own_home=home is not None),
            workspace=top, tmp=TMP, program=GUARD_INSIDE,
            explain=_explainer(top, resolved, base),
            env=fixed_env(top, TMP, chosen, home=inside, venv=venv, bin_dirs=[os.path.dirname(sys.executable)]),
            on_close=kept.releasing(release),
            limits=kept.notes,
        )  # fmt: skip
        driver.spaces = kept.spaces(home, inside)
        await _greet(begun.guard, kept.for_guard(), mounted=bool(resolved))
        await _set_identity(driver, git_identity)
    return driver


def _explainer(workspace: str, mounts: Sequence[ResolvedMount], base: ProjectPython | None) -> Explain:
    """Explain programs that are not in what the jail shows."""
    visible = [*SYSTEM, *interpreter_dirs(), workspace, *(mount.target for mount in mounts)]
    return explainer(visible if base is None else [*visible, base.prefix])


async def _set_identity(driver: GuardedDriver, identity: GitIdentity | None) -> None:
    """Write the identity into a HOME that has a size: there is no such directory outside."""
    if identity is not None and "home" in driver.spaces:
        await driver.write(f"{driver.spaces['home']}/.gitconfig", git_configuration(identity).encode())


def _resolved(mounts: Sequence[Mount], workspace: str) -> list[ResolvedMount]:
    """The mounts, checked. Raises FileNotFoundError and HandrailError."""
    check_sources(mounts, workspace)
    return check_targets(check_mounts(mounts), workspace)


def _shown(venv: str | None, workspace: str) -> list[Mount]:
    """A given environment is shown read-only, unless it is in the workspace."""
    return [] if venv is None or is_below(os.path.realpath(venv), [workspace]) else [Mount(venv)]


def _find_python(workspace: str, mounts: Sequence[ResolvedMount], given: str | None) -> ProjectPython | Hidden | None:
    """The interpreter of the given environment, or of the workspace's own. One that a link leads out to is none."""
    venv = os.path.realpath(given or os.path.join(workspace, VENV))
    if given is None and not is_below(venv, [workspace]):
        return None
    writable = [workspace, *(mount.source for mount in mounts if mount.writable)]
    shown = [*SYSTEM, *interpreter_dirs(), *(mount.target for mount in mounts)]
    return find_python(venv, writable=writable, shown=shown)


@contextmanager
def _home(
    workspace: str, mounts: Sequence[ResolvedMount], env: Mapping[str, str], git_identity: GitIdentity | None,
    size: int | None,
) -> Iterator[tuple[Sequence[str] | None, Callable[[], None]]]:  # fmt: skip
    """Yield bubblewrap's arguments for HOME and the function that removes it. A failed jail removes it here.

    With a size in bytes it is a tmpfs, else a directory on disk. There is none where the person chose another, by a
    variable or by a mount.
    """
    if "HOME" in env or HOME in (workspace, *(mount.target for mount in mounts)):
        if git_identity is not None:
            raise HandrailError("git_identity needs a HOME of the sandbox's own: leave HOME or git_identity out")
        yield None, lambda: None
        return
    if size is not None:
        if git_identity is not None:
            check_git_identity(git_identity)
        yield private(size), lambda: None
        return
    home = make_home([workspace, *(mount.source for mount in mounts if mount.writable)], git_identity)
    try:
        yield ("--bind", home), lambda: remove_scratch(home)
    except BaseException:
        remove_scratch(home)
        raise


async def _greet(guard: Guard, limits: Limits, *, mounted: bool) -> None:
    """Wait for the guard. Raises Unavailable with advice, or HandrailError for a mount that cannot be made."""
    try:
        await guard.greet(jail=True, limits=limits, roots=["/"])
    except Unavailable as error:
        what = remedy(str(error))
        message = f"{error}: {what}"
        if mounted and re.search(BAD_TARGET, str(error)):
            raise HandrailError(message) from None  # the option is wrong, not this machine
        raise Unavailable(message, retryable=error.retryable, remedy=what) from None


def _report(
    network: str,
    workspace: str,
    base: ProjectPython | Hidden | None,
    mounts: Sequence[ResolvedMount],
    kept: Limited,
    *,
    own_home: bool,
) -> Report:
    """Return the jail's claim; the limits that are not enforced here are listed with their reasons."""
    weaker: dict[Feature, tuple[Standing, str, str]] = kept.weaker()
    notes = [*kept.notes.warnings()]
    facts = ["Commands of one sandbox share its loopback and its /tmp, but not their processes.", *kept.notes.facts()]
    if os.geteuid() == 0:
        facts.append("Commands run as root without any capability, and see /proc read-only.")
    if os.stat(workspace).st_uid != os.geteuid():
        notes.append("The workspace is another user's: commands may do there only what its permissions let others do.")
    if holds_home(workspace):
        notes.append("The workspace holds your whole home directory: commands can read and change all of it, keys too.")
    if holds_temporary(workspace):
        notes.append("The workspace holds the machine's temporary files: commands can change what other programs keep.")
    if isinstance(base, Hidden):
        notes.append(_NOT_SHOWN.format(named=base.named[:200], reason=base.reason))
    if network == "full":
        weaker["network_isolation"] = (
            "absent",
            "network is full, which includes the machine's abstract sockets",
            "leave network at none",
        )
    report = claim("jail", network=network, weaker=weaker, notes=tuple(notes), facts=tuple(facts))
    lasting = (workspace, *(mount.target for mount in mounts))
    passing = (TMP, *([home_inside(workspace, mounts)] if own_home else []))
    return replace(report, writable=may_write(workspace), lasting=lasting, passing=passing)
