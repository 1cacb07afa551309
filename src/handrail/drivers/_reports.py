"""Reports of the local drivers: what each claims before a self-test, and why the rest is not enforced."""

from collections.abc import Mapping
from typing import Final, get_args

from handrail.contract.driver import Feature, Guarantee, Report, Standing

CPU_NOTE: Final = "The limit on cpu time counts each process by itself, not a command with everything it starts."
NotEnforced = Mapping[Feature, tuple[Standing, str] | tuple[Standing, str, str]]
"""Standing, reason and, if there is one, remedy of each feature that is not enforced."""


def claim(
    driver: str, *, network: str, weaker: NotEnforced, notes: tuple[str, ...], facts: tuple[str, ...] = ()
) -> Report:
    """Make a report that claims every feature as enforced except `weaker`, with their reasons."""
    enforced: tuple[Standing, str] = ("enforced", "")
    features: tuple[Feature, ...] = get_args(Feature)
    guarantees = tuple(Guarantee(feature, *weaker.get(feature, enforced)) for feature in features)
    return Report(driver, guarantees, network, notes, (*facts, CPU_NOTE))


USE_JAIL: Final = "use the jail driver"
NEEDS_JAIL: Final = "needs the jail, which needs Linux"
NO_ISOLATION: Final = "No isolation: commands run as this user, on this machine."
_OPEN: Final[Mapping[Feature, str]] = {
    "file_isolation": "commands see every file this user sees",
    "process_isolation": "commands see and can signal this user's other processes",
    "network_isolation": "commands use this machine's network",
    "limit_tmp": "temporary files are on this machine's own disk",
}
"""Features that no driver without isolation has, and why."""
_WORKSPACE: Final[tuple[Standing, str]] = ("absent", "the workspace is an ordinary directory")


def host_report() -> Report:
    """Return the claim of the host driver: commands are under a guard, and nothing is isolated."""
    weaker: NotEnforced = {
        **{feature: ("absent", reason, USE_JAIL) for feature, reason in _OPEN.items()},
        "limit_processes": ("absent", "the kernel counts all of this user's processes together", USE_JAIL),
        "no_privileges": ("advisory", "capabilities are dropped, but no system call is filtered", USE_JAIL),
        "limit_memory": (
            "advisory",
            "the guard's watch keeps it, and commands on this machine can evade it",
            USE_JAIL,
        ),
        "limit_workspace": _WORKSPACE,
    }
    notes = (
        NO_ISOLATION,
        (
            "Advisory: chains of processes that each fork and exit at once, and commands that attack the guard, "
            "may survive."
        ),
    )
    return claim("host", network="full", weaker=weaker, notes=notes)


def posix_report() -> Report:
    """Return the claim of the host driver where there is no guard: process groups are killed, not trees."""
    group = "a command's process group is killed; a process that leaves it, as by setsid, lives on"
    weaker: NotEnforced = {
        **{feature: ("absent", f"{reason}; {NEEDS_JAIL}") for feature, reason in _OPEN.items()},
        "tree_kill": ("advisory", group),
        "limit_processes": ("absent", f"the system counts all of this user's processes together; {NEEDS_JAIL}"),
        "no_privileges": ("absent", f"commands have every right of this user; {NEEDS_JAIL}"),
        "limit_memory": ("absent", "needs a cgroup, which needs Linux"),
        "limit_workspace": _WORKSPACE,
    }
    notes = (
        NO_ISOLATION,
        (
            "There is no guard here: commands run in process groups, and a process that leaves its group outlives its "
            "command."
        ),
        (
            "File operations check where links lead before they act: a link that is swapped meanwhile can lead them "
            "outside."
        ),
        "What is reported as enforced is claimed: the self-test needs the guard, and was not made here.",
    )
    return claim("host", network="full", weaker=weaker, notes=notes)
