"""Reach an event loop from any thread, without ever blocking the one who does."""

from collections.abc import Callable

import anyio
from anyio.lowlevel import EventLoopToken


def soon(token: EventLoopToken, function: Callable[[], object]) -> None:
    """Call it in the loop's own thread; a loop that has ended needs nothing any more."""
    loop = token.native_token
    call = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon  # type: ignore[attr-defined]
    try:
        call(function)
    except RuntimeError:
        return


def wake(token: EventLoopToken, woken: anyio.Event) -> None:
    """Set an event of that loop."""
    soon(token, woken.set)
