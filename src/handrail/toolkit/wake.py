"""Set an event of an event loop from any thread, without ever blocking the one who sets it."""

import anyio
from anyio.lowlevel import EventLoopToken


def wake(token: EventLoopToken, woken: anyio.Event) -> None:
    """A loop that has ended needs no waking."""
    loop = token.native_token
    soon = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon  # type: ignore[attr-defined]
    try:
        soon(woken.set)
    except RuntimeError:
        return
