"""Screens of a batch: a bar on a terminal, lines in a pipe, JSON for a program, and a table at the end."""

import json
import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final, Self

from rich.status import Status
from rich.table import Table
from rich.text import Text

from handrail.batch import Done, Totals
from handrail.cli._console import make_console
from handrail.policy.approval import visible

LINE_SECONDS: Final = 10.0
"""Seconds between two lines of progress where the output is no terminal."""
MAX_ERRORS_SHOWN: Final = 5


def progress(totals: Totals) -> str:
    """`312/1000 · 41 running · 7.4/s · 1 m 33 s left · solved 61 % · lost 3 · $4.12, about $13.20 in all`."""
    parts = [f"{totals.done}/{totals.tasks}", f"{totals.running} running"]
    if totals.left is not None:
        parts += [f"{totals.rate:.1f}/s", f"{_span(totals.left)} left"]
    if totals.rewarded:
        parts.append(f"solved {100 * totals.solved / totals.rewarded:.0f} %")
    if totals.lost:
        parts.append(f"lost {totals.lost}")
    if totals.usage.cost is not None and totals.cost_in_all is not None:
        parts.append(f"${totals.usage.cost:.2f}, about ${totals.cost_in_all:.2f} in all")
    return " · ".join(parts)


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 60} m {whole % 60} s" if whole >= 60 else f"{whole} s"


class Lines:
    """Lines on standard error: each loss, progress now and then, and the end. The other screens build on it."""

    def __init__(self) -> None:
        self._console = make_console(stderr=True)
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        """Nothing is open."""

    def see(self, event: Mapping[str, Any], totals: Totals) -> None:
        """Show an event of the batch."""
        if event["event"] == "again":
            wait = f"; nothing is begun for {event['wait']:.0f} s" if event["wait"] >= 1 else ""
            self.say(f"{event['id']} is tried again: {event['why']}{wait}")
        self.tick(totals)

    def tick(self, totals: Totals) -> None:
        """Show the progress, if it is time."""
        if totals.done == totals.tasks or monotonic() - self._last >= LINE_SECONDS:
            self._last = monotonic()
            self._console.print(Text(progress(totals)))

    def say(self, text: str) -> None:
        self._console.print(Text(f"handrail: {visible(text, lines=False)}", style="yellow"))

    def finish(self, totals: Totals, retry: str) -> None:
        """The results by reason, the commonest errors, and what to type next."""
        table = Table("reason", "tasks", box=None, pad_edge=False)
        for reason, count in totals.reasons.most_common():
            table.add_row(reason, str(count))
        self._console.print(table)
        mean = f", mean reward {totals.reward / totals.rewarded:.3f}" if totals.rewarded else ""
        self._console.print(Text(f"{progress(totals)}{mean}"))
        for error, count in totals.errors.most_common(MAX_ERRORS_SHOWN):
            self._console.print(Text(f"  {count} × {visible(error, lines=False)[:200]}", style="dim"))
        if totals.stopped:
            self.say(f"the batch stopped: {totals.stopped}")
        if totals.lost:
            self.say(f"to do again what was lost: {retry}")


class BatchScreen(Lines):
    """One line that is written anew, below what is said."""

    def __init__(self) -> None:
        super().__init__()
        self._status = Status("", console=self._console)

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._status.stop()

    def tick(self, totals: Totals) -> None:
        self._status.update(Text(progress(totals)))


class JsonLines(Lines):
    """Each event of the batch as a line of JSON on standard output."""

    def see(self, event: Mapping[str, Any], totals: Totals) -> None:
        line = event.get("line")
        plain = {**event, "line": json.loads(line.to_json())} if isinstance(line, Done) else dict(event)
        counts = {name: getattr(totals, name) for name in ("tasks", "done", "running", "solved", "lost")}
        print(json.dumps({**plain, "totals": counts}), flush=True)

    def finish(self, totals: Totals, retry: str) -> None:
        sums = {"reward": totals.reward, "rewarded": totals.rewarded, "usage": totals.usage.as_data()}
        end = {"event": "ended", "tasks": totals.tasks, "done": totals.done, "lost": totals.lost}
        end |= {"reasons": dict(totals.reasons), "stopped": totals.stopped, **sums}
        print(json.dumps(end), flush=True)
        if totals.stopped:
            print(f"handrail: {visible(totals.stopped, lines=False)}", file=sys.stderr)
