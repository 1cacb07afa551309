"""A call that was begun can be used from every thread and every event loop, and outlives none that it runs on."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from handrail import ApprovalRequest, Context, Decision, Failure, HandrailError, Pending, Policy, Session, tool
from tests.gates.asked import ASK, ran, save, settled
from tests.journeys.evidence import endings


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


async def approve(pending: Pending) -> Any:
    with anyio.fail_after(60):
        request = await pending.next()
        assert isinstance(request, ApprovalRequest)
        assert pending.answer(request.id, Decision.approve())
        return await pending.next()


@tool(effects=["writes"], lane="book")
async def note(text: str) -> str:
    """Write a line into the book."""
    return text


class Held(threading.Thread):
    """A thread that is held where it enters a function, until it is let go."""

    def __init__(self, work: Callable[[], object], function: str) -> None:
        super().__init__(daemon=True)
        self.reached, self.go = threading.Event(), threading.Event()
        self._work, self._function = work, function
        self.start()

    def run(self) -> None:
        sys.setprofile(self._hold)
        self._work()

    def _hold(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == self._function and not self.reached.is_set():
            self.reached.set()
            self.go.wait(2)  # nobody waits for ever: the event loop itself may wait for this thread


@pytest.mark.anyio
async def test_a_thread_with_an_event_loop_of_its_own_can_begin_answer_and_wait() -> None:
    async with Session([save], policy=ASK) as session:

        def elsewhere(path: str) -> Any:
            async def work() -> Any:
                return await approve(session.begin("save", {"path": path}))

            return asyncio.run(work())

        results = []

        async def one(path: str) -> None:
            results.append(await anyio.to_thread.run_sync(elsewhere, path))

        async with anyio.create_task_group() as group:
            for path in "abcd":
                group.start_soon(one, path)
    assert sorted(result.value for result in results) == [f"saved {path}" for path in "abcd"]
    assert len(ran) == 4
    assert settled(session) == ["approve"] * 4


@pytest.mark.anyio
async def test_a_plain_thread_can_begin_and_answer() -> None:
    async with Session([save], policy=ASK) as session:
        pending = await anyio.to_thread.run_sync(lambda: session.begin("save", {"path": "a"}))
        request = await pending.next()
        assert isinstance(request, ApprovalRequest)
        assert await anyio.to_thread.run_sync(pending.answer, request.id, Decision.approve())
        result = await pending.next()
        assert not isinstance(result, ApprovalRequest)
        assert result.value == "saved a"


@pytest.mark.anyio
@pytest.mark.parametrize("by", ["cancel", "close"])
async def test_what_a_thread_began_is_ended_even_before_the_event_loop_has_taken_it(by: str) -> None:
    begun: list[Pending] = []
    async with Session([save], policy=ASK) as session:
        thread = threading.Thread(target=lambda: begun.append(session.begin("save", {"path": "a"})))
        thread.start()
        thread.join()  # the event loop must not run meanwhile
        if by == "cancel":
            begun[0].cancel()
            result = await begun[0].next()
    if by == "close":
        result = await begun[0].next()
    assert isinstance(result, Failure)
    assert result.kind == "cancelled"
    assert settled(session) == []
    assert len(endings(session)) == 1
    assert ran == []


@pytest.mark.anyio
async def test_a_session_can_be_closed_while_a_thread_begins_a_call() -> None:
    begun: list[Pending] = []
    async with Session([save], policy=ASK) as session:
        thread = Held(lambda: begun.append(session.begin("save", {"path": "a"})), "start")
        await anyio.to_thread.run_sync(thread.reached.wait)
        threading.Timer(0.1, thread.go.set).start()
    await anyio.to_thread.run_sync(thread.join)
    result = await begun[0].next()
    assert isinstance(result, Failure)
    assert result.kind == "cancelled"
    assert len(endings(session)) == 1
    assert ran == []


@pytest.mark.anyio
async def test_an_answer_that_meets_the_end_of_the_wait_does_not_block_the_lane() -> None:
    async with Session([note], policy=Policy(ask=["note(a)"], mode="open")) as session:
        pending = session.begin("note", {"text": "a"}, wait=1.0)
        request = await pending.next()
        assert isinstance(request, ApprovalRequest)
        thread = Held(lambda: pending.answer(request.id, Decision.approve()), "admit")
        await anyio.to_thread.run_sync(thread.reached.wait)
        while isinstance(result := await pending.next(), ApprovalRequest):  # noqa: ASYNC110 - it comes until then
            await anyio.sleep(0.01)
        thread.go.set()
        await anyio.to_thread.run_sync(thread.join)
        assert isinstance(result, Failure)
        assert result.kind == "approval_timeout"
        with anyio.fail_after(60):
            assert (await session.call("note", {"text": "b"})).ok


@pytest.mark.anyio
async def test_one_of_many_threads_gets_its_answer_counted() -> None:
    async with Session([save], policy=ASK) as session:
        pending, counted = session.begin("save", {"path": "a"}), []
        request = await pending.next()
        assert isinstance(request, ApprovalRequest)
        together = threading.Barrier(8)

        def answer() -> None:
            together.wait()
            counted.append(pending.answer(request.id, Decision.approve()))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(anyio.to_thread.run_sync, answer)
        await pending.next()
    assert sorted(counted) == [False] * 7 + [True]
    assert len(ran) == 1


@pytest.mark.anyio
async def test_the_body_of_another_call_can_begin_one_and_its_result_is_there_after_it() -> None:
    begun: list[Pending] = []

    @tool
    def starts(context: Context) -> str:
        """Start something that goes on."""
        begun.append(session.begin("save", {"path": "a"}, parent=context.call.id))
        return "started"

    async with Session([save, starts], policy=ASK) as session:
        assert (await session.call("starts")).value == "started"
        assert (await approve(begun[0])).value == "saved a"
    assert endings(session)[begun[0].id].parent == "call_1"


def test_where_no_event_loop_runs_nothing_can_begin() -> None:
    session = Session([save])
    with pytest.raises(HandrailError, match="event loop of its session"):
        session.begin("save", {"path": "a"})
    assert session.call_count == 0


def test_a_call_that_is_parked_when_its_event_loop_ends_is_cancelled() -> None:
    kept: list[Any] = []

    async def first() -> None:
        session = Session([save], policy=ASK)
        kept.extend([session, session.begin("save", {"path": "a"})])
        await kept[1].next()

    asyncio.run(first())
    session, pending = kept
    result = asyncio.run(asyncio.wait_for(pending.next(), 60))
    assert result.kind == "cancelled"
    assert [ended.data["kind"] for ended in endings(session).values()] == ["cancelled"]
    assert settled(session) == ["cancelled"]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_call_whose_event_loop_was_killed_has_a_result(closed: bool) -> None:
    """Nobody cancels its task: the loop just stops, and perhaps is closed."""
    kept: list[Any] = []

    async def first() -> None:
        session = Session([save], policy=ASK)
        kept.extend([session, session.begin("save", {"path": "a"})])
        await kept[1].next()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # that a pending task is destroyed is not news
    loop.run_until_complete(first())
    request_id = asyncio.run(kept[1].next()).id
    if closed:
        loop.close()
    kept[1].cancel()
    result = asyncio.run(asyncio.wait_for(kept[1].next(), 60))
    assert result.kind == "cancelled"
    assert not kept[1].answer(request_id, Decision.approve())
    assert ran == []
    kept.clear()
    loop.close()
    del loop
    gc.collect()
