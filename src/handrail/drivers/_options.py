"""Check the options that every local driver takes (workspace, network, mounts), and build the environment."""

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError

VENV: Final = ".venv"
"""Where a project has its virtual environment, below the workspace."""
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ResolvedMount(NamedTuple):
    """A mount that was checked: `source` is a real path, `target` an absolute one."""

    source: str
    target: str
    writable: bool


def is_below(path: str, directories: Sequence[str]) -> bool:
    """Whether a path is one of these, or below one of them, by their names alone."""
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in directories)


def check_workspace(workspace: str) -> str:
    """The real path of a workspace.

    Raises FileNotFoundError, NotADirectoryError or PermissionError; HandrailError for the root directory.
    """
    real = os.path.realpath(workspace)
    try:
        mode = os.stat(real).st_mode
    except OSError as error:
        advice = "; create it first" if error.errno == errno.ENOENT else ""
        raise OSError(error.errno, f"the workspace cannot be used: {error.strerror}{advice}", workspace) from None
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, "the workspace is not a directory", workspace)
    if real == "/":
        raise HandrailError("the workspace cannot be /: choose a directory below it")
    return real


def may_write(workspace: str) -> bool:
    """Whether commands may write there: they have no capability, so root too needs the permission."""
    if os.statvfs(workspace).f_flag & os.ST_RDONLY:
        return False
    if os.geteuid() != 0:
        return os.access(workspace, os.W_OK)
    status = os.stat(workspace)
    needed = stat.S_IWUSR if status.st_uid == 0 else stat.S_IWGRP if status.st_gid in os.getgroups() else stat.S_IWOTH
    return bool(status.st_mode & needed)


def check_network(network: str) -> None:
    """Raises HandrailError for anything but none and full."""
    if network not in ("none", "full"):
        raise HandrailError(f"network {network!r} is not known: give none or full")


def check_mounts(mounts: Sequence[Mount]) -> list[ResolvedMount]:
    """Raises FileNotFoundError for a source that does not exist, HandrailError for a target that cannot be used."""
    resolved = []
    for mount in mounts:
        source = os.path.realpath(mount.source)
        if not os.path.exists(source):
            raise FileNotFoundError(errno.ENOENT, "the source of a mount does not exist", mount.source)
        target = os.path.normpath(mount.target if mount.target is not None else os.path.abspath(mount.source))
        target = f"/{target.lstrip('/')}" if target.startswith("/") else target  # normpath keeps two leading slashes
        if not target.startswith("/") or target == "/":
            raise HandrailError(f"a mount cannot appear at {target!r}: give an absolute path that is not /")
        resolved.append(ResolvedMount(source, target, mount.writable))
    return resolved


def check_virtual_env(path: str | None) -> str | None:
    """Its absolute path. Raises HandrailError for a directory that is not a virtual environment."""
    if path is None or os.path.isfile(os.path.join(path, "pyvenv.cfg")):
        return None if path is None else os.path.abspath(path)
    raise HandrailError(f"virtual_env {path!r} is not a virtual environment: it has no pyvenv.cfg")


def fixed_env(
    workspace: str,
    tmp: str,
    given: Mapping[str, str],
    *,
    home: str,
    venv: str | None = None,
    bin_dirs: Sequence[str] = (),
) -> dict[str, str]:
    """The environment of every command: fixed values and what was given, never a copy of this process's own.

    The programs of the given virtual environment, or else of the workspace's, come first, even if a command makes it
    later.
    """
    own = f"{given.get('HOME', home)}/.local/bin"
    env = {
        "PATH": ":".join([f"{venv or f'{workspace}/{VENV}'}/bin", *bin_dirs, own, PATH]),
        "HOME": home,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": tmp,
        "PYTHONUNBUFFERED": "1",  # what a program printed is seen at once, and kept when it is killed
    }
    return env | dict(given)
