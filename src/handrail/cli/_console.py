"""The person's console, and texts for it: times, JSON that no terminal acts upon, and what a sandbox enforces."""

import json
import os
import re
import sys
from typing import Any, Final

from rich.console import Console

from handrail.contract.driver import Report

_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Characters that JSON lets through and a terminal may act on."""


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, also where rich would not ask it; a file gets whole lines."""
    stream = sys.stderr if stderr else sys.stdout
    width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 80
    return Console(file=stream, highlight=False, width=width or 80, height=25, soft_wrap=not stream.isatty())


def report_lines(report: Report) -> list[str]:
    """The sandbox's guarantees in up to three lines, by whether they are enforced."""
    lines = []
    for standing in ("enforced", "advisory", "absent"):
        named = [guarantee.feature for guarantee in report.guarantees if guarantee.standing == standing]
        if named:
            lines.append(f"{standing}: {', '.join(named)}")
    return lines


def as_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that standard output can show and no terminal acts upon."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def duration(milliseconds: float) -> str:
    """A time as people read it."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
