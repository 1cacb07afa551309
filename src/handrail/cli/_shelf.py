"""What `handrail sessions` does with the store."""

import os
import sys
import time
from dataclasses import asdict
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from handrail.cli._one_task import event_line
from handrail.cli._output import as_json
from handrail.cli._screen import make_console
from handrail.cli._stored import find_session, has_store, open_store
from handrail.cli._story import Story, tokens
from handrail.contract.errors import HandrailError
from handrail.policy.approval import visible
from handrail.store.summary import Summary

LONGEST_PAUSE: Final = 3.0
"""Seconds of waiting that a replay shows, at speed 1."""


def list_sessions(json: bool) -> None:
    """A line for each, or JSON."""
    found = open_store().sessions() if has_store() else []
    if json:
        print(as_json([asdict(each) for each in found], indent=2))
        return
    console = make_console()
    for each in found:
        console.print(list_line(each), no_wrap=console.is_terminal, overflow="ellipsis")
    if not found:
        print("no sessions yet; `handrail run` and `handrail chat` keep theirs here", file=sys.stderr)


def list_line(each: Summary) -> Text:
    """A session in one line."""
    when = datetime.fromtimestamp(each.updated).astimezone().strftime("%Y-%m-%d %H:%M")
    about = f"{each.state:<11}  {each.calls:>4} calls  {visible(each.title, lines=False)}"
    return Text(each.id, style="bold") + Text(f"  {when}  {about}")


def show(named: str, json: bool) -> None:
    store = open_store()
    found = find_session(store, named)
    if json:
        for event in store.events(found.id):
            print(event_line(event))
        return
    console = make_console()
    _heading(console, found)
    story = Story(console.print)
    for event in store.events(found.id):
        story.see(event)


def _heading(console: Console, found: Summary) -> None:
    console.print(list_line(found))
    where = f"{found.workspace} · {found.sandbox or 'no sandbox'} · {found.model} · {tokens(found.usage)}"
    console.print(Text(visible(where, lines=False), style="dim"))


def replay(named: str, speed: float) -> None:
    """Show the stored events with the pauses between them. Nothing runs: only the store is read."""
    store = open_store()
    found = find_session(store, named)
    console = make_console()
    _heading(console, found)
    story, last = Story(console.print), 0.0
    for event in store.events(found.id):
        if last and speed:
            time.sleep(min(max(0.0, event.time - last), LONGEST_PAUSE) / speed)
        last = event.time
        story.see(event)


def export(named: str, file: str | None) -> None:
    store = open_store()
    lines = store.export(find_session(store, named).id)
    if file is None:
        for line in lines:
            print(line)
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise HandrailError(f"{file} exists already; name a new file") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)


def fork(named: str, at: int | None) -> None:
    store = open_store()
    print(store.fork(find_session(store, named).id, at))


def remove(named: list[str]) -> None:
    """Find all of them before the first is removed."""
    store = open_store()
    for found in [find_session(store, each) for each in named]:
        store.remove(found.id)
        print(f"removed {found.id}  {visible(found.title, lines=False)}")
