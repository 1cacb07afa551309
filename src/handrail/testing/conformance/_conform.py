"""Run all checks on a driver, several at a time, each in bounded time."""

import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from time import monotonic
from typing import Final

import anyio

from handrail.contract.driver import Feature
from handrail.contract.errors import BrokenDriver, HandrailError, Unavailable
from handrail.sandbox.report import report_of
from handrail.testing.conformance._closing import CLOSING
from handrail.testing.conformance._contents import ATOMIC, RANGES
from handrail.testing.conformance._exec import EXEC
from handrail.testing.conformance._files import FILES
from handrail.testing.conformance._isolation import ENV_WALL, FILE_WALL, NETWORK_WALL, PRIVILEGES, PROCESS_WALL
from handrail.testing.conformance._limits import GROUPS
from handrail.testing.conformance._links import LINKS
from handrail.testing.conformance._streams import OUTPUT, STDIN
from handrail.testing.conformance._trees import TREES
from handrail.testing.conformance.check import Check, NotTried, Seen
from handrail.testing.conformance.fixture import Open, Opener, opened, within
from handrail.testing.conformance.verdict import CheckVerdict, DriverVerdict, summed_up

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for group in (
        FILES, LINKS, ATOMIC, RANGES, EXEC, STDIN, OUTPUT, TREES, CLOSING, FILE_WALL, ENV_WALL, PROCESS_WALL,
        NETWORK_WALL, PRIVILEGES, *GROUPS.values(),
    )
    for check in group
)  # fmt: skip
"""All checks, in the order of the promises."""
WORKERS: Final = 4
"""Number of checks at a time. Most checks wait; each worker opens a driver of its own."""
CHECK_PATIENCE: Final = 10
"""Multiple of the patience after which a check fails, because the driver does not answer."""
STALLS: Final = 4
"""Number of unanswered checks after which the others get less time, so that the kit ends."""
HURRIED_PATIENCE: Final = 3
"""Multiple of the patience for a check after too many unanswered ones."""
PATIENCE: Final = 3.0
"""Seconds to wait for an effect that a good driver has at once."""
OnCheck = Callable[[CheckVerdict], object]


async def conform(
    opener: Opener,
    *,
    only: Collection[Feature | str] | None = None,
    on_check: OnCheck | None = None,
    patience: float = PATIENCE,
    workers: int = WORKERS,
) -> DriverVerdict:
    """Try every promise on a driver, and leave nothing behind.

    Args:
        opener: an async function like those of the entry point group `handrail.drivers`: it takes `workspace`, and
            as many of limits, network, env and mounts as it knows, and returns a Driver.
        only: promises, or names of checks; None for all.
        on_check: called with each CheckVerdict when it is known.
        patience: seconds to wait for an effect that a good driver has at once.
        workers: checks at a time.

    Raises:
        HandrailError: `only` names neither a promise nor a check, the opener fails, or what it opens is not a Driver.
        OSError, Unavailable: the driver cannot be opened here.
    """
    checks, began = list(chosen(only)), monotonic()
    async with opened(opener, patience) as first:
        name, claimed = await _introduced(first)
        run = _Run(iter(checks), claimed, on_check)
        async with anyio.create_task_group() as group:
            group.start_soon(run.work, first)
            for _ in range(min(workers, len(checks)) - 1):
                group.start_soon(run.work_apart, opener, patience)
    return summed_up(name, claimed, (run.found[check.name] for check in checks), monotonic() - began)


async def _introduced(open: Open) -> tuple[str, frozenset[Feature]]:
    """Return the driver's name and the features it claims."""
    seconds = CHECK_PATIENCE * open.patience
    try:
        driver = (await within(seconds, open())).driver
        return report_of(driver).driver, frozenset(driver.features)
    except NotTried as error:
        raise HandrailError(str(error)) from error
    except TimeoutError:
        raise Unavailable(f"the driver did not open and make a directory within {seconds:g} s") from None
    except (HandrailError, OSError, Unavailable):
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise HandrailError(f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})") from error


class _Run:
    """A run of the kit: the checks that are left, and the verdicts so far."""

    def __init__(self, queue: Iterator[Check], claimed: frozenset[Feature], on_check: OnCheck | None) -> None:
        self.found: dict[str, CheckVerdict] = {}
        self._queue, self._claimed, self._on_check = queue, claimed, on_check
        self._stalled = 0

    async def work_apart(self, opener: Opener, patience: float) -> None:
        """Try checks on a driver of this worker's own."""
        async with opened(opener, patience) as open:
            await self.work(open)

    async def work(self, open: Open) -> None:
        """Try the next check until none is left, on a driver that is shared between them."""
        for check in self._queue:
            seconds = (CHECK_PATIENCE if self._stalled < STALLS else HURRIED_PATIENCE) * open.patience
            verdict = await _tried(check, open, self._claimed, seconds)
            self._stalled += bool(verdict.error) and verdict.seconds >= seconds
            await open.end_check(kept=verdict.kept, harmed=verdict.tried and not verdict.kept)
            verdict = replace(verdict, claimed=check.feature in self._claimed)
            self.found[check.name] = verdict
            if self._on_check is not None:
                self._on_check(verdict)


def chosen(only: Collection[Feature | str] | None) -> Iterator[Check]:
    """Return the checks of these promises or names. Raises HandrailError for any other text."""
    known = {check.feature for check in CHECKS} | {check.name for check in CHECKS}
    unknown = [name for name in only or () if name not in known]
    if unknown:
        raise HandrailError(f"there is no promise and no check called {unknown[0]!r}")
    for check in CHECKS:
        if only is None or check.feature in only or check.name in only:
            yield check


async def _run(check: Check, open: Open) -> Seen:
    return await check.run(open)


async def _tried(check: Check, open: Open, claimed: frozenset[Feature], seconds: float) -> CheckVerdict:
    began = monotonic()
    missing = check.needs - claimed
    if missing:
        return CheckVerdict(check, not_tried=f"the driver does not claim {', '.join(sorted(missing))}")
    try:
        seen = await within(seconds, _run(check, open))
        return CheckVerdict(check, seen, seconds=monotonic() - began)
    except Exception as error:  # noqa: BLE001 - whatever a driver raises where it must not breaks its promise
        if reason := _not_tried(error):
            return CheckVerdict(check, not_tried=reason, seconds=monotonic() - began)
        while isinstance(error, ExceptionGroup):  # of a check that does two things at once
            error = error.exceptions[0]
        told = str(error) or (f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else "no message")
        return CheckVerdict(check, error=f"{type(error).__name__}: {told}", seconds=monotonic() - began)


def _not_tried(error: BaseException) -> str:
    """Return the reason why a check was not made, from the check, its tasks or the driver; empty if it was made."""
    if isinstance(error, NotTried):
        return str(error)
    if isinstance(error, BrokenDriver) and isinstance(error.__cause__, NotTried):
        return str(error.__cause__)
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((reason for each in inner if (reason := _not_tried(each))), "")
