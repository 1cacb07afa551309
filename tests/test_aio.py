"""A closing runs to its end, whatever cancels the task that waits for it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest
import trio

from handrail import HandrailError, Session, open_sandbox
from handrail.aio import finish

pytestmark = pytest.mark.anyio


class Closing:
    """Something that takes a few turns of the loop to close, once it is told to go on."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.steps: list[str] = []

    async def __call__(self) -> None:
        self.steps.append("begun")
        self.begun.set()
        await self.go_on.wait()
        await asyncio.sleep(0)
        self.steps.append("ended")

    async def let_go(self) -> None:
        """After whoever waits was cancelled: the loop's timers fire in order."""
        await self.begun.wait()
        await asyncio.sleep(0.05)
        self.go_on.set()


async def by_task_cancel(closing: Closing, close: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(close())
    await closing.begun.wait()
    task.cancel()
    await closing.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def by_task_cancel_twice(closing: Closing, close: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(close())
    await closing.begun.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await closing.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_wait_for(closing: Closing, close: Callable[[], Awaitable[None]]) -> None:
    letting = asyncio.ensure_future(closing.let_go())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(close(), 0.001)
    await letting


async def by_asyncio_timeout(closing: Closing, close: Callable[[], Awaitable[None]]) -> None:
    letting = asyncio.ensure_future(closing.let_go())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await close()
    await letting


async def by_a_task_group(closing: Closing, close: Callable[[], Awaitable[None]]) -> None:
    async def fail() -> None:
        await closing.begun.wait()
        asyncio.get_running_loop().create_task(closing.let_go())
        raise ValueError("another task of the group fails")

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(close())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        await together()


async def by_a_cancel_scope(closing: Closing, close: Callable[[], Awaitable[None]]) -> None:
    letting = asyncio.ensure_future(closing.let_go())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await close()
        pytest.fail("the cancellation was not raised afterwards")
    assert scope.cancelled_caught
    await letting


WAYS = [
    by_task_cancel,
    by_task_cancel_twice,
    by_wait_for,
    by_asyncio_timeout,
    by_a_task_group,
    by_a_cancel_scope,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_cancelled_closing_ends_before_the_cancellation_is_raised(way: Callable[..., Awaitable[None]]) -> None:
    closing = Closing()
    ended_before: list[bool] = []

    async def close() -> None:
        try:
            await finish(closing)
        finally:
            ended_before.append(closing.steps == ["begun", "ended"])

    await way(closing, close)
    assert ended_before == [True]


@pytest.mark.parametrize("way", [way for way in WAYS if way is not by_a_cancel_scope], ids=lambda way: way.__name__)
async def test_control_a_shield_alone_does_not_hold_asyncios_own_cancellation(
    way: Callable[..., Awaitable[None]],
) -> None:
    closing = Closing()
    ended_before: list[bool] = []

    async def close() -> None:
        try:
            with anyio.CancelScope(shield=True):
                await closing()
        finally:
            ended_before.append(closing.steps == ["begun", "ended"])

    await way(closing, close)
    assert ended_before == [False]


async def test_a_closing_that_nobody_cancels_returns() -> None:
    closing = Closing()
    closing.go_on.set()
    await finish(closing)
    assert closing.steps == ["begun", "ended"]


async def test_what_a_closing_raises_is_raised() -> None:
    async def closing() -> None:
        raise OSError("cannot close")

    with pytest.raises(OSError, match="cannot close"):
        await finish(closing)


async def test_a_cancellation_names_what_the_closing_raised_as_its_cause() -> None:
    held = Closing()

    async def closing() -> None:
        await held()
        raise OSError("cannot close")

    task = asyncio.ensure_future(finish(closing))
    await held.begun.wait()
    task.cancel()
    await held.let_go()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert isinstance(raised.value.__cause__, OSError)


def test_the_end_of_the_loop_ends_a_closing_that_would_last() -> None:
    steps: list[str] = []
    begun = asyncio.Event()

    async def closing() -> None:
        steps.append("begun")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("told")

    async def main() -> None:
        task = asyncio.ensure_future(finish(closing))
        await begun.wait()
        assert not task.done()

    asyncio.run(main())
    gc.collect()
    assert steps == ["begun", "told"]


def test_under_trio_a_session_and_a_sandbox_say_that_they_need_asyncio() -> None:
    async def main() -> None:
        with pytest.raises(HandrailError, match="A Session runs on asyncio"):
            Session()
        with pytest.raises(HandrailError, match="A sandbox runs on asyncio"):
            async with open_sandbox("memory"):
                pass

    trio.run(main)
    Session()  # outside any event loop nothing is wrong yet


async def test_a_coroutine_that_is_destroyed_inside_another_task_leaves_no_scope_on_it() -> None:
    async def unfinished() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            await finish(anyio.Event().wait)

    with anyio.CancelScope():
        destroyed = unfinished()
        destroyed.send(None)
        with pytest.raises(RuntimeError, match="ignored GeneratorExit"):  # the control: it awaits
            destroyed.close()
        await asyncio.sleep(0)


async def test_a_generator_that_is_closed_finishes_its_closing_first() -> None:
    closed = []

    async def closing() -> None:
        await anyio.sleep(0.01)
        closed.append(True)

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await finish(closing)

    every = numbers()
    assert await anext(every) == 1
    await every.aclose()
    assert closed == [True]
