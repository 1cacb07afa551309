"""Attack the limits that are only proved by reaching them, in a second sandbox whose limits are low.

Reaching the person's own limit could fill the machine, and who is killed for memory is killed with its whole command.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from handrail.contract.driver import Command, Driver, Feature
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.attempts import NotAttempted
from handrail.drivers.limit_table import LIMIT_TABLE, ROWS, LimitRow

LOW: Final = {"memory": 32 << 20, "processes": 24}
"""Low limits that are reached in a moment: memory in bytes, processes as a count."""
UNTRIED: Final = "{}: no such limit is set, so it was not attacked."


def needs_proof(row: LimitRow, limits: Limits) -> bool:
    """Whether a limit is set that only a second sandbox proves. The kernel counts processes of all users but root."""
    return row.name in LOW and getattr(limits, row.name) is not None and (row.alone or os.geteuid() == 0)


def cannot_be_tried(limits: Limits) -> frozenset[Feature]:
    """Features whose limit is not set, and which no command can set for itself to see whether it holds."""
    names = {"memory", "workspace"} | ({"processes"} if os.geteuid() == 0 else set())
    return frozenset(ROWS[name].feature for name in names if getattr(limits, name) is None)


def untried(driver: GuardedDriver, limits: Limits) -> tuple[str, ...]:
    """Facts about limits that are claimed and were not attacked."""
    return tuple(UNTRIED.format(name) for name in sorted(cannot_be_tried(limits) & driver.report.features))


async def broken_limits(
    driver: GuardedDriver, opener: Callable[..., Awaitable[Driver]], options: Mapping[str, Any]
) -> list[tuple[LimitRow, str]]:
    """The limits that a command could exceed, and what it did. Raises NotAttempted, OSError and Unavailable."""
    limits: Limits = options.get("limits") or Limits()
    rows = [row for row in LIMIT_TABLE if row.feature in driver.report.features and needs_proof(row, limits)]
    if not rows:
        return []
    low = replace(limits, **{row.name: LOW[row.name] for row in rows})
    proof = await opener(**{**options, "limits": low})
    try:
        return [(row, meaning) for row in rows for meaning in await _exceeded(proof, row)]
    finally:
        await proof.close()


async def _exceeded(proof: Driver, row: LimitRow) -> list[str]:
    """List what a command could do beyond the limit. A command that was killed whole could do nothing."""
    program = str(getattr(proof, "program", ""))
    reached = []
    for name, _, meaning in row.attempts:
        process = await proof.start(Command(argv=(program, "--attempt", name, str(LOW[row.name])), cwd="/"))
        printed = b"".join([chunk.data async for chunk in process.output()])
        await process.wait()
        if not printed.startswith(b"STARTED\n"):
            raise NotAttempted(f"the attempt on {row.feature} did not run: {printed[:200]!r}")
        if f"{name}\treached".encode() in printed:
            reached.append(meaning)
    return reached
