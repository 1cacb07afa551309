"""run_sync: call async code from plain code."""

from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import current_token

from handrail.contract.errors import HandrailError
from handrail.misuse import shown

T = TypeVar("T")


def run_sync(work: Awaitable[T] | Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run a coroutine, or an async function with its arguments, and return its value.

    The body of a `def` tool, and threads that it starts, may use it too: the sandbox and the session do their part on
    their own event loop. Raises HandrailError inside a running event loop; use `await` there.

    Example:
        ```python
        import threading

        async def work(n: int) -> int:
            return n + 1

        thread = threading.Thread(target=lambda: print(run_sync(work, 41)))  # a thread without an event loop
        thread.start()
        thread.join()
        #> 42
        ```
    """
    if isinstance(work, type) or not (isawaitable(work) or callable(work)):
        raise HandrailError(_misused(work))
    if not _is_in_loop():
        return _without_loop().run(anyio.run, partial(_await, work, args))
    if isawaitable(work) and hasattr(work, "close"):
        work.close()
    raise HandrailError("run_sync() was called inside a running event loop; write `await` instead")


def _is_in_loop() -> bool:
    try:
        current_token()
    except RuntimeError:
        return False
    return True


def _without_loop() -> Context:
    """A copy of the caller's context without its event loop, which a body's thread inherits from its caller."""
    context = Context()
    for variable, value in copy_context().items():
        if "async_library" not in variable.name:
            context.run(variable.set, value)
    return context


def _misused(given: object) -> str:
    """The advice for a misused `run_sync(given)`: what to write instead."""
    entered = hasattr(type(given), "__aenter__")
    what = repr(given) if entered else shown(given)
    use = ", use it there with `async with … as …:`," if entered else ""
    return f"run_sync() was given {what}; write an `async def main()`{use} and run_sync(main)"


async def _await(work: Awaitable[T] | Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    awaited: Any = work(*args) if callable(work) else work
    if not isawaitable(awaited):
        name = getattr(work, "__name__", "main")
        raise HandrailError(
            f"run_sync() was given {shown(work)}, which returned {shown(awaited)}; write `async def {name}`, or call "
            "it without run_sync"
        )
    value: T = await awaited
    return value
