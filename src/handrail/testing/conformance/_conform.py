"""Put a driver through the checks: several at a time, each in bounded time, and say what became of each."""

from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import Final

import anyio

from handrail.contract.driver import Feature
from handrail.contract.errors import BrokenDriver, HandrailError
from handrail.sandbox.report import check_driver, report_of
from handrail.testing.conformance.check import Check, NotTried
from handrail.testing.conformance.checks import CHECKS
from handrail.testing.conformance.site import Open, Opener, opened
from handrail.testing.conformance.verdict import CheckVerdict, Verdict, judge

WORKERS: Final = 4
"""Checks at a time. Most of them wait; each worker opens a driver of its own."""
CHECK_SECONDS: Final = 30.0
"""A check that takes longer does not hold: something in the driver does not answer."""
PATIENCE: Final = 3.0
"""Seconds to wait for what a driver that keeps its promise does at once."""
OnCheck = Callable[[CheckVerdict], object]


async def conform(
    opener: Opener,
    *,
    only: Collection[Feature | str] | None = None,
    on_check: OnCheck | None = None,
    patience: float = PATIENCE,
    workers: int = WORKERS,
) -> Verdict:
    """Try every promise on a driver; leaves nothing behind.

    Args:
        opener: an async function like those of the entry point group `handrail.drivers`: it takes `workspace`, and
            as many of limits, network, env and mounts as it knows, and returns a Driver.
        only: promises, or names of checks; None for all.
        on_check: called with each CheckVerdict when it is known.
        patience: seconds to wait for what a driver that keeps its promise does at once.
        workers: checks at a time.

    Raises:
        HandrailError: `only` names neither a promise nor a check, or what was opened is not a Driver.
        OSError, Unavailable: the driver cannot be opened here.
    """
    checks, began = list(chosen(only)), monotonic()
    async with opened(opener, patience) as open:
        driver = (await open()).driver
        check_driver(driver)
        name, claimed = report_of(driver).driver, frozenset(driver.features)
    found: dict[str, CheckVerdict] = {}

    def tell(verdict: CheckVerdict) -> None:
        found[verdict.check.name] = verdict
        if on_check is not None:
            on_check(verdict)

    queue = iter(checks)
    async with anyio.create_task_group() as group:
        for _ in range(min(workers, len(checks))):
            group.start_soon(_work, queue, opener, patience, claimed, tell)
    return judge(name, claimed, (found[check.name] for check in checks), monotonic() - began)


async def _work(
    queue: Iterator[Check], opener: Opener, patience: float, claimed: frozenset[Feature], tell: OnCheck
) -> None:
    """Try the next check until none is left, on a driver that is shared between them."""
    async with opened(opener, patience) as open:
        for check in queue:
            verdict = await _tried(check, open, claimed)
            await open.end_check(kept=verdict.kept, harmed=verdict.tried and not verdict.kept)
            tell(verdict)


def chosen(only: Collection[Feature | str] | None) -> Iterator[Check]:
    """The checks of these promises, or of these names. Raises HandrailError for what is neither."""
    known = {check.feature for check in CHECKS} | {check.name for check in CHECKS}
    unknown = [name for name in only or () if name not in known]
    if unknown:
        raise HandrailError(f"there is no promise and no check called {unknown[0]!r}")
    for check in CHECKS:
        if only is None or check.feature in only or check.name in only:
            yield check


async def _tried(check: Check, open: Open, claimed: frozenset[Feature]) -> CheckVerdict:
    began = monotonic()
    missing = check.needs - claimed
    if missing:
        return CheckVerdict(check, not_tried=f"the driver does not claim {', '.join(sorted(missing))}")
    try:
        with anyio.fail_after(CHECK_SECONDS):
            seen = await check.run(open)
        return CheckVerdict(check, seen, seconds=monotonic() - began)
    except Exception as error:  # noqa: BLE001 - whatever a driver raises where it must not breaks its promise
        if reason := _not_tried(error):
            return CheckVerdict(check, not_tried=reason, seconds=monotonic() - began)
        told = str(error) or f"no answer within {CHECK_SECONDS:g} s"
        return CheckVerdict(check, error=f"{type(error).__name__}: {told}", seconds=monotonic() - began)


def _not_tried(error: BaseException) -> str:
    """Why a check was not made, said by the check, one of its tasks or the driver; empty if it was made."""
    if isinstance(error, NotTried):
        return str(error)
    if isinstance(error, BrokenDriver) and isinstance(error.__cause__, NotTried):
        return str(error.__cause__)
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((reason for each in inner if (reason := _not_tried(each))), "")
