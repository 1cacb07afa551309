"""What each local driver claims, feature by feature, with the reason where a promise is not enforced."""

from collections.abc import Mapping
from typing import Final, get_args

from handrail.contract.driver import Feature, Promise, Report, Standing

USE_JAIL: Final = "use the jail driver"
CPU_NOTE: Final = "The limit on cpu time counts each process by itself, not a command with everything it starts."
NotEnforced = Mapping[Feature, tuple[Standing, str]]

HOST: Final[NotEnforced] = {
    "file_isolation": ("absent", f"commands see every file this user sees; {USE_JAIL}"),
    "process_isolation": ("absent", f"commands see and can signal this user's other processes; {USE_JAIL}"),
    "network_isolation": ("absent", f"commands use this machine's network; {USE_JAIL}"),
    "no_privileges": ("advisory", f"capabilities are dropped, but no system call is filtered; {USE_JAIL}"),
    "limit_memory": ("absent", "needs a cgroup"),
    "limit_processes": ("absent", f"the kernel counts all of this user's processes together; {USE_JAIL}"),
    "limit_tmp": ("absent", f"temporary files are on this machine's own disk; {USE_JAIL}"),
    "limit_workspace": ("absent", "the workspace is an ordinary directory"),
}  # fmt: skip
JAIL: Final[NotEnforced] = {
    "limit_memory": ("absent", "needs a cgroup"),
    "limit_workspace": ("advisory", "the workspace is an ordinary directory of this machine"),
}
HOST_NOTES: Final = (
    "No isolation: commands run as this user, on this machine.",
    "Advisory: chains of processes that each fork and exit at once, and commands that attack the guard, may survive.",
    CPU_NOTE,
)


def host_report() -> Report:
    """The host driver's claims: it isolates nothing."""
    return _report("host", "full", HOST, HOST_NOTES)


def jail_report(
    *, network: str, root: bool, foreign: bool = False, home: bool = False, temporary: bool = False
) -> Report:
    """The jail's claims; what needs a cgroup, or an ordinary user, is named."""
    weaker = dict(JAIL)
    notes = ["Commands of one sandbox share its loopback and its /tmp, but not their processes.", CPU_NOTE]
    if root:
        weaker["limit_processes"] = ("advisory", "the kernel does not count root's processes; run as an ordinary user")
        notes.append("Commands run as root without any capability, and see /proc read-only.")
    if foreign:
        notes.append("The workspace is another user's: commands may do there only what its permissions let others do.")
    if home:
        notes.append("The workspace holds your whole home directory: commands can read and change all of it, keys too.")
    if temporary:
        notes.append("The workspace holds the machine's temporary files: commands can change what other programs keep.")
    if network == "full":
        weaker["network_isolation"] = ("absent", "network is full, which includes the machine's abstract sockets")
    return _report("jail", network, weaker, tuple(notes))


def _report(driver: str, network: str, weaker: NotEnforced, notes: tuple[str, ...]) -> Report:
    enforced: tuple[Standing, str] = ("enforced", "")
    features: tuple[Feature, ...] = get_args(Feature)
    promises = tuple(Promise(feature, *weaker.get(feature, enforced)) for feature in features)
    return Report(driver, promises, network, notes)
