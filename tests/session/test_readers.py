"""Readers of events can raise, block and fall behind without harm to any call."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Event, Session, tool
from handrail.testing import EventRecorder
from tests.gates.asked import until
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio


async def trivial(n: int) -> int:
    return n


def warnings(session: Session) -> list[str]:
    return [event.data["message"] for event in events_of(session, "warning")]


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


def plain_raises(event: Event) -> None:
    raise ValueError("no thanks")


def plain_exits(event: Event) -> None:
    raise SystemExit(1)


async def async_raises(event: Event) -> None:
    raise ValueError("no thanks")


async def async_exits(event: Event) -> None:
    raise SystemExit(1)


async def async_cancels(event: Event) -> None:
    raise anyio.get_cancelled_exc_class()


def plain_silent(event: Event) -> None:
    raise Silent


async def async_silent(event: Event) -> None:
    raise Silent


def forgets_to_await(event: Event) -> Any:
    return async_raises(event)


RAISING = (
    plain_raises, plain_exits, plain_silent, async_raises, async_exits, async_cancels, async_silent, forgets_to_await,
)  # fmt: skip


@pytest.mark.parametrize("reader", RAISING)
async def test_a_reader_that_raises_is_dropped_with_a_warning_and_nothing_else_happens(
    reader: Callable[[Event], Any],
) -> None:
    other = EventRecorder()
    async with Session([trivial], readers=[reader, other]) as session:
        for n in range(5):
            assert (await session.call("trivial", {"n": n})).value == n
            await anyio.sleep(0.002)
    assert len(endings(session)) == 5
    (warning,) = warnings(session)
    assert reader.__qualname__ in warning
    assert "dropped" in warning
    assert other.events == list(session.trace)  # the control: a good reader beside it has seen everything


async def test_readers_that_block_are_dropped_and_calls_do_not_wait_for_them() -> None:
    release = threading.Event()

    def plain_blocks(event: Event) -> None:
        release.wait(60)

    async def async_blocks(event: Event) -> None:
        await anyio.sleep_forever()

    stubborn_ended = anyio.Event()

    async def async_ignores(event: Event) -> None:
        while not stubborn_ended.is_set():
            with anyio.CancelScope(shield=True), anyio.move_on_after(0.5):
                await stubborn_ended.wait()

    other = EventRecorder()
    began = time.monotonic()
    async with Session([trivial], readers=[plain_blocks, async_blocks, async_ignores, other]) as session:
        for n in range(100):
            assert (await session.call("trivial", {"n": n})).ok
        calls_took = time.monotonic() - began
    took = time.monotonic() - began
    release.set()
    stubborn_ended.set()
    assert calls_took < 4 < took < 30
    assert len(endings(session)) == 100
    assert len(warnings(session)) == 3
    assert len(other.of("call_ended")) == 100
    await anyio.sleep(0.01)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_reader_that_falls_a_thousand_events_behind_is_dropped(is_async: bool) -> None:
    taken, release = threading.Event(), threading.Event()

    def slow(event: Event) -> None:
        taken.set()
        release.wait(60)

    async def slow_async(event: Event) -> None:
        taken.set()
        while not release.is_set():  # noqa: ASYNC110 - a thread's event on purpose
            await anyio.sleep(0.01)

    async with Session([], readers=[slow_async if is_async else slow]) as session:
        session.emit("text")
        await until(taken.is_set)
        for _ in range(999):  # session_started waits too
            session.emit("text")
        assert not warnings(session)
        session.emit("text")
        (warning,) = warnings(session)
        release.set()
    assert "1,000 events behind" in warning


async def test_an_async_reader_keeps_up_with_calls_that_never_wait() -> None:
    seen: list[Event] = []

    async def reader(event: Event) -> None:
        seen.append(event)

    async with Session([trivial], readers=[reader]) as session:
        for turn in range(4):
            session.begin_run()
            for n in range(400):
                await session.call("trivial", {"n": n + turn})
    assert not warnings(session)
    assert seen == list(session.trace)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_readers_see_everything_also_when_the_block_ends_badly(cancelled: bool) -> None:
    seen: list[Event] = []

    async def reader(event: Event) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(event)

    recorder = EventRecorder()
    session = Session([trivial], readers=[reader, recorder])
    with anyio.CancelScope() as scope:
        try:
            async with session:
                await session.call("trivial", {"n": 1})
                if cancelled:
                    scope.cancel()
                    await anyio.sleep(30)
                raise LookupError("the caller's own")  # it comes out as itself, not in a group
        except LookupError:
            pass
    assert scope.cancelled_caught == cancelled
    assert [event.type for event in seen] == ["session_started", "call_started", "call_running", "call_ended"]
    assert seen == recorder.events == list(session.trace)
    assert not warnings(session)


@pytest.mark.parametrize("how", ["scope", "task"])
async def test_a_cancelled_closing_lasts_until_the_readers_have_seen_everything(how: str) -> None:
    seen: list[str] = []
    leaving, go_on, scope = asyncio.Event(), asyncio.Event(), anyio.CancelScope()

    async def reader(event: Event) -> None:
        await go_on.wait()
        seen.append(event.type)

    async def work() -> None:
        with scope:
            async with Session([trivial], readers=[reader]) as session:
                await session.call("trivial", {"n": 1})
                leaving.set()

    task = asyncio.ensure_future(work())
    await leaving.wait()
    (scope if how == "scope" else task).cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done(), "it waits for the reader"
    go_on.set()
    await asyncio.wait([task])
    assert (scope.cancelled_caught, task.cancelled()) == (how == "scope", how == "task")
    assert seen == ["session_started", "call_started", "call_running", "call_ended"]


async def test_the_end_of_a_call_that_ends_slowly_is_seen_by_readers_and_followers() -> None:
    followed: list[Event] = []
    recorder, begun = EventRecorder(), anyio.Event()

    @tool
    async def slow_to_end() -> None:
        """Take a while to clean up."""
        begun.set()
        try:
            await anyio.sleep(600)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)

    async def follow(session: Session) -> None:
        async for event in session.events():
            followed.append(event)

    session = Session([slow_to_end], readers=[recorder])
    async with session:
        following = asyncio.create_task(follow(session))
        call = asyncio.create_task(session.call("slow_to_end"))
        await begun.wait()
        call.cancel()
        await anyio.lowlevel.checkpoint()
    await following
    types = [event.type for event in recorder.events]
    assert types == ["session_started", "call_started", "call_running", "call_ended"]
    assert recorder.events == followed == list(session.trace)


async def test_a_session_that_ends_at_once_leaves_no_reader_behind() -> None:
    seen: list[str] = []

    async def reader(event: Event) -> None:
        seen.append(event.type)

    async with Session([], readers=[reader]) as session:
        session.emit("text")
    assert seen == ["session_started", "text"]
