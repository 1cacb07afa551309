"""The options of drivers: check what `open_sandbox` is given, then what a local driver makes of it."""

import errno
import inspect
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.misuse import expect, nearest, refuse, shown
from handrail.sandbox.checks import environment

COMMON: Final = ("workspace", "limits", "network", "env", "mounts", "git_identity", "virtual_env")
"""Options that every driver takes; the last two are passed on only if they are given."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "workspace": None,
    "limits": Limits(),
    "network": "none",
    "env": None,
    "mounts": [],
}
"""Values of the common options that were not given."""
NETWORKS: Final = "network='none', or network='full' for this machine's own network"
"""Advice on the option `network`, for error messages."""
GitIdentity = tuple[str, str]
"""A name and an email address, for commits."""
MAX_IDENTITY_CHARS: Final = 500
"""Characters of a name or an email address."""
VENV: Final = ".venv"
"""Directory of a project's virtual environment, below the workspace."""
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Directories of programs in every sandbox, for the PATH variable."""


# Given to open_sandbox


def check_given(driver: object, options: dict[str, Any], allow_weaker: object) -> None:
    """Raise HandrailError for a driver or an option of the wrong type; `options` are converted to plain types."""
    _check_driver(driver)
    expect("allow_weaker", allow_weaker, bool, "True or False")
    options["workspace"] = _workspace(options["workspace"])
    expect("limits", options["limits"], Limits, "Limits(memory=512 * 1024**2), or leave it out")
    expect("network", options["network"], str, NETWORKS)
    if options["env"] is not None:
        options["env"] = _env(options["env"])
    options["mounts"] = _mounts(options["mounts"])
    if not isinstance(driver, str):
        ignored = [name for name, value in options.items() if name not in DEFAULTS or value != DEFAULTS[name]]
        if ignored:
            raise HandrailError(
                f"open_sandbox() was given {', '.join(ignored)} together with a driver that is open already: give "
                f"{'it' if len(ignored) == 1 else 'them'} to {type(driver).__name__} itself"
            )


def _check_driver(driver: object) -> None:
    if isinstance(driver, str):
        if "/" in driver or driver.startswith((".", "~")):
            refuse("the driver", driver, f"open_sandbox(workspace={driver!r})")
    elif driver is None or isinstance(driver, type | os.PathLike):
        refuse("the driver", driver, "the name of one, such as 'jail', or an object, or leave it out")


def _workspace(workspace: object) -> str | None:
    if workspace is None:
        return None
    if not isinstance(workspace, str | os.PathLike):
        refuse("workspace", workspace, "the path of a directory, or leave it out for a temporary one")
    path = os.fspath(workspace)
    if not isinstance(path, str) or not path:
        raise HandrailError("the workspace is an empty path: give a directory, or leave it out for a temporary one")
    if path == "~" or path.startswith("~/"):
        refuse("workspace", path, f"os.path.expanduser({path!r}): only a shell expands ~")
    return path


def _env(env: Any) -> dict[str, str]:
    try:
        return environment(env)
    except ValueError as error:
        raise HandrailError(str(error)) from None


def _mounts(mounts: Any) -> list[Mount]:
    if isinstance(mounts, str | os.PathLike | Mount | Mapping) or not isinstance(mounts, Iterable):
        one = f"Mount({os.fspath(mounts)!r})" if isinstance(mounts, str | os.PathLike) else "Mount('/data')"
        refuse("mounts", mounts, f"a list, even of one: [{one}]")
    listed = list(mounts)
    for each in listed:
        if isinstance(each, str | os.PathLike):
            path, _, rest = os.fspath(each).partition(":")
            target = f", {rest.partition(':')[0]!r}" if rest else ""
            refuse("one of the mounts", each, f"Mount({path!r}{target})")
        if isinstance(each, tuple):
            refuse("one of the mounts", each, f"Mount({', '.join(map(shown, each))})")
        expect("one of the mounts", each, Mount, "Mount('/data')")
    return listed


def taken(driver: str, opener: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Select the options that the driver takes; an unknown option with its default value is left out.

    Raises HandrailError for an unknown option with another value, and names the option that is meant.
    """
    known = inspect.signature(opener).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return dict(options)
    for name, value in options.items():
        if name in known or (name in DEFAULTS and value == DEFAULTS[name]):
            continue
        if name in Limits.__dataclass_fields__:
            advice = f"it is a limit: write limits=Limits({name}=…)"
        else:
            advice = nearest(name, {*known, "allow_weaker"})
        raise HandrailError(f"the {driver} driver has no option {name!r}; {advice}")
    return {name: value for name, value in options.items() if name in known}


# Used by local drivers


class ResolvedMount(NamedTuple):
    """A checked mount: `source` is a real path, `target` an absolute one."""

    source: str
    target: str
    writable: bool


def is_below(path: str, directories: Sequence[str]) -> bool:
    """Whether a path is one of the directories, or below one of them, by names alone."""
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in directories)


def check_workspace(workspace: str) -> str:
    """Return the real path of a workspace.

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
    """Whether commands may write in the workspace. Commands have no capabilities, so root needs the permission too."""
    if os.statvfs(workspace).f_flag & os.ST_RDONLY:
        return False
    if os.geteuid() != 0:
        return os.access(workspace, os.W_OK)
    status = os.stat(workspace)
    needed = stat.S_IWUSR if status.st_uid == 0 else stat.S_IWGRP if status.st_gid in os.getgroups() else stat.S_IWOTH
    return bool(status.st_mode & needed)


def check_network(network: str) -> None:
    """Raise HandrailError for anything but none and full."""
    if network not in ("none", "full"):
        raise HandrailError(f"network {network!r} is not known: give none or full")


def check_mounts(mounts: Sequence[Mount]) -> list[ResolvedMount]:
    """Resolve mounts. Raises FileNotFoundError for a missing source, HandrailError for a target that cannot be used."""
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
    """Return the absolute path. Raises HandrailError for a directory that is not a virtual environment."""
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
    """Build the environment of every command: fixed values and the given ones, never a copy of this process's own.

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


def check_git_identity(identity: Any) -> None:
    """Raise HandrailError for anything but two texts that fit on one line of a configuration file."""
    if not isinstance(identity, tuple | list) or len(identity) != 2:
        raise HandrailError(f"git_identity is {identity!r}: give a pair of texts, (name, email)")
    for what, text in zip(("name", "email"), identity, strict=True):
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_IDENTITY_CHARS or not text.isprintable():
            raise HandrailError(
                f"the {what} in git_identity is {text!r}: give one line of text without control characters"
            )
