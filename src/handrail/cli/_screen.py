"""Print events as lines: the model's text, and for each call its arguments, duration and outcome."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import anyio
from rich.console import Console
from rich.text import Text

from handrail.cli._output import for_people
from handrail.contract.driver import Report
from handrail.contract.event import Event
from handrail.policy.approval import visible

OUTCOME_WIDTH: Final = 110
ARGUMENTS_WIDTH: Final = 60
SIGNS: Final = {"ok": ("✓", "green"), "failed": ("✗", "yellow")}


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, also where rich would not ask it; a file gets whole lines."""
    stream = sys.stderr if stderr else sys.stdout
    width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 80
    return Console(file=stream, highlight=False, width=width or 80, height=25, soft_wrap=not stream.isatty())


def report_lines(report: Report) -> list[str]:
    """What the sandbox enforces and what it does not, in up to three lines."""
    lines = []
    for standing in ("enforced", "advisory", "absent"):
        named = [guarantee.feature for guarantee in report.guarantees if guarantee.standing == standing]
        if named:
            lines.append(f"{standing}: {', '.join(named)}")
    return lines


class Screen:
    """Prints the events of a run, and keeps the result of each call."""

    def __init__(self, console: Console, *, asks: bool) -> None:
        self._console = console
        self._asks = asks
        self._arguments: dict[str, str] = {}
        self.results: dict[str, Mapping[str, Any]] = {}
        self._asked: set[str] = set()
        self._news = anyio.Event()

    async def until_asked(self, request_id: str) -> None:
        """Return when every event before this request is on the screen."""
        while request_id not in self._asked:
            await self._news.wait()

    def show(self, event: Event) -> None:
        """Print one event; some print nothing."""
        if event.type == "text" and event.data["text"]:
            self._console.print(Text(f"\n{event.data['text']}", style="bold cyan"))
        elif event.type == "call_started" and event.call_id is not None:
            arguments = event.data["arguments"]
            text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments), ensure_ascii=False)
            self._arguments[event.call_id] = visible(text, lines=False)
        elif event.type == "approval_asked":
            self._approval_asked(event)
        elif event.type == "call_ended" and event.call_id is not None:
            self._ended(event)
        elif event.type == "warning":
            self._console.print(Text(f"  ! {event.data['message']}", style="red"))

    def _approval_asked(self, event: Event) -> None:
        if not self._asks:
            self._console.print(Text(f"  ? {event.data['tool']} asks: {event.data['reason']}", style="magenta"))
        self._asked.add(event.data["id"])
        self._news.set()
        self._news = anyio.Event()

    def _ended(self, event: Event) -> None:
        sign, style = SIGNS[event.data["status"]]
        arguments = _short(self._arguments.pop(event.call_id or "", ""), ARGUMENTS_WIDTH)
        self._console.print(
            Text(f"  {sign} ", style=style) + Text(f"{event.data['tool']} {arguments}")
            + Text(f"  {event.data['duration_ms']:.0f} ms", style="dim")
        )  # fmt: skip
        envelope = event.data["result"]
        self.results[event.call_id or ""] = envelope
        for line in _outcome(envelope):
            self._console.print(Text(f"      {line}", style="dim"))


def _outcome(envelope: Mapping[str, Any]) -> list[str]:
    if not envelope["ok"]:
        return [_short(f"{envelope['kind']}: {_one_line(for_people(envelope))}", OUTCOME_WIDTH)]
    result = envelope["result"]
    lines = [_short(f"warning: {_one_line(text)}", OUTCOME_WIDTH) for text in envelope.get("warnings", ())]
    if isinstance(result, dict) and {"exit_code", "stdout", "stderr"} <= result.keys():
        output = f"{result['stdout']}{result['stderr']}".strip()
        return [_short(f"exit {result['exit_code']}: {_one_line(output)}", OUTCOME_WIDTH), *lines]
    return [_short(_one_line(json.dumps(result, ensure_ascii=False)), OUTCOME_WIDTH), *lines]


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()), lines=False)
