"""The append-only list of a session's events. Many readers may follow it, each at its own pace.

Where there is a store, events wait in memory until somebody may see them, or a tool's body begins; then they are
written together, inline, in the thread that is there.
"""

import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any, Final

import anyio

from handrail.aio import call_on, running_loop
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.event import Event, EventType
from handrail.contract.expect import expect_number
from handrail.session._live import LiveOutput
from handrail.session._secrets import CleanEvents

if TYPE_CHECKING:
    from handrail.store.stored import StoredSession


MAX_UNWRITTEN: Final = 256
"""Events that wait for the next write at most, where nobody looks at them."""
PRINTING: Final = {"call_started": 1, "job_started": 1, "call_ended": -1, "job_ended": -1}
"""By how many those that print live output of a call are more after an event."""
ENDS: Final = frozenset({"call_ended", "job_ended", "call_late"})
"""Events after which a call, or what it left running, prints no more."""


class Transcript:
    """May be written from any thread; `seq` has no gaps. Events never change, but old live output is dropped."""

    def __init__(
        self,
        stored: "StoredSession | None" = None,
        events: Iterable[Event] = (),
        opening: Callable[[], Mapping[str, Any]] | None = None,
        clean: CleanEvents | None = None,
    ) -> None:
        self.events: dict[int, Event] = {event.seq: event for event in events}
        """By number. What was forgotten is not among them."""
        self.count = len(self.events)
        """How many events there were, which is the number of the next one."""
        self._forgets: _ForgottenCalls | None = None
        self._opening = None if self.events else opening
        """Called before the first event is written: the data of `session_started`."""
        self.store_error = ""
        """Why the store could not be written the last time; empty while it can."""
        self._stored = stored
        self.clean = clean
        """Removes the session's secrets, if it has any."""
        self._unwritten: list[Event] = []
        self._changed: list[Event] = []
        self.listeners: list[Callable[[Event], None]] = []
        """Called with each event, in order, in the writer's thread; a listener must not block or raise."""
        self.lock = threading.RLock()
        """Held while anything is written."""
        self.waiting_output: dict[str, LiveOutput] = {}
        """By call: live output that waits for its next event."""
        self._printing = Counter[str | None]()
        """By call, where there are secrets: the call and its jobs that still run, and may print the rest of one."""
        self.closed = False
        self._undelivered: deque[Event] = deque()
        self._delivering = False
        self._waiting: list[tuple[Any, anyio.Event]] = []

    def write(self, type: EventType, call_id: str | None, parent: str | None, data: Mapping[str, Any]) -> Event:
        with self.lock:
            if self._opening is not None:
                self._open()
            clean = self.clean
            if clean is not None and type in PRINTING:
                self._printing[call_id] += PRINTING[type]
            if self.waiting_output and type in ENDS and (live := self.waiting_output.pop(call_id or "", None)):
                live.finish(goes_on=live.outlives or self._printing[call_id] > 0)
            if clean is not None:
                data = self._cleaned(clean, type, parent, data)
            event = Event(self.count, time(), type, call_id, parent, data)
            self._keep(event)
            if self._stored is not None:
                self._unwritten.append(event)
                if self.listeners or self._waiting or len(self._unwritten) >= MAX_UNWRITTEN:
                    self.flush()
            if self.listeners:
                self._deliver(event)
        if self._waiting:
            self._wake()
        return event

    def begin(self, call_id: str, parent: str | None) -> str:
        """Write `call_running`, unless it cannot be stored. Returns why it cannot; empty if it was written."""
        if self._stored is None:
            self.write("call_running", call_id, parent, {})
            return ""
        with self.lock:
            if self._opening is not None:
                self._open()
            event = Event(self.count, time(), "call_running", call_id, parent, {})
            if not self._store(event):
                return self.store_error
            self._keep(event)
            if self.listeners:
                self._deliver(event)
        if self._waiting:
            self._wake()
        return ""

    def drop_text(self, seq: int, size: int) -> None:
        """Drop the text of an old live-output event; `size` is the number of its bytes."""
        event = self.events.get(seq)
        if event is None:
            return
        changed = self.events[seq] = replace(event, data={**event.data, "text": "", "dropped": size})
        if self._forgets is not None:
            self._forgets.output(event)
        if self._stored is None:
            return
        if self._unwritten and seq >= self._unwritten[0].seq:
            self._unwritten[seq - self._unwritten[0].seq] = changed
        else:
            self._changed.append(changed)

    def flush(self) -> bool:
        """Write what waits to the store. Returns whether all is written; if not, a warning says why, once."""
        if self._stored is None:
            return True
        with self.lock:
            return self._store() if self._unwritten or self._changed else not self.store_error

    def _store(self, *more: Event, last: bool = False) -> bool:
        """Store what waits, and these events, which come next; all or nothing. At the last time also what was lost."""
        if self._stored is None:
            return True
        try:
            held = self._stored.held(often=not last)
            if held is not None:
                self._unwritten = self.since(held)
                self._changed = [event for event in self._changed if event.seq < held]
            self._stored.append([*self._unwritten, *more], self._changed)
        except (Unavailable, HandrailError) as error:
            self._cannot_write(str(error))
            return False
        self._unwritten, self._changed, self.store_error = [], [], ""
        return True

    def release(self) -> None:
        """Let others write the stored session, whatever waits here."""
        if self._stored is not None:
            self._stored.close()

    def _cannot_write(self, why: str) -> None:
        """Say so once; the warning waits with the other events."""
        known, self.store_error = self.store_error, why
        if not known:
            message = (
                f"The store cannot be written: {why}. {len(self._unwritten)} events wait in memory, and are lost if "
                "the program ends now. Until they are written, no new call is run."
            )
            self.write("warning", None, None, {"message": message})

    def _cleaned(
        self, clean: CleanEvents, type: EventType, parent: str | None, data: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        for kind, rest in [*clean.rest(type, parent)]:
            self.write(kind, None, parent, rest)
        return clean.data(type, parent, data)

    def _open(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            self.write("session_started", None, None, opening())

    def finish_output(self) -> None:
        """Emit all live output that still waits."""
        with self.lock:
            while self.waiting_output:
                self.waiting_output.popitem()[1].finish()

    def close(self) -> None:
        """End the transcript, and every `follow`. Raises HandrailError if the store lacks some of its events."""
        with self.lock:
            written = self._store(last=True) if self.events else True
        self.closed = True
        self._wake()
        if self._stored is not None:
            self._stored.close()
        if not written:
            count = len(self._unwritten)
            raise HandrailError(f"the last {count} events of the session are not in its store: {self.store_error}")

    def forget_calls_beyond(self, count: int) -> None:
        """From now on, keep the events of so many ended calls; a session in a store keeps all of them."""
        expect_number("the number of calls", count, "a whole number from 0 up", least=0, whole=True)
        if self._stored is None:
            self._forgets = _ForgottenCalls(self.events, count)

    def all(self) -> tuple[Event, ...]:
        """Every event that was not forgotten."""
        with self.lock:
            return tuple(self.events.values())

    def since(self, start: int) -> list[Event]:
        """The events from number `start` on."""
        events = self.events
        return [events[seq] for seq in range(start, self.count) if seq in events]

    async def follow(self, start: int = 0) -> AsyncIterator[Event]:
        """Yield every event from number `start`, then each new one, until the transcript is closed."""
        while True:
            while start < self.count:
                self.flush()
                start += 1
                if (event := self.events.get(start - 1)) is not None:
                    yield event
            woken = anyio.Event()
            self._waiting.append((running_loop(), woken))
            if start == self.count:
                if self.closed:
                    return
                await woken.wait()

    def _keep(self, event: Event) -> None:
        self.events[self.count] = event
        self.count += 1
        if self._forgets is not None and event.call_id is not None:
            self._forgets.add(event.call_id, event)

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


class _ForgottenCalls:
    """Removes the events of calls that ended long ago, and of each call the output that was dropped."""

    def __init__(self, events: dict[int, Event], most: int) -> None:
        self._events, self._most = events, most
        self._numbers: dict[str, list[int]] = {}
        """By call: the numbers of its events."""
        self._ended: deque[str] = deque()

    def add(self, call_id: str, event: Event) -> None:
        self._numbers.setdefault(call_id, []).append(event.seq)
        if event.type == "call_ended":
            self._ended.append(call_id)
            if len(self._ended) > self._most:
                for seq in self._numbers.pop(self._ended.popleft(), ()):
                    self._events.pop(seq, None)

    def output(self, event: Event) -> None:
        """Remove a piece of live output that has lost its text."""
        numbers = self._numbers.get(event.call_id or "")
        if numbers is not None and event.seq in numbers:
            numbers.remove(event.seq)
            del self._events[event.seq]
