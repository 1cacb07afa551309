"""What running calls show, given to a framework as it comes: one reader of a session's events for all of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

import anyio

from handrail.aio import in_background
from handrail.contract.event import Event
from handrail.log import report
from handrail.session.session import Session, core_of

Show = Callable[[str, str], Awaitable[object]]
"""Is given a stream (stdout, stderr, progress) and a piece of what the call shows on it."""


class _Live:
    """Reads the events of a session while one of its calls is to be shown."""

    def __init__(self) -> None:
        self.shown: dict[str, tuple[Show, anyio.Event]] = {}
        """By the id of a call: to whom it is shown, and what is set when all of it was."""
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
    """Show what the call with this id prints; at the end of the block all of it was shown."""
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
