"""Print the output of a call that a person makes by hand, as it comes."""

import sys
from collections.abc import Mapping
from typing import Any, TextIO

from handrail.contract.event import Event
from handrail.policy.approval import visible
from handrail.threads import Work


class LiveOutput:
    """Prints the output of one call at a time; a background job goes on without being shown.

    Characters that could move the cursor are written as codes. Standard error stays standard error.
    """

    def __init__(self, *, to_person: bool) -> None:
        self._out = sys.stdout if to_person else sys.stderr
        self._call = ""
        self._at_start = True
        self._returned = False
        self._broken = False
        self._job_news: list[str] = []

    def watch(self, call_id: str) -> None:
        """Show this call from now on."""
        self._call = call_id

    async def see(self, event: Event) -> None:
        """Print the event's output, if the event belongs to the watched call."""
        if event.type == "call_output" and event.call_id == self._call:
            await self._show(event.data)
        elif event.type == "call_ended" and event.call_id == self._call:
            self._call = ""  # what its background job prints from now on belongs to nobody's line
            self.start_line()
        elif event.type == "job_ended":
            how = event.data["error"] or f"exit {event.data['exit_code']}"
            self._job_news.append(f"{event.data['job']} has ended: {how}")

    def take_job_news(self) -> list[str]:
        """Lines about the jobs that have ended since the last call."""
        news, self._job_news = self._job_news, []
        return news

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
