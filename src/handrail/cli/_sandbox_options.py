"""Options of a sandbox on the command line: mounts, variables, the person's environment and name."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError

Mounts = Annotated[
    list[str] | None,
    typer.Option(
        "--mount",
        metavar="SOURCE[:TARGET][:rw]",
        help="Show a directory or file of this machine in the sandbox, read-only unless :rw; may be repeated.",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Set an environment variable in the sandbox, or pass on the one set here; may be repeated.",
    ),
]
HOME: Final = "/home/sandbox"
VENV: Final = ".venv"
CONFIGURATION: Final = "pyvenv.cfg"
GIT_WAIT: Final = 5.0
"""Seconds for git to tell who the person is."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WRITABLE: Final = {"rw": True, "ro": False}


def inside(workspace: str, mounts: Sequence[str] | None, env: Sequence[str] | None) -> dict[str, Any]:
    """The options of `open_sandbox` for what the person typed. Raises HandrailError, saying what to type."""
    options: dict[str, Any] = {"mounts": [read_mount(each) for each in mounts or ()]}
    options["env"] = variables = dict(map(read_variable, env or ()))
    own_home = "HOME" not in variables and not any(mount.target == HOME for mount in options["mounts"])
    identity = git_identity() if own_home else None
    active = active_environment(workspace)
    return (
        options
        | ({} if identity is None else {"git_identity": identity})
        | ({} if active is None else {"virtual_env": active})
    )


def active_environment(workspace: str) -> str | None:
    """The active virtual environment, unless the workspace has its own, or it is only where Handrail is installed."""
    active = os.environ.get("VIRTUAL_ENV", "")
    if not os.path.isfile(os.path.join(active, CONFIGURATION)) or not os.path.isabs(active):
        return None
    own = os.path.lexists(os.path.join(workspace, VENV, CONFIGURATION))
    return None if own or os.path.realpath(active) == os.path.realpath(sys.prefix) else active


def git_identity() -> tuple[str, str] | None:
    """The person's name and email address in their own git configuration; None unless it has both."""
    asks = ["git", "config", "--global", "--null", "--get-regexp", r"^user\.(name|email)$"]
    try:
        answer = subprocess.run(asks, capture_output=True, text=True, timeout=GIT_WAIT, check=False, cwd="/").stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = dict(entry.partition("\n")[::2] for entry in answer.split("\0"))
    name, email = found.get("user.name", ""), found.get("user.email", "")
    usable = all(text.strip() and text.isprintable() for text in (name, email))
    return (name, email) if usable else None


def read_mount(text: str) -> Mount:
    """`SOURCE[:TARGET][:rw]`. A relative source starts at the current directory."""
    parts = text.split(":")
    writable = _WRITABLE[parts.pop()] if len(parts) > 1 and parts[-1] in _WRITABLE else False
    if len(parts) > 2 or not all(parts):
        raise HandrailError(
            f"--mount {text!r} cannot be read: write SOURCE, SOURCE:TARGET, SOURCE:rw or SOURCE:TARGET:rw; "
            "a path with a colon cannot be mounted this way"
        )
    source, target = parts[0], parts[1] if len(parts) == 2 else None
    if target is not None and not target.startswith("/"):
        raise HandrailError(f"--mount {text!r}: the target {target!r} is not an absolute path; write one, or :rw")
    return Mount(os.path.abspath(os.path.expanduser(source)), target, writable)


def read_variable(text: str) -> tuple[str, str]:
    """`NAME=VALUE`, or `NAME` for the value that it has here."""
    name, given, value = text.partition("=")
    if not name or "\0" in text:
        raise HandrailError(f"--env {text!r} cannot be read: write NAME=VALUE, or NAME to pass on the one set here")
    if not _NAME.fullmatch(name):
        raise HandrailError(f"--env {text!r}: {name!r} cannot be a variable's name; write NAME=VALUE, such as 'A=B C'")
    if not given and name not in os.environ:
        raise HandrailError(f"--env {name}: it is not set here; write --env {name}=VALUE")
    return name, value if given else os.environ[name]
