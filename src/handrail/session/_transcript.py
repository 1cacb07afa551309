"""The append-only list of a session's events. Many readers may follow it, each at its own pace.

Where there is a store, events wait in memory until somebody may see them, or a tool's body begins; then they are
written together, inline, in the thread that is there. Events leave by `_deliver`, `follow` and `all`, which store
them first; what else somebody is shown is in an event of STORED_AT_ONCE, which `write` stores before it returns.
"""

import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from random import random
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

import anyio

from handrail.aio import call_on, loop_here, running_loop
from handrail.contract.errors import HandrailError, Locked, Unavailable
from handrail.contract.event import Event, EventType
from handrail.contract.limits import STORE_RETRY_PAUSE_SECONDS, STORE_RETRY_SECONDS
from handrail.misuse import expect_number
from handrail.session._live import LiveOutput
from handrail.session._secrets import PIECES, CleanEvents

if TYPE_CHECKING:
    from handrail.store.stored import StoredSession


MAX_UNWRITTEN: Final = 256
"""Events that wait for the next write at most, where nobody looks at them."""
UNWRITTEN_SECONDS: Final = 0.2
"""Seconds that an event waits for the next write at most, so that other processes see it."""
PRINTING: Final = {"call_started": 1, "job_started": 1, "call_ended": -1, "job_ended": -1}
"""Change in the number of a call's printers, by type of event."""
STORED_AT_ONCE: Final = frozenset(
    {
        "session_started", "session_resumed",  # a list of sessions shows it; Session.resume returns
        "user", "steered", "collapsed", "summarised",  # the model is told, which may be a person
        "approval_asked",  # an approver, or who waits for a Pending, is asked
        "call_ended", "run_ended",  # a gate, a body, the caller gets the Result or the Outcome
    }
)  # fmt: skip
"""Types of events after which somebody is shown what they say, whether or not anybody reads events."""
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
        """Retained events by sequence number."""
        self.count = len(self.events)  # of all that there were: the number of the next one
        self._forgets: _ForgottenCalls | None = None
        self._opening = None if self.events else opening
        """Called before the first event is written: the data of `session_started`."""
        self.store_error = ""
        """Why the store could not be written the last time; empty while it can."""
        self._locked_since = 0.0
        """When another process was first seen to have the store locked, since it was last written; else 0."""
        self._gave_up = self._warned = False
        """Whether somebody waited in vain for a locked store, and whether a warning says that it cannot be written."""
        self._stored = stored
        self.clean = clean
        """Removes the session's secrets, if it has any."""
        self._unwritten: list[Event] = []
        self._changed: list[Event] = []
        self.listeners: list[Callable[[Event], None]] = []
        """Called with each event, in order, in the writer's thread; a listener must not block or raise."""
        self.lock = threading.RLock()  # held while anything is written
        self.waiting_output: dict[str, LiveOutput] = {}
        """Live output that waits for its next event, by call."""
        self._printing = Counter[str | None]()
        """Number of running printers (the call and its jobs), by call; only in a session with secrets."""
        self.closed = False
        self._delivered = self.count
        """The number of the next event for the listeners."""
        self._delivering = False
        self._delivers_on: Any = None
        self._flushes_on: Any = None
        """Event loops that will deliver, and write, what waits: at the next turn, and if nothing else does before."""
        self._waiting: dict[anyio.Event, Any] = {}  # wake-up calls of followers, and the event loop of each

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
            event = self.events[self.count] = Event(self.count, time(), type, call_id, parent, data)
            self.count += 1
            if self._forgets is not None and call_id is not None:
                self._forgets.add(call_id, event)
            if self._stored is not None:
                self._unwritten.append(event)
                if type in STORED_AT_ONCE or len(self._unwritten) >= MAX_UNWRITTEN:
                    self.flush()
                else:
                    self._flush_later()
            if self.listeners:
                self._deliver(soon=type in PIECES)
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
            self.events[self.count] = event  # only a session without a store forgets any
            self.count += 1
            if self.listeners:
                self._deliver()
        if self._waiting:
            self._wake()
        return ""

    async def begin_when_free(self, call_id: str, parent: str | None) -> str:
        """Write `call_running` after `begin` could not, once no other process has the store locked.

        Returns why it cannot be stored; empty if it was written.
        """
        return await self._until_free(lambda: self.begin(call_id, parent), self.store_error)

    async def settle(self) -> bool:
        """Flush, if need be once no other process has the store locked. Returns whether all is written."""
        if self.flush():
            return True
        return not await self._until_free(lambda: "" if self.flush() else self.store_error, self.store_error)

    async def _until_free(self, attempt: Callable[[], str], why: str) -> str:
        """Repeat what a locked store made fail, for up to STORE_RETRY_SECONDS; other tasks run meanwhile.

        The pauses are random: processes that were refused together do not come back together. After one wait in vain,
        nobody waits until the store was written again. Returns why it failed the last time; empty if it did not.
        """
        end = monotonic() + STORE_RETRY_SECONDS
        while why and self.locked and not self._gave_up:
            if monotonic() > end:
                self._gave_up = True
                self._warn_unwritten()
                break
            await anyio.sleep(random() * STORE_RETRY_PAUSE_SECONDS)
            why = attempt()
        return why

    @property
    def locked(self) -> bool:
        """Whether the last write failed because another process was writing."""
        return self._locked_since > 0

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
                self._changed = [event for event in self.events.values() if event.seq < held and _lost_text(event)]
            self._stored.append([*self._unwritten, *more], self._changed)
        except (Unavailable, HandrailError) as error:
            self._cannot_write(error)
            return False
        self._unwritten, self._changed, self.store_error = [], [], ""
        self._locked_since, self._gave_up, self._warned = 0.0, False, False
        return True

    def release(self) -> None:
        """Let others write the stored session, whatever waits here."""
        if self._stored is not None:
            self._stored.close()

    def _cannot_write(self, error: Exception) -> None:
        """Say so once, and of a lock only when it lasts: others write too, and it is tried again."""
        self.store_error = str(error)
        if not isinstance(error, Locked):
            self._locked_since = 0.0
            self._warn_unwritten()
            return
        self._locked_since = self._locked_since or monotonic()
        if monotonic() > self._locked_since + STORE_RETRY_SECONDS:
            self._warn_unwritten()

    def _warn_unwritten(self) -> None:
        """Write a warning, which waits with the other events."""
        if not self._warned:
            self._warned = True
            message = (
                f"The store cannot be written: {self.store_error}. {len(self._unwritten)} events wait in memory, "
                "and are lost if the program ends now. Until they are written, no new call is run."
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
            if self.listeners:
                self._deliver()

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
            self._storing()
            return tuple(self.events.values())

    def since(self, start: int) -> list[Event]:
        """The events from number `start` on."""
        events = self.events
        if self._forgets is None:  # all are there: no look-up of each, in every round
            return list(map(events.__getitem__, range(start, self.count)))
        return [events[seq] for seq in range(start, self.count) if seq in events]

    async def follow(self, start: int = 0) -> AsyncIterator[Event]:
        """Yield every event from number `start`, then each new one, until the transcript is closed."""
        while True:
            while start < self.count:
                for seq in range(start, self._storing()):
                    start = seq + 1
                    if (event := self.events.get(seq)) is not None:
                        yield event
            woken = anyio.Event()
            self._waiting[woken] = running_loop()
            try:
                if start == self.count:
                    if self.closed:
                        return
                    await woken.wait()
            finally:
                self._waiting.pop(woken, None)  # a follower that leaves while nothing happens is forgotten

    def _storing(self) -> int:
        """Store every event before it is shown. Returns how many there are; a warning among them says if it failed."""
        if self._stored is None:
            return self.count
        with self.lock:  # no other thread may write one in between
            self.flush()
            return self.count

    def _deliver(self, *, soon: bool = False) -> None:
        """Give the listeners what they have not seen, in order, even if a listener writes more (that it was dropped).

        `soon` waits for the next turn of the event loop: one commit then stores all pieces that arrived together.
        """
        if self._delivering or (soon and self._stored is not None and self._deliver_later()):
            return
        self._delivering = True
        while self._delivered < self.count:
            for seq in range(self._delivered, self._storing()):
                self._delivered = seq + 1
                if (event := self.events.get(seq)) is not None:
                    for listener in self.listeners:
                        listener(event)
        self._delivering = False

    def _flush_later(self) -> None:
        """Have what waits written within UNWRITTEN_SECONDS: other processes read the store.

        One timer serves all events of that time; without an event loop, the next write does it.
        """
        if self._flushes_on is not None and self._flushes_on.is_running():
            return
        if (loop := loop_here()) is not None:
            self._flushes_on = loop
            loop.call_later(UNWRITTEN_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._flushes_on = None
        if not self.closed:
            self.flush()

    def _deliver_later(self) -> bool:
        """Whether there is an event loop that will deliver what waits."""
        loop = loop_here()
        if loop is None or self.count - self._delivered >= MAX_UNWRITTEN:
            return False
        if self._delivers_on is not loop:
            self._delivers_on = loop
            loop.call_soon(self._deliver_now)
        return True

    def _deliver_now(self) -> None:
        with self.lock:
            self._delivers_on = None
            self._deliver()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for woken, loop in waiting.items():
            call_on(loop, woken.set)


def _lost_text(event: Event) -> bool:
    return event.type == "call_output" and "dropped" in event.data


class _ForgottenCalls:
    """Removes the events of calls that ended long ago, and of each call the output that was dropped."""

    def __init__(self, events: dict[int, Event], most: int) -> None:
        self._events, self._most = events, most
        self._numbers: dict[str, list[int]] = {}
        """Numbers of the events, by call."""
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
