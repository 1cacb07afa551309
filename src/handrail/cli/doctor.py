"""`handrail doctor`: what each driver enforces on this machine, found by trying, and what is missing for the rest."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from handrail.cli._app import app
from handrail.contract.driver import Driver, Feature, Promise
from handrail.lazy import Lazy

if TYPE_CHECKING:
    import anyio as _anyio

    from handrail.drivers import open as _open
    from handrail.drivers import selftest as _selftest
    from handrail.sandbox import report as _report_room
else:
    _anyio = Lazy("anyio")
    _open = Lazy("handrail.drivers.open")
    _selftest = Lazy("handrail.drivers.selftest")
    _report_room = Lazy("handrail.sandbox.report")

FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)
LISTED_FIRST: Final = ("jail", "host", "memory")
"""The built-in drivers, the strongest first."""
STRONGEST: Final = "jail"
OPENING_SECONDS: Final = 60.0
NOT_TRIED: Final = "The driver claims this; it was not tried here."


@app.command()
def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False) -> None:
    """Tell what each sandbox driver enforces on this machine, found by trying."""
    reports = _anyio.run(examine)
    print(as_json(reports) if json else render(reports))


@dataclass(frozen=True, slots=True)
class DriverReport:
    """One driver on this machine: every promise, or why it cannot run."""

    name: str
    works: bool
    promises: tuple[Promise, ...]
    tried: bool = False
    """Whether the promises were attacked from inside; otherwise the driver only claims them."""
    problem: str = ""
    """Why it cannot run here, and what to install or set."""
    notes: tuple[str, ...] = ()


async def examine() -> list[DriverReport]:
    """Open every known driver once, on an empty directory, and close it. Leaves nothing behind; never raises."""
    known = _open.known_drivers()
    names = [*(name for name in LISTED_FIRST if name in known), *sorted(set(known) - set(LISTED_FIRST))]
    return [await _examine(name, known[name]) for name in names]


async def _examine(name: str, opener: "_open.Opener | str") -> DriverReport:
    if isinstance(opener, str):
        return _broken(name, opener)
    try:
        with _anyio.fail_after(OPENING_SECONDS):
            async with _selftest.tested_alone(name, opener) as driver:
                return _report(name, driver)
    except Exception as error:  # noqa: BLE001 - a broken driver must not hide the others
        return _broken(name, str(error) or type(error).__name__)


def _broken(name: str, problem: str) -> DriverReport:
    promises = tuple(Promise(feature, "absent", "it cannot run here") for feature in FEATURES)
    return DriverReport(name, False, promises, problem=problem)


def _report(name: str, driver: Driver) -> DriverReport:
    report = _report_room.report_of(driver)
    listed = {promise.feature: promise for promise in report.promises}
    promises = tuple(listed.get(it, Promise(it, "absent", "it does not claim this")) for it in FEATURES)
    tried = hasattr(driver, "lost")
    return DriverReport(name, True, promises, tried, notes=report.notes if tried else (*report.notes, NOT_TRIED))


def as_json(reports: Sequence[DriverReport]) -> str:
    """The reports as JSON, for programs."""
    return json.dumps({"auto": _auto(reports), "drivers": [asdict(report) for report in reports]}, indent=2)


def render(reports: Sequence[DriverReport]) -> str:
    """The reports as a table, the reasons for what is not enforced, and the driver that `auto` takes, for people."""
    parts = [_table(reports), *(_reasons(report) for report in reports)]
    chosen = _auto(reports)
    nothing = "auto takes nothing here; with allow_weaker=True it takes host, without isolation."
    return "\n\n".join([*parts, f"auto takes {chosen}." if chosen else nothing])


def _auto(reports: Sequence[DriverReport]) -> str | None:
    """The driver that `auto` takes: the jail, unless one of its walls is missing."""
    for report in reports:
        walls = {promise.feature for promise in report.promises if promise.standing == "enforced"}
        if report.name == STRONGEST and report.works and walls >= _open.WALLS:
            return report.name
    return None


def _table(reports: Sequence[DriverReport]) -> str:
    lines = [("promise", *(report.name for report in reports))]
    for index, feature in enumerate(FEATURES):
        lines.append((feature, *(_standing(report, index) for report in reports)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(row.rstrip() for row in rows)


def _standing(report: DriverReport, index: int) -> str:
    return report.promises[index].standing if report.works else "-"


def _reasons(report: DriverReport) -> str:
    if not report.works:
        return f"{report.name} cannot run here\n  {report.problem}"
    weak: dict[str, list[str]] = {}
    for it in report.promises:
        if it.standing != "enforced":
            weak.setdefault(f"{it.standing}: {it.reason}", []).append(it.feature)
    lines = (f"  {', '.join(features)}: {reason}" for reason, features in weak.items())
    return "\n".join([report.name, *(f"  {note}" for note in report.notes), *lines])
