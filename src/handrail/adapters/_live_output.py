"""Live output of running calls, passed to a framework as it comes: one reader of a session's events for all calls."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

import anyio

from handrail.aio import in_background
from handrail.contract.event import Event
from handrail.log import report
from handrail.session.session import Session, core_of

Show = Callable[[str, str], Awaitable[object]]
"""Receiver of live output: called with a stream (stdout, stderr, progress) and a piece of text."""


class _Live:
    """Reader of a session's events while at least one of its calls is shown."""

    def __init__(self) -> None:
        self.shown: dict[str, tuple[Show, anyio.Event]] = {}
        """Receiver of the output and the event that is set after the last piece, by the id of a call."""
        self.reading = False

    async def read(self, session: Session, start: int) -> None:
        try:
            async for event in session.events(start):
                if event.call_id in self.shown:
                    await self._tell(event, *self.shown[event.call_id])
                if not self.shown:
                    return
        finally:
            self.reading = False
            for _, told in self.shown.values():  # the session has ended
                told.set()
            self.shown.clear()

    async def _tell(self, event: Event, show: Show, told: anyio.Event) -> None:
        over = event.type == "call_ended"
        if event.type == "call_output" and event.data.get("text"):
            try:
                await show(event.data["stream"], event.data["text"])
            except Exception as error:  # noqa: BLE001 - whoever cannot show it does not stop the call
                report("What a call shows", error)
                over = True
        if over:
            told.set()
            self.shown.pop(event.call_id or "", None)


_all: WeakKeyDictionary[Session, _Live] = WeakKeyDictionary()


@asynccontextmanager
async def shown(session: Session, id: str, show: Show) -> AsyncIterator[None]:
    """Show the output of the call with this id; all of the output was shown when the block ends."""
    if not core_of(session).own_loop.here():  # the call runs on another event loop, and so would whoever shows it
        yield
        return
    live, told = _all.setdefault(session, _Live()), anyio.Event()
    live.shown[id] = show, told
    if not live.reading:  # it may wait for an event yet, though the call before was cancelled
        live.reading = True
        in_background(live.read(session, session.event_count))
    try:
        yield
        await told.wait()
    finally:
        live.shown.pop(id, None)
