"""The transcript has no gaps, is never changed, and is followed at any pace and from any thread."""

import sys
import threading
from typing import Any

import anyio
import pytest

from handrail import Context, Event, Session, Tool
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio


async def trivial(n: int) -> int:
    return n


async def test_a_follower_gets_what_was_what_comes_and_the_end() -> None:
    early: list[Event] = []
    late: list[Event] = []
    tail: list[Event] = []

    async def follow(session: Session, into: list[Event], start: int = 0) -> None:
        async for event in session.events(start):
            into.append(event)

    async with anyio.create_task_group() as group, Session([trivial]) as session:
        group.start_soon(follow, session, early)
        await session.call("trivial", {"n": 1})
        await anyio.sleep(0.005)
        assert [event.type for event in early] == ["session_started", "call_started", "call_running", "call_ended"]
        group.start_soon(follow, session, late)
        group.start_soon(follow, session, tail, 3)
        await session.call("trivial", {"n": 2})
    assert early == late == list(session.trace)
    assert tail == list(session.trace)[3:]
    assert len(early) == 7


async def test_many_threads_write_and_every_follower_sees_one_order_without_gaps(
    request: pytest.FixtureRequest,
) -> None:
    seen: list[Event] = []
    workers, each = 8, 1_500
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change places as often as they can
    request.addfinalizer(lambda: sys.setswitchinterval(interval))

    def noisy(context: Context, name: str) -> str:
        for n in range(each):
            context.show(f"{n} ")
        return threading.current_thread().name

    async def follow(session: Session) -> None:
        async for event in session.events():
            seen.append(event)

    async with anyio.create_task_group() as group, Session([noisy]) as session:
        group.start_soon(follow, session)
        async with anyio.create_task_group() as calls:
            for worker in range(workers):
                calls.start_soon(session.call, "noisy", {"name": f"w{worker}"})
    endings(session)
    assert seen == list(session.trace)
    assert [event.seq for event in seen] == list(range(len(seen)))
    shown = [event for event in seen if event.type == "call_output"]
    assert len({event.call_id for event in shown}) == workers
    for call_id in {event.call_id for event in shown}:
        lines = [int(n) for event in shown if event.call_id == call_id for n in event.data["text"].split()]
        assert lines == list(range(each))


async def test_what_a_tool_shows_is_text_even_if_it_was_bytes_and_belongs_to_its_call() -> None:
    async def shows(context: Context) -> None:
        context.show("héllo")
        context.show(b"caf\xc3\xa9 \xff", stream="stdout")

    async with Session([shows]) as session:
        await session.call("shows", id="mine")
    output = events_of(session, "call_output")
    assert [(event.call_id, event.data["text"], event.data["stream"]) for event in output] == [
        ("mine", "héllo", "progress"), ("mine", "café �", "stdout"),
    ]  # fmt: skip


async def test_nothing_that_happens_later_changes_what_was_written_or_answered() -> None:
    kept: dict[str, Any] = {"n": 0, "list": [1]}
    flat, numbers = {"n": 0}, [0]

    def careless(context: Context, arguments: Any) -> Any:
        arguments["more"].append("changed")
        arguments["added"] = True
        kept["n"] += 1
        kept["list"].append(kept["n"])
        return kept

    def counts() -> dict[str, int]:
        flat["n"] += 1
        return flat

    def lists() -> list[int]:
        numbers.append(len(numbers))
        return numbers

    given = {"more": ["as sent"]}
    async with Session([counts, lists]) as session:
        answers = [await session.call(name) for name in ("counts", "lists", "counts", "lists")]
    assert [answer.value for answer in answers] == [{"n": 1}, [0, 1], {"n": 2}, [0, 1, 2]]
    async with Session([Tool("careless", {"type": "object"}, careless)]) as session:
        first = await session.call("careless", given)
        second = await session.call("careless", given)
        given["more"].append("by the caller")
    assert (first.value, second.value) == ({"n": 1, "list": [1, 1]}, {"n": 2, "list": [1, 1, 2]})
    for event in events_of(session, "call_started"):
        assert event.data["arguments"] == {"more": ["as sent"]}
    assert [event.data["result"]["result"]["n"] for event in endings(session).values()] == [1, 2]
    assert given == {"more": ["as sent", "by the caller"]}


async def test_a_mapping_that_cannot_be_read_is_refused_and_recorded_all_the_same() -> None:
    around: dict[str, Any] = {}
    around["again"] = around
    async with Session([trivial]) as session:
        results = [await session.call("trivial", each) for each in (around, {"n": {1, 2}}, None, [1])]  # type: ignore[arg-type]
    assert [result.kind for result in results if not result.ok] == ["invalid_args"] * 4
    assert len(endings(session)) == 4
