"""`handrail doctor`: what each driver enforces on this machine, found by trying, and what is missing for the rest."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from handrail.cli._app import Command, new_app, or_exit
from handrail.cli._signals import run_loop
from handrail.contract.driver import Driver, Feature, Guarantee, Standing
from handrail.lazy import Lazy

if TYPE_CHECKING:
    import anyio as _anyio

    from handrail.drivers import open as _open
    from handrail.drivers import selftest as _selftest
    from handrail.policy import approval as _approval
    from handrail.sandbox import report as _report_room
else:
    _anyio = Lazy("anyio")
    _open = Lazy("handrail.drivers.open")
    _selftest = Lazy("handrail.drivers.selftest")
    _approval = Lazy("handrail.policy.approval")
    _report_room = Lazy("handrail.sandbox.report")

FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)
STRONGEST: Final = "jail"
OPENING_SECONDS: Final = 60.0
REINSTALL: Final = "install the driver's package again, or remove it"
NOT_TRIED: Final = "The driver claims this; it was not tried here."


app = new_app()


@app.command(cls=Command)
def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False) -> None:
    """Tell what each sandbox driver enforces on this machine, found by trying.

    Exits with 1 if no driver here enforces the walls that Handrail asks for.
    """
    raise typer.Exit(or_exit(lambda: tell(json)))


def tell(json: bool) -> int:
    """Try every driver, showing progress to a person, and print the reports. Returns the code to exit with."""
    reports = run_loop(partial(examine, _show_progress if sys.stderr.isatty() else None))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(as_json(reports) if json else _approval.visible(render(reports, width)), flush=True)
    return 0 if any(map(_enforces, reports)) else 1


def _show_progress(text: str) -> None:
    print(_approval.visible(text, lines=False), file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class DriverReport:
    """One driver on this machine: every promise, or why it cannot run."""

    name: str
    works: bool
    guarantees: tuple[Guarantee, ...]
    tried: bool = False
    """Whether the promises were attacked from inside; otherwise the driver only claims them."""
    problem: str = ""
    """Why it cannot run here, and what to install or set."""
    remedy: str = ""
    """The package to install or the value to set; empty if nothing helps."""
    notes: tuple[str, ...] = ()


async def examine(progress: Callable[[str], None] | None = None) -> list[DriverReport]:
    """Open every known driver once, on an empty directory, and close it. Leaves nothing behind; never raises."""
    known = _open.known_drivers()
    names = [*(name for name in _open.BUILT_IN if name in known), *sorted(set(known) - set(_open.BUILT_IN))]
    reports = []
    for number, name in enumerate(names, 1):
        if progress is not None:
            progress(f"trying {name} ({number} of {len(names)})")
        reports.append(await _examine(name, known[name]))
    return reports


async def _examine(name: str, opener: "_open.Opener | str") -> DriverReport:
    if isinstance(opener, str):
        return _broken(name, opener, "" if name in _open.BUILT_IN else REINSTALL)
    try:
        with _anyio.fail_after(OPENING_SECONDS):
            async with _selftest.tested_alone(name, opener) as driver:
                return _report(name, driver)
    except Exception as error:  # noqa: BLE001 - a broken driver must not hide the others
        return _broken(name, str(error) or type(error).__name__, getattr(error, "remedy", ""))


def _broken(name: str, problem: str, remedy: str) -> DriverReport:
    guarantees = tuple(Guarantee(feature, "absent", "it cannot run here") for feature in FEATURES)
    return DriverReport(name, False, guarantees, problem=problem, remedy=remedy)


def _report(name: str, driver: Driver) -> DriverReport:
    report = _report_room.report_of(driver)
    listed = {guarantee.feature: guarantee for guarantee in report.guarantees}
    guarantees = tuple(listed.get(it, Guarantee(it, "absent", "it does not claim this")) for it in FEATURES)
    tried = hasattr(driver, "lost")
    notes = (*report.facts, *report.notes, *(() if tried else (NOT_TRIED,)))
    return DriverReport(name, True, guarantees, tried, notes=notes)


def as_json(reports: Sequence[DriverReport]) -> str:
    """The reports as JSON, for programs."""
    drivers = [asdict(report) for report in reports]
    for each in drivers:
        each["promises"] = each.pop("guarantees")  # programs read this key
    return json.dumps({"auto": _auto(reports), "drivers": drivers}, indent=2)


def render(reports: Sequence[DriverReport], width: int | None = None) -> str:
    """The reports as a table, the reasons for what is not enforced, and the driver that `auto` takes, for people.

    With a width, lines break between words; a table that does not fit becomes a list.
    """
    table = _table(reports)
    if width is not None and max(map(len, table.splitlines())) >= width:
        table = "\n\n".join(_listed(report) for report in reports if report.works)
    chosen = _auto(reports)
    nothing = "auto takes nothing here; with allow_weaker=True it takes host, without isolation."
    parts = [table, *(_reasons(report) for report in reports), f"auto takes {chosen}." if chosen else nothing]
    text = "\n\n".join(parts)
    return text if width is None else "\n".join(_broken_line(line, width - 1) for line in text.split("\n"))


def _listed(report: DriverReport) -> str:
    """A driver's guarantees, for a screen that is too narrow for the table."""
    rows = [report.name]
    for standing in get_args(Standing):
        named = [guarantee.feature for guarantee in report.guarantees if guarantee.standing == standing]
        rows += [f"  {standing}: {', '.join(named)}"] if named else []
    return "\n".join(rows)


def _broken_line(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent) if len(line) > width else line


def _auto(reports: Sequence[DriverReport]) -> str | None:
    """The driver that `auto` takes: the jail, unless one of its walls is missing."""
    return next((report.name for report in reports if report.name == STRONGEST and _enforces(report)), None)


def _enforces(report: DriverReport) -> bool:
    """Whether commands run in it, and it enforces every wall."""
    enforced = {guarantee.feature for guarantee in report.guarantees if guarantee.standing == "enforced"}
    return report.works and enforced >= {*_open.WALLS, "exec"}


def _table(reports: Sequence[DriverReport]) -> str:
    lines = [("promise", *(report.name for report in reports))]
    for index, feature in enumerate(FEATURES):
        lines.append((feature, *(_standing(report, index) for report in reports)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(row.rstrip() for row in rows)


def _standing(report: DriverReport, index: int) -> str:
    return report.guarantees[index].standing if report.works else "-"


def _reasons(report: DriverReport) -> str:
    if not report.works:
        return f"{report.name} cannot run here\n  {report.problem}"
    weak: dict[str, list[str]] = {}
    for it in report.guarantees:
        if it.standing != "enforced":
            why = f"{it.reason}; {it.remedy}" if it.remedy else it.reason
            weak.setdefault(f"{it.standing}: {why}", []).append(it.feature)
    lines = (f"  {', '.join(features)}: {reason}" for reason, features in weak.items())
    return "\n".join([report.name, *(f"  {note}" for note in report.notes), *lines])
