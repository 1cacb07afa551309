"""`handrail conform`: put a driver through the conformance kit, and say promise by promise what it keeps."""

import json as _json
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from handrail.cli._app import Command, new_app, or_exit
from handrail.cli._signals import run_loop
from handrail.contract.errors import HandrailError, Unavailable
from handrail.lazy import Lazy
from handrail.misuse import nearest

if TYPE_CHECKING:
    import resource as _resource

    import anyio as _anyio

    import handrail.aio as _aio
    from handrail.drivers import open as _open
    from handrail.policy import approval as _approval
    from handrail.testing import conformance as _conformance
else:
    _resource = Lazy("resource")
    _anyio = Lazy("anyio")
    _aio = Lazy("handrail.aio")
    _open = Lazy("handrail.drivers.open")
    _approval = Lazy("handrail.policy.approval")
    _conformance = Lazy("handrail.testing.conformance")

PLANTED: Final = ("HANDRAIL_CONFORM_PLANTED", "no command may see this")
"""A variable of this process: a driver that gives its commands this process's environment is found by it."""
STANDINGS: Final = {
    "kept": "claimed and kept",
    "broken": "claimed and BROKEN",
    "untried": "claimed, not tried",
    "unclaimed": "not claimed",
    "unclaimed_but_kept": "not claimed, but kept",
}
BLOCKED: Final = 5.0
"""Seconds for which a driver may hold up the event loop; a check in which it takes longer does not hold."""
MEMORY: Final = 2 << 30
"""Bytes that this process may have, and each that it starts."""
EVERY: Final = 10
"""Checks between two lines of progress where they do not replace each other."""


app = new_app()


@app.command(cls=Command)
def conform(
    driver: Annotated[str, typer.Argument(help="The name of a driver, or module:opener.", metavar="NAME")],
    only: Annotated[list[str] | None, typer.Option(help="A promise, or a check; may be repeated.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Put a driver through the conformance kit.

    Exits with 1 if a promise that the driver claims is broken.
    """
    raise typer.Exit(or_exit(lambda: try_driver(driver, only, json)))


def try_driver(driver: str, only: list[str] | None, json: bool) -> int:
    """Run the kit, show its progress on stderr, and print the verdict. Returns the code to exit with."""
    opener = find_opener(driver)
    os.environ[PLANTED[0]] = PLANTED[1]
    _bound_memory()
    checks = list(_conformance.chosen(only))
    progress = _Progress(len(checks))

    async def run() -> int:
        alarm = _aio.in_background(_rearm())
        try:
            verdict = await _conformance.conform(opener, only=only, on_check=progress)
        except (HandrailError, OSError, Unavailable) as error:
            raise HandrailError(f"{driver} cannot be tried here: {error}") from error
        finally:
            alarm.cancel()
        progress.end()
        _show(verdict, json=json, asked=bool(only))
        code = 1 if verdict.broken else 0
        if any(thread.is_alive() and not thread.daemon for thread in threading.enumerate()[1:]):
            os._exit(code)  # a thread of the driver may wait for ever, and Python would wait for it
        return code

    with _interrupted_if_blocked():
        return run_loop(run)


def _show(verdict: "_conformance.DriverVerdict", *, json: bool, asked: bool) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    text = _json.dumps(verdict.to_data(), indent=2) if json else _approval.visible(render(verdict, width, asked=asked))
    print(text, flush=True)


def _bound_memory() -> None:
    """A driver that reads a device without end, or a terabyte, fails its check instead of filling the machine."""
    if sys.platform != "win32":
        soft, hard = _resource.getrlimit(_resource.RLIMIT_DATA)
        if soft == _resource.RLIM_INFINITY or soft > MEMORY:
            _resource.setrlimit(_resource.RLIMIT_DATA, (MEMORY, hard))


@contextmanager
def _interrupted_if_blocked() -> Iterator[None]:
    """Raise in a check that blocks the event loop, as by opening a pipe: nothing else could end it, or say so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, BLOCKED)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).startswith(_conformance.__name__):
                raise RuntimeError(f"the driver blocked the event loop for {BLOCKED:g} s; run what waits in a thread")
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def _rearm() -> None:
    """Set the alarm again and again, as long as the event loop turns."""
    while True:
        signal.setitimer(signal.ITIMER_REAL, BLOCKED)
        await _anyio.sleep(BLOCKED / 10)


def find_opener(name: str) -> "_conformance.Opener":
    """The opener of an installed driver, or the one that `module:opener` names. Raises HandrailError."""
    known = _open.known_drivers()
    opener = known.get(name)
    if isinstance(opener, str):
        raise HandrailError(f"the driver {name!r} cannot be used here: {opener}")
    return opener or _loaded(name, list(known))


def _loaded(name: str, known: list[str]) -> "_conformance.Opener":
    if ":" not in name:
        raise HandrailError(f"there is no driver {name!r}; {nearest(name, known)}; or give module:opener")
    if not re.fullmatch(r"[\w.]+:[\w.]+", name):
        raise HandrailError(f"{name!r} is not module:opener, such as my_package:open_mine")
    sys.path.append(os.getcwd())  # last, so that nothing there hides an installed module
    try:
        found: _conformance.Opener = EntryPoint(name, name, _open.GROUP).load()
    except Exception as error:
        raise HandrailError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise HandrailError(f"{name} is not an async function that opens a Driver")
    return found


class _Progress:
    """Counts the checks that were made: one line in a terminal, some lines elsewhere."""

    def __init__(self, of: int) -> None:
        self._of, self._done, self._failed = of, 0, 0
        self._in_place = sys.stderr.isatty()

    def __call__(self, verdict: "_conformance.CheckVerdict") -> None:
        self._done += 1
        self._failed += bool(verdict.problem) and verdict.claimed
        line = f"{self._done} of {self._of} checks, {self._failed} break a claim"
        if self._in_place:
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
        elif self._done % EVERY == 0:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._in_place:
            print(file=sys.stderr, flush=True)


def render(verdict: "_conformance.DriverVerdict", width: int | None = None, *, asked: bool = False) -> str:
    """A line for each promise, and how long it took.

    Under those that are claimed, and under others that were asked for, stand the checks that do not hold.
    """
    lines = []
    for feature, guarantee in verdict.guarantees.items():
        tried = [check for check in guarantee.checks if check.tried]
        kept = sum(check.kept for check in tried)
        left = len(guarantee.checks) - len(tried)
        counts = f"{kept} of {len(tried)} checks" + (f", {left} not tried" if left else "")
        lines.append(f"{feature:<18} {STANDINGS[guarantee.standing]:<22} {counts}")
        if guarantee.standing == "broken" or asked:
            lines += [f"    {check.check.name}\n        {check.problem}" for check in guarantee.failed]
        if guarantee.standing == "unclaimed_but_kept":
            lines.append("    The driver keeps this here: it may claim it.")
        for reason in dict.fromkeys(check.not_tried for check in guarantee.checks if check.not_tried):
            lines.append(f"    not tried: {reason}")
    total = sum(len(guarantee.checks) for guarantee in verdict.guarantees.values())
    end = f"{len(verdict.broken)} claimed promises are broken" if verdict.broken else "no claimed promise is broken"
    text = "\n".join([f"{verdict.driver}: {total} checks", "", *lines, "", f"{end}; {verdict.seconds:.1f} s"])
    return text if width is None else "\n".join(_fit(line, width - 1) for line in text.split("\n"))


def _fit(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent) if len(line) > width else line
