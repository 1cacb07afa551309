"""A session that runs for weeks keeps the events of its last calls, and its numbers stay what they were."""

import anyio
import pytest

from handrail import Context, Event, HandrailError, Session, Store, tool
from handrail.session._live import TRANSCRIPT_TEXT_LIMIT
from handrail.session.session import core_of

pytestmark = pytest.mark.anyio


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


async def test_only_the_events_of_the_last_calls_are_kept() -> None:
    async with Session([add]) as session:
        core_of(session).transcript.forget_calls_beyond(10)
        for number in range(100):
            await session.call("add", {"a": number})
    ended = [event for event in session.trace if event.type == "call_ended"]
    assert [event.call_id for event in ended] == [f"call_{number}" for number in range(91, 101)]
    assert {event.call_id for event in session.trace} == {None, *(event.call_id for event in ended)}
    assert session.event_count > 100 > len(session.trace)


async def test_a_call_that_still_runs_keeps_its_events() -> None:
    go_on = anyio.Event()

    @tool(lane="slow")
    async def wait() -> str:
        """Wait."""
        await go_on.wait()
        return "done"

    async with Session([add, wait]) as session, anyio.create_task_group() as group:
        core_of(session).transcript.forget_calls_beyond(1)
        group.start_soon(session.call, "wait")
        await anyio.wait_all_tasks_blocked()
        for number in range(20):
            await session.call("add", {"a": number})
        kinds = [event.type for event in session.trace if event.call_id == "call_1"]
        assert kinds == ["call_started", "call_running"]
        go_on.set()
    assert [event.type for event in session.trace if event.call_id == "call_1"][-1] == "call_ended"


async def test_who_follows_sees_every_event_that_is_left_in_order_and_each_once() -> None:
    seen: list[Event] = []
    async with Session([add]) as session, anyio.create_task_group() as group:
        core_of(session).transcript.forget_calls_beyond(2)

        async def follow() -> None:
            async for event in session.events():
                seen.append(event)
                if event.call_id == "call_50" and event.type == "call_ended":
                    return

        for number in range(30):
            await session.call("add", {"a": number})
        group.start_soon(follow)
        for number in range(20):
            await session.call("add", {"a": number})
    numbers = [event.seq for event in seen]
    assert numbers == sorted(set(numbers))
    assert seen[-1].call_id == "call_50"
    assert core_of(session).transcript.since(seen[-1].seq)[0] == seen[-1]


async def test_live_output_that_lost_its_text_is_forgotten() -> None:
    @tool
    async def chatter(context: Context) -> str:
        """Talk."""
        for _ in range(40):
            context.show("x" * (TRANSCRIPT_TEXT_LIMIT // 4))
            await anyio.sleep(0.07)
        return "done"

    async with Session([chatter]) as session:
        core_of(session).transcript.forget_calls_beyond(5)
        await session.call("chatter")
    output = [event for event in session.trace if event.type == "call_output"]
    assert output
    assert all(event.data["text"] for event in output)


async def test_a_store_keeps_what_its_session_forgets(tmp_path: str) -> None:
    store = Store(f"{tmp_path}/sessions.db")
    async with Session([add], store=store, id="kept") as session:
        core_of(session).transcript.forget_calls_beyond(1)
        for number in range(10):
            await session.call("add", {"a": number})
    ended = [event for event in store.events("kept") if event.type == "call_ended"]
    assert len(ended) == 10
    seqs = [event.seq for event in store.events("kept")]
    assert seqs == list(range(len(seqs)))


@pytest.mark.parametrize("count", [-1, 1.5, "many"])
async def test_a_count_that_is_none_is_refused(count: object) -> None:
    async with Session([add]) as session:
        with pytest.raises(HandrailError, match="whole number"):
            core_of(session).transcript.forget_calls_beyond(count)  # type: ignore[arg-type]
