"""What each driver claims, feature by feature, with the reason wherever a promise is not enforced, in one place."""

from collections.abc import Mapping
from typing import Final, get_args

from handrail.contract.driver import Feature, Promise, Report, Standing

ALWAYS: Final[tuple[Feature, ...]] = ("files", "atomic_write", "range_read", "exec", "stdin", "live_output")
USE_JAIL: Final = "use the jail driver"
CPU_NOTE: Final = "The limit on cpu time counts each process by itself, not a command with all that it starts."
Weak = Mapping[Feature, tuple[Standing, str]]

HOST: Final[Weak] = {
    "file_isolation": ("absent", f"commands see every file this user sees; {USE_JAIL}"),
    "process_isolation": ("absent", f"commands see and can signal this user's other processes; {USE_JAIL}"),
    "network_isolation": ("absent", f"commands use this machine's network; {USE_JAIL}"),
    "no_privileges": ("advisory", f"capabilities are dropped, but no system call is filtered; {USE_JAIL}"),
    "limit_memory": ("absent", "needs a cgroup"),
    "limit_processes": ("absent", f"the kernel counts all of this user's processes together; {USE_JAIL}"),
    "limit_tmp": ("absent", f"temporary files lie on this machine's own disk; {USE_JAIL}"),
    "limit_workspace": ("absent", "the workspace is an ordinary directory"),
}  # fmt: skip
JAIL: Final[Weak] = {
    "limit_memory": ("absent", "needs a cgroup"),
    "limit_workspace": ("advisory", "the workspace is an ordinary directory of this machine"),
}
HOST_NOTES: Final = (
    "No isolation: commands run as this user, on this machine.",
    "Advisory: chains of processes that each fork and exit at once, and commands that attack the guard, may survive.",
    CPU_NOTE,
)


def host_report() -> Report:
    """The host driver: nothing is isolated, and it says so."""
    return _report("host", "full", HOST, HOST_NOTES)


def jail_report(
    *, network: str, root: bool, foreign: bool = False, home: bool = False, temporary: bool = False
) -> Report:
    """The jail: what needs a cgroup, or an ordinary user, is named."""
    weak = dict(JAIL)
    notes = ["Commands of one sandbox share its loopback and its /tmp; nothing else of it is shared.", CPU_NOTE]
    if root:
        weak["limit_processes"] = ("advisory", "the kernel does not count root's processes; run as an ordinary user")
        notes.append("Commands run as root without any capability, and see /proc read-only.")
    if foreign:
        notes.append("The workspace is another user's: commands may do there only what its permissions let others do.")
    if home:
        notes.append("The workspace holds your whole home directory: commands can read and change all of it, keys too.")
    if temporary:
        notes.append("The workspace holds the machine's temporary files: commands can change what other programs keep.")
    if network == "full":
        weak["network_isolation"] = ("absent", "network is full: it and the machine's abstract sockets are in reach")
    return _report("jail", network, weak, tuple(notes))


def _report(driver: str, network: str, weak: Weak, notes: tuple[str, ...]) -> Report:
    enforced: tuple[Standing, str] = ("enforced", "")
    features: tuple[Feature, ...] = get_args(Feature)
    promises = tuple(Promise(feature, *weak.get(feature, enforced)) for feature in features)
    return Report(driver, promises, network, notes)
