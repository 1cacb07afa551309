"""One row for each limit of a sandbox: its feature, what keeps it, how it is attacked, and which check proves it.

A new limit is a field of `Limits`, a name in `Feature`, a row here, and the code of its mechanism. The guard's first
frame, the self-test, the kit, the broken drivers and the command line read the rest from this table.
"""

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from handrail.contract.driver import Feature
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits

Unit = Literal["bytes", "count", "seconds"]
MAX_NUMBER: Final = (1 << 63) - 1
"""The largest number that a limit is set to; a larger one is no limit for any machine."""
_SUFFIXES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit."""

    name: str
    """The field of `Limits`."""
    feature: Feature
    unit: Unit
    mechanism: str
    """The mechanism that keeps the limit in the jail, in a few words."""
    attempts: tuple[tuple[str, str, str], ...]
    """Attacks of the self-test: the name in the guard's program, its argument, and what success means."""
    check: str
    """The sentence of the kit's own check."""
    broken: str
    """The name of the broken driver that this check catches."""
    position: int | None = None
    """The place of the limit in the guard's first frame, counted from 0."""
    alone: bool = False
    """Whether its attack is killed with all around it: it is then a command of its own, below a low limit."""
    least: int = 0
    """The number below which nothing works: a jail with such a limit is refused."""
    option: str = ""
    """The option of the command line, and its key in handrail.toml with underscores; empty for none."""


LIMIT_TABLE: Final = (
    LimitRow(
        "memory", "limit_memory", "bytes", "RLIMIT_DATA and the guard's watch, or a cgroup",
        (("memory", "{memory}", "use more memory than the limit"),),
        "a command cannot use more memory than the limit", "forgets the limit on memory", 4,
        alone=True, least=16 << 20, option="memory",
    ),
    LimitRow(
        "processes", "limit_processes", "count", "RLIMIT_NPROC, or a cgroup for root",
        (("processes", "{processes}", "start more processes than the limit"),),
        "a storm of processes is stopped and its sandbox works on", "forgets the limit on processes", 0,
        least=8, option="processes",
    ),
    LimitRow(
        "cpu", "limit_cpu", "seconds", "RLIMIT_CPU",
        (("cpu", "{cpu}", "raise the limit on cpu time"),),
        "a command that computes for longer than the limit is ended", "forgets the limit on cpu", 3, option="cpu",
    ),
    LimitRow(
        "open_files", "limit_open_files", "count", "RLIMIT_NOFILE",
        (("open-files", "{open_files}", "open more files than the limit"),),
        "a command cannot keep more files open than the limit", "forgets the limit on open_files", 1,
    ),
    LimitRow(
        "file_size", "limit_file_size", "bytes", "RLIMIT_FSIZE",
        (("file-size", "{inside}:{file_size}", "make a larger file than the limit"),),
        "a file cannot grow beyond the limit", "forgets the limit on file_size", 2,
    ),
    LimitRow(
        "tmp", "limit_tmp", "bytes", "sizes and numbers of files of tmpfs",
        (
            ("space", "/tmp:{tmp}", "put more into /tmp than the limit"),
            ("space", "/var/tmp:{tmp}", "put more into /var/tmp than the limit"),
            ("space", "/dev/shm:{tmp}", "put more into /dev/shm than the limit"),
            ("space", "{home}:{tmp}", "put more into HOME than the limit"),
        ),
        "a command cannot put more into /tmp than the limit", "forgets the size of private directories",
        least=64 << 10,
    ),
    LimitRow(
        "workspace", "limit_workspace", "bytes", "size and number of files of a tmpfs",
        (("space", "{workspace}:{workspace_size}", "put more into the workspace than the limit"),),
        "commands cannot put more into the workspace than the limit", "forgets the limit on workspace",
        option="workspace-size",
    ),
)  # fmt: skip
TRIED_TOGETHER: Final = tuple(row for row in LIMIT_TABLE if not row.alone)
"""Limits whose attacks are made by one command."""
ROWS: Final = {row.name: row for row in LIMIT_TABLE}


def numbers_for_guard(limits: Limits, no_limit: int) -> list[int]:
    """The limits that the guard sets, in the order of its first frame."""
    rows = sorted((row.position, row.name) for row in LIMIT_TABLE if row.position is not None)
    return [no_limit if (number := number_of(limits, name)) is None else number for _, name in rows]


def number_of(limits: Limits, name: str) -> int | None:
    """One limit as a whole number that every system call takes; None for no limit."""
    value = getattr(limits, name)
    return None if value is None else min(math.ceil(value), MAX_NUMBER)


def check_least(limits: Limits) -> None:
    """Raises HandrailError for a limit below which nothing works."""
    for row in LIMIT_TABLE:
        number = number_of(limits, row.name)
        if number is not None and number < row.least:
            given, least = (size_text(each) if row.unit == "bytes" else str(each) for each in (number, row.least))
            raise HandrailError(
                f"limits.{row.name} is {given}, and nothing works with less than {least}: give more, or None"
            )


def machine_memory() -> int:
    """Bytes of memory that this machine has, or the container that it is."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # neither file, or the word max
            whole = min(whole, int(Path(path).read_text()))
    return whole


def size_text(size: int) -> str:
    """A number of bytes in the largest unit that keeps it short: 200 MiB, 1.5 GiB."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_SUFFIXES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.4g} {_SUFFIXES[unit]}"
