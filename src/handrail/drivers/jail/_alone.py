"""A jail for one program alone: the system's programs and libraries, no other file, no network, nothing to write."""

import os
import shlex
from functools import partial
from typing import Final

from handrail.drivers.guard.sealed import sealed
from handrail.drivers.jail._bubblewrap import find_bubblewrap
from handrail.drivers.jail._view import system_arguments

PROGRAM_INSIDE: Final = "/run/handrail/program"
MEMORY: Final = 1 << 31
"""Bytes of address space that the program may use."""
_NAMESPACES: Final = (
    "--unshare-user", "--unshare-all", "--new-session", "--die-with-parent", "--hostname", "sandbox",
    "--cap-drop", "ALL", "--clearenv",
)  # fmt: skip


def jailed_alone(program: str) -> str:
    """The path of a program that runs this one in such a jail, with the arguments and the streams that it is given.

    It can be run by the children of this process. Whoever kills it ends the jail, and so does the end of the thread
    that started it. It is a sealed file in memory: what runs outside of the jail cannot be changed by a command.
    Raises Unavailable without bubblewrap.
    """
    real, bwrap = os.path.realpath(program), find_bubblewrap()
    descriptor = sealed(f"{bwrap} for {real}", partial(_launcher, bwrap, real))
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _launcher(bwrap: str, program: str) -> bytes:
    shown = [*system_arguments(), "--ro-bind", program, PROGRAM_INSIDE, "--remount-ro", "/", "--chdir", "/"]
    argv = shlex.join([bwrap, *_NAMESPACES, *shown, "--", PROGRAM_INSIDE])
    lines = ["#!/bin/sh", "ulimit -c 0", f"ulimit -v {MEMORY >> 10}", f'exec {argv} "$@" 2>/dev/null', ""]
    return "\n".join(lines).encode()
