"""The append-only list of a session's events, which many may follow at their own pace."""

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from time import time
from typing import Any

import anyio

from handrail.aio import call_on, running_loop
from handrail.contract.event import Event, EventType
from handrail.session._live import LiveOutput


class Transcript:
    """Events may be written from any thread; `seq` has no gaps; no event is changed, but old live output goes."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.listeners: list[Callable[[Event], None]] = []
        """Called in the writer's thread with each event, in order; they must not block or raise."""
        self.lock = threading.RLock()
        """Held while anything is written."""
        self.waiting_output: dict[str, LiveOutput] = {}
        """By call: live output that waits for its next event."""
        self.closed = False
        self._untold: deque[Event] = deque()
        self._telling = False
        self._waiting: list[tuple[Any, anyio.Event]] = []

    def write(self, type: EventType, call_id: str | None, parent: str | None, data: Mapping[str, Any]) -> Event:
        with self.lock:
            if type in ("call_ended", "job_ended") and call_id in self.waiting_output:
                self.waiting_output.pop(call_id).finish()
            event = Event(len(self.events), time(), type, call_id, parent, data)
            self.events.append(event)
            if self.listeners:
                self._tell(event)
        if self._waiting:
            self._wake()
        return event

    def drop_text(self, seq: int, size: int) -> None:
        """Old live output: the event keeps its number and loses its text, which had so many bytes."""
        event = self.events[seq]
        self.events[seq] = replace(event, data={**event.data, "text": "", "dropped": size})

    def finish_output(self) -> None:
        """Show all live output that still waits."""
        with self.lock:
            while self.waiting_output:
                self.waiting_output.popitem()[1].finish()

    def close(self) -> None:
        """Nothing more will be written: those who follow come to the end."""
        self.closed = True
        self._wake()

    async def follow(self, start: int = 0) -> AsyncIterator[Event]:
        """Every event from number `start` on, then each new one, until the transcript is closed."""
        while True:
            while start < len(self.events):
                start += 1
                yield self.events[start - 1]
            woken = anyio.Event()
            self._waiting.append((running_loop(), woken))
            if start == len(self.events):
                if self.closed:
                    return
                await woken.wait()

    def _tell(self, event: Event) -> None:
        """A listener that writes an event itself (to say that it was dropped) does not change the order."""
        self._untold.append(event)
        if self._telling:
            return
        self._telling = True
        while self._untold:
            event = self._untold.popleft()
            for listener in self.listeners:
                listener(event)
        self._telling = False

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for loop, woken in waiting:
            call_on(loop, woken.set)
