"""Show a call to a person: its output once, as it comes, then one line; or to a program, as an envelope."""

import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TextIO

import anyio
from rich.console import Console
from rich.text import Text

from handrail.cli._app import INTERRUPTED, NOT_RUN
from handrail.contract.event import Event
from handrail.contract.result import REFUSALS, Failure, Result
from handrail.policy.approval import visible
from handrail.sandbox.completed import EXIT_TIMED_OUT
from handrail.threads import Work
from handrail.toolkit.tool import Tool

FAILED: Final = 1
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Characters that JSON lets through and a terminal may act on."""


class Tail:
    """Prints the live output of the call that runs now, and tells when everything up to an event was printed.

    Characters that could move the cursor are written as codes. Standard error stays standard error.
    """

    def __init__(self, *, to_person: bool) -> None:
        self._out = sys.stdout if to_person else sys.stderr
        self._call = ""
        self._ended: dict[str, float] = {}
        self._asked: set[str] = set()
        self._news = anyio.Event()
        self._at_start = True
        self._returned = False
        self._broken = False
        self._job_news: list[str] = []

    def watch(self, call_id: str) -> None:
        """Show this call from now on; a background job goes on without being shown."""
        self._call = call_id

    async def follow(self, events: AsyncIterator[Event]) -> None:
        """Show events until the session ends."""
        async for event in events:
            if event.type == "call_output" and event.call_id == self._call:
                await self._show(event.data)
            elif event.type == "call_ended" and event.call_id is not None:
                self._ended[event.call_id] = event.data["duration_ms"]
                self._tell()
            elif event.type == "approval_asked":
                self._asked.add(event.data["id"])
                self._tell()
            elif event.type == "job_ended":
                how = event.data["error"] or f"exit {event.data['exit_code']}"
                self._job_news.append(f"{event.data['job']} has ended: {how}")

    def take_job_news(self) -> list[str]:
        """Which jobs have ended since this was asked last."""
        news, self._job_news = self._job_news, []
        return news

    async def until_asked(self, request_id: str) -> None:
        """Return when everything before this request was printed, and the cursor is at the start of a line."""
        while request_id not in self._asked:
            await self._news.wait()
        self.start_line()

    async def until_ended(self, call_id: str) -> float:
        """Return when all output of the call was printed; the milliseconds that it took."""
        while call_id not in self._ended:
            await self._news.wait()
        if self._call == call_id:
            self._call = ""  # what its background job prints from now on belongs to nobody's line
        self.start_line()
        return self._ended.pop(call_id)

    def start_line(self) -> None:
        """Move to the start of a line, unless the cursor is there."""
        if not self._at_start:
            self._write(self._out, "\n")

    def show_text(self, text: str) -> None:
        """Print output that does not come from an event."""
        self._write(self._out, self._lines(text))

    async def _show(self, data: Mapping[str, Any]) -> None:
        stream = sys.stderr if data["stream"] == "stderr" else self._out
        left_out = data.get("left_out", 0) + data.get("dropped", 0)
        note = f"{'' if self._at_start else chr(10)}[… {left_out:,} bytes not shown]\n" if left_out else ""
        text = note + self._lines(str(data["text"]))
        # in a thread, because a terminal that was stopped by Ctrl-S blocks whoever writes
        await Work(lambda: self._write(stream, text)).wait()

    def _lines(self, text: str) -> str:
        """The text with visible characters alone. A return without a line feed, as in progress bars, starts a line."""
        if self._returned and text.startswith("\n"):
            text = text[1:]
        self._returned = text.endswith("\r")
        return visible(text.replace("\r\n", "\n").replace("\r", "\n"))

    def _write(self, stream: TextIO, text: str) -> None:
        if not text or self._broken:
            return
        try:
            stream.write(text)
            stream.flush()
            self._at_start = text.endswith("\n")
        except OSError:  # the reader has gone; the call goes on
            self._broken = True

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


def exit_code(tool: Tool, result: Result | None) -> int:
    """The code to exit with: the command's own, 124, 130, 125 for a call that did not run, 1 for other failures."""
    if result is None:
        return INTERRUPTED
    runs = "executes" in tool.effects
    if result.ok:
        value = result.value if runs and isinstance(result.value, Mapping) else {}
        code = _exit_code_of(value)
        if code is None:  # it runs no command, or one that goes on in the background
            return FAILED if value.get("error") else 0
        return code if isinstance(code, int) and 0 <= code < 256 else FAILED
    if result.kind == "timeout":
        return EXIT_TIMED_OUT
    if result.kind == "cancelled":
        return INTERRUPTED
    code = result.data.get("exit_code")
    if runs and isinstance(code, int):
        return code
    return NOT_RUN if runs or result.kind in REFUSALS or result.kind == "unavailable" else FAILED


def _exit_code_of(value: Mapping[str, Any]) -> Any:
    """The exit code of the command that a value is about; None where it is about having ended one."""
    return None if "killed" in value else value.get("exit_code")


def as_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that standard output can show and no terminal acts upon."""
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def show_result(console: Console, tool: Tool, result: Result, milliseconds: float) -> None:
    """What a person sees of a result: the answer, unless it was shown while it came, then one line."""
    wire = result.to_envelope(tool.name)
    if result.ok:
        body = _answer(tool, wire["result"])
        if body:
            print(body, flush=True)
    code = exit_code(tool, result)
    sign, style = ("✓", "green") if code == 0 else ("✗", "red" if isinstance(result, Failure) else "yellow")
    parts = [tool.name]
    if isinstance(result, Failure):
        parts.append(result.kind)
    elif "executes" in tool.effects and _exit_code_of(wire["result"]) is not None:
        parts.append(f"exit {code}")
    parts.append(duration(milliseconds))
    said = f": {visible(for_people(wire))}" if isinstance(result, Failure) else ""
    console.print(Text(f"{sign} ", style=style) + Text(" · ".join(parts), style="bold") + Text(said))
    for warning in result.warnings:
        console.print(Text(f"! {visible(warning)}", style="yellow"))


def for_people(failure: Mapping[str, Any]) -> str:
    """What a failure's envelope tells a person: the reason alone where it has one; the message advises the model."""
    data = failure.get("data")
    reason = data.get("reason") if isinstance(data, Mapping) else None
    return reason if isinstance(reason, str) else str(failure.get("message", ""))


def duration(milliseconds: float) -> str:
    """A time as people read it."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _answer(tool: Tool, value: Any) -> str:
    """The value as text; empty for what was shown live."""
    if not isinstance(value, Mapping):
        return "" if value is None else visible(as_json(value, indent=2))
    text = value.get("text")
    if "executes" in tool.effects and "exit_code" in value:
        if not text and "running" in value:
            return visible(job_line(value), lines=False)
        return "" if text in (None, "", value.get("stdout")) else _text(str(text))
    if value.get("background") is True:
        return f"{visible(str(value.get('job')))} runs in the background."
    for key in ("text", "diff", "answer"):
        if isinstance(value.get(key), str):
            return _text(value[key]).removesuffix("\n")
    return _listing(value) or visible(as_json(value, indent=2))


def _text(text: str) -> str:
    """The text with visible characters alone; lines may end with a return and a line feed."""
    return visible(text.replace("\r\n", "\n"))


def _listing(value: Mapping[str, Any]) -> str:
    """The entries of a directory, paths, matches or jobs, each on its line; empty for anything else."""
    rows: list[str] = []
    if value.get("kind") == "listing":
        rows = [f"{it['name']}{'/' if it.get('type') == 'directory' else ''}" for it in value["entries"]]
    elif value.get("kind") == "paths":
        rows = list(value["paths"])
    elif value.get("kind") == "matches":
        rows = [f"{it['path']}:{it['line']}: {it['text']}" for it in value["matches"]]
    elif isinstance(value.get("jobs"), list):
        rows = [job_line(it) for it in value["jobs"]] or ["no jobs"]
    return "\n".join(visible(row, lines=False) for row in rows)


def job_line(state: Mapping[str, Any]) -> str:
    """One job of `process(action="list")`."""
    how = "runs" if state["running"] else f"ended, exit {state['exit_code']}"
    command = state["command"] if isinstance(state["command"], str) else " ".join(state["command"])
    return f"{state['job']}  {how}  {' '.join(command.split())}"
