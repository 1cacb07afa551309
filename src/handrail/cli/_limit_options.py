"""The limits of a sandbox on the command line and in handrail.toml: sizes with a unit, numbers, or `none`."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.drivers.limit_table import LIMIT_TABLE, Unit, machine_memory

NONE: Final = "none"
OPTIONS: Final = {row.option.replace("-", "_"): row for row in LIMIT_TABLE if row.option}
"""Rows of the limits that have an option, by the option's name with underscores, as in handrail.toml."""
WRITE: Final[Mapping[Unit, str]] = {
    "bytes": "a size with a unit, such as 512M or 2G, or none",
    "count": "a whole number above 0, such as 256, or none",
    "seconds": "a number of seconds above 0, such as 60, or none",
}
LOCAL: Final = frozenset({"auto", "jail", "host"})
"""Drivers of this machine: they are given its memory as a limit where the person set none."""
DEFAULT: Final = Limits()
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}

Memory = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", help="What all commands together may use, such as 2G, or none; where a model works "
        "three quarters of this machine's memory unless set.",
    ),
]  # fmt: skip
Processes = Annotated[
    str | None,
    typer.Option("--processes", metavar="NUMBER", help="How many processes may run at once, or none; 512 unless set."),
]
WorkspaceSize = Annotated[
    str | None,
    typer.Option(
        "--workspace-size", metavar="SIZE", help="What fits into a workspace of the sandbox's own, such as 1G, or none."
    ),
]
Cpu = Annotated[
    str | None, typer.Option("--cpu", metavar="SECONDS", help="How long each process may compute, or none.")
]


def read_limit(name: str, text: str, where: str = "") -> float | None:
    """One limit; None for no limit. Raises HandrailError, saying what to write."""
    row, plain = OPTIONS[name], text.strip()
    if plain.lower() == NONE:
        return None
    number = _size(plain) if row.unit == "bytes" else float(plain) if _NUMBER.fullmatch(plain) else math.nan
    whole = row.unit == "seconds" or number == number // 1
    if not (0 < number < math.inf) or not whole:
        raise HandrailError(f"{where or f'--{row.option}'} {text!r} cannot be read: write {WRITE[row.unit]}")
    return number if row.unit == "seconds" else int(number)


def _size(text: str) -> float:
    match = _SIZE.fullmatch(text)
    return math.nan if match is None else float(int(float(match[1]) * 1024 ** _POWERS[match[2].upper()]))


def read_limits(given: Mapping[str, str | None]) -> dict[str, Limits]:
    """The option `limits` of a sandbox, if a person set one. Raises HandrailError, saying what to write."""
    values = {OPTIONS[name].name: read_limit(name, text) for name, text in given.items() if text is not None}
    return {"limits": Limits(**values)} if values else {}  # type: ignore[arg-type]


def memory_for_model(memory: str | None, driver: str) -> str | None:
    """The person's own limit on memory; where a model works and they set none, three quarters of this machine's."""
    if memory is not None or driver not in LOCAL:
        return memory
    return f"{machine_memory() * 3 // 4 >> 20}M"


def lowers(name: str, text: str, now: str | None) -> bool:
    """Whether a limit allows less than the one that holds now; None is the default. Raises HandrailError."""
    value = read_limit(name, text, name)
    held = read_limit(name, now) if now is not None else getattr(DEFAULT, OPTIONS[name].name)
    if name == "memory" and now is None:
        held = machine_memory() * 3 // 4
    return value is not None and (held is None or value < held)
