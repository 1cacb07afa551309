"""The append-only list of a session's events. Many readers may follow it, each at its own pace."""

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
    """May be written from any thread; `seq` has no gaps. Events never change, but old live output is dropped."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.listeners: list[Callable[[Event], None]] = []
        """Called with each event, in order, in the writer's thread; a listener must not block or raise."""
        self.lock = threading.RLock()
        """Held while anything is written."""
        self.waiting_output: dict[str, LiveOutput] = {}
        """By call: live output that waits for its next event."""
        self.closed = False
        self._undelivered: deque[Event] = deque()
        self._delivering = False
        self._waiting: list[tuple[Any, anyio.Event]] = []

    def write(self, type: EventType, call_id: str | None, parent: str | None, data: Mapping[str, Any]) -> Event:
        with self.lock:
            if type in ("call_ended", "job_ended") and call_id in self.waiting_output:
                self.waiting_output.pop(call_id).finish()
            event = Event(len(self.events), time(), type, call_id, parent, data)
            self.events.append(event)
            if self.listeners:
                self._deliver(event)
        if self._waiting:
            self._wake()
        return event

    def drop_text(self, seq: int, size: int) -> None:
        """Drop the text of an old live-output event; `size` is the number of its bytes."""
        event = self.events[seq]
        self.events[seq] = replace(event, data={**event.data, "text": "", "dropped": size})

    def finish_output(self) -> None:
        """Emit all live output that still waits."""
        with self.lock:
            while self.waiting_output:
                self.waiting_output.popitem()[1].finish()

    def close(self) -> None:
        """End the transcript, and every `follow`."""
        self.closed = True
        self._wake()

    async def follow(self, start: int = 0) -> AsyncIterator[Event]:
        """Yield every event from number `start`, then each new one, until the transcript is closed."""
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

    def _deliver(self, event: Event) -> None:
        """Listeners see events in order, even if a listener writes one (that it was dropped)."""
        self._undelivered.append(event)
        if self._delivering:
            return
        self._delivering = True
        while self._undelivered:
            event = self._undelivered.popleft()
            for listener in self.listeners:
                listener(event)
        self._delivering = False

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for loop, woken in waiting:
            call_on(loop, woken.set)
