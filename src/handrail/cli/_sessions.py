"""The work of `handrail sessions` on the store."""

import os
import sys
import time
from dataclasses import asdict
from datetime import datetime
from json import dumps
from typing import Final, Literal

from rich.console import Console
from rich.text import Text

from handrail.cli._console import as_json, make_console
from handrail.cli._event_printer import EventPrinter, tokens
from handrail.cli._run_task import event_line
from handrail.cli._session_store import find_session, has_store, lost_store, open_store
from handrail.contract.errors import HandrailError
from handrail.policy.approval import visible
from handrail.store.check import Damaged, SessionCheck
from handrail.store.summary import Summary

MAX_PAUSE_SECONDS: Final = 3.0
"""Seconds of waiting that a replay shows, at speed 1."""


def list_sessions(json: bool, place: str | None = None) -> None:
    """A line for each, or JSON."""
    known = bool(place) or has_store()
    found = open_store(place).sessions() if known else []
    problems = [] if known else lost_store()
    for problem in problems:
        print(visible(problem), file=sys.stderr)
    if json:
        print(as_json([asdict(each) for each in found], indent=2))
        return
    console = make_console()
    for each in found:
        console.print(list_line(each), no_wrap=console.is_terminal, overflow="ellipsis")
    if not found and not problems:
        print("no sessions yet; `handrail run` and `handrail chat` keep theirs here", file=sys.stderr)


def list_line(each: Summary) -> Text:
    """A session in one line."""
    when = datetime.fromtimestamp(each.updated).astimezone().strftime("%Y-%m-%d %H:%M")
    place = f"  {visible(_short(each.workspace), lines=False)}" if each.workspace else ""
    about = f"{each.state:<11}  {each.calls:>4} calls{place}  {visible(each.title, lines=False)}"
    return Text(each.id, style="bold") + Text(f"  {when}  {about}")


def _short(path: str) -> str:
    """A directory as people write it: from their home."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if home != "/" and f"{path}/".startswith(f"{home}/") else path


def show(named: str, json: bool, full: bool, place: str | None = None) -> None:
    store = open_store(place)
    found = find_session(store, named)
    if json:
        for event in store.events(found.id):
            print(event_line(event))
        return
    console = make_console()
    _heading(console, found)
    printer = EventPrinter(console.print, full=full)
    for event in store.events(found.id):
        printer.see(event)


def _heading(console: Console, found: Summary) -> None:
    console.print(list_line(found))
    where = f"{found.workspace} · {found.sandbox or 'no sandbox'} · {found.model} · {tokens(found.usage)}"
    console.print(Text(visible(where, lines=False), style="dim"))


def check(named: str | None, json: bool) -> bool:
    """Check one session, or all of them and the file that they are in. Returns whether all is as it was written."""
    problems: list[str] = []
    checks: list[SessionCheck] = []
    try:
        store = open_store()
        found = [find_session(store, named)] if named else store.sessions() if has_store() else []
        for number, each in enumerate(found, 1):
            _show_progress(f"checking {number} of {len(found)}: {each.id}")
            checks.append(store.check(each.id))
            _show_progress("")
            if not json:
                print(visible("\n".join(_check_lines(checks[-1]))), flush=True)
        if not named:
            _show_progress("checking the file")
            problems = store.problems()
    except Damaged as error:
        problems = [str(error)]
    _show_progress("")
    if json:
        print(as_json({"file": problems, "sessions": [asdict(each) for each in checks]}, indent=2))
    for problem in () if json else problems:
        print(visible(f"the file: {problem}"))
    return not problems and all(each.ok for each in checks)


def _check_lines(found: SessionCheck) -> list[str]:
    lines = [f"{found.id}  {'ok' if found.ok else 'DAMAGED'}  {found.events:,} events"]
    lines += [f"  {each}" for each in (found.damage, *found.artifacts) if each]
    if found.without_digest:
        lines.append(f"  {found.without_digest:,} events are of an older format: a change in them does not show")
    if found.end_mark == "none":
        lines.append("  no end mark: whether events are missing at the end is not known")
    elif found.end_mark == "unreadable":
        lines.append("  its end mark cannot be read: whether events are missing at the end is not known")
    return lines


def _show_progress(text: str) -> None:
    """Replace the line on a terminal's stderr; a file gets nothing."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{visible(text, lines=False)}", end="", file=sys.stderr, flush=True)


def replay(named: str, speed: float) -> None:
    """Show the stored events with the pauses between them. Nothing runs: only the store is read."""
    store = open_store()
    found = find_session(store, named)
    console = make_console()
    _heading(console, found)
    printer, last = EventPrinter(console.print), 0.0
    for event in store.events(found.id):
        if last and speed:
            time.sleep(min(max(0.0, event.time - last), MAX_PAUSE_SECONDS) / speed)
        last = event.time
        printer.see(event)


def export(
    named: str, file: str | None, form: Literal["handrail", "chat", "atif"] = "handrail", place: str | None = None
) -> None:
    store = open_store(place)
    id = find_session(store, named).id
    lines = store.export(id) if form == "handrail" else iter([dumps(store.trajectory(id, form))])
    if file is None:
        for line in lines:
            print(line)
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise HandrailError(f"{file} exists already; name a new file") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)
    except BaseException:
        os.unlink(file)  # half of a session would pass for the whole of it
        raise


def fork(named: str, at: int | None) -> None:
    store = open_store()
    print(store.fork(find_session(store, named, forks=False).id, at))


def remove(named: list[str]) -> None:
    """Find all of them before the first is removed."""
    store = open_store()
    for found in [find_session(store, each) for each in named]:
        store.remove(found.id)
        print(f"removed {found.id}  {visible(found.title, lines=False)}")
