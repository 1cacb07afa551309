"""SIGINT, which Ctrl-C sends: which commands it ends, and that it ends one which is still importing at once."""

from collections.abc import Awaitable, Callable
from signal import SIG_IGN, SIGINT, Signals, getsignal, signal
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

from handrail.lazy import Lazy

if TYPE_CHECKING:
    import anyio as _anyio
else:
    _anyio = Lazy("anyio")

T = TypeVar("T")
IMPORTING: Final = "<frozen importlib._bootstrap>"
"""The file of the interpreter's own function that loads a module."""


def interrupts() -> tuple[Signals, ...]:
    """SIGINT, or nothing where it is ignored: a shell starts a script's background jobs so, and they are to go on."""
    return () if getsignal(SIGINT) is SIG_IGN else (SIGINT,)


def run_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run an event loop until the work is done. Raises KeyboardInterrupt after SIGINT."""
    return _anyio.run(_watched, work)


async def _watched(work: Callable[[], Awaitable[T]]) -> T:
    """The loop's own way is to cancel the work at its next await, and nothing is awaited while a module is loaded."""
    by_loop = getsignal(SIGINT)
    if not callable(by_loop):
        return await work()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            raise KeyboardInterrupt
        by_loop(number, frame)

    signal(SIGINT, interrupt)
    try:
        return await work()
    finally:
        if getsignal(SIGINT) is interrupt:
            signal(SIGINT, by_loop)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False
