"""Jobs and repairs are in the transcript when they happen; what is no event is refused where it is emitted."""

from typing import Any

import pytest

from handrail import Context, HandrailError, Sandbox, Session
from handrail.drivers.memory import MemoryDriver, Script
from tests.journeys.evidence import events_of

pytestmark = pytest.mark.anyio


def sandbox() -> Sandbox:
    return Sandbox(MemoryDriver(commands={"build": Script("done\n", exit_code=7), "serve": Script(delay=600)}))


async def starts(command: str, context: Context) -> str:
    """Start a job, and let whoever watches see what it prints."""
    job = await context.sandbox.start(command, on_output=lambda chunk: context.show(chunk.data, stream=chunk.stream))
    return job.id


async def test_a_job_that_ends_by_itself_is_in_the_transcript_from_its_start_to_its_end() -> None:
    async with Session([starts], sandbox=sandbox()) as session:
        job = (await session.call("starts", {"command": "build"}, id="one")).value
        assert session.sandbox
        found = session.sandbox.job(job)
        assert found
        await found.wait()
        (started,), (ended,) = events_of(session, "job_started"), events_of(session, "job_ended")
        (output,) = events_of(session, "call_output")
    assert (started.call_id, dict(started.data)) == ("one", {"job": job, "pid": found.pid, "command": "build"})
    assert (ended.call_id, dict(ended.data)) == ("one", {"job": job, "exit_code": 7, "ended_by": "exit", "error": None})
    assert max(started.seq, output.seq) < ended.seq


async def test_a_job_that_a_person_ends_or_that_ends_with_its_session_says_so() -> None:
    async with Session([starts], sandbox=sandbox()) as session:
        first = (await session.call("starts", {"command": "serve"})).value
        second = (await session.call("starts", {"command": "serve"})).value
        assert not events_of(session, "job_ended")
        await session.terminate(first)
        (ended,) = events_of(session, "job_ended")
        assert (ended.data["job"], ended.data["ended_by"]) == (first, "user")
    (_, closed) = events_of(session, "job_ended")
    assert closed.data["job"] == second
    assert (closed.data["exit_code"], closed.data["ended_by"]) != (0, "exit")


async def test_a_job_belongs_to_the_session_that_started_it() -> None:
    shared = sandbox()
    async with shared, Session([starts], sandbox=shared) as session, Session([starts], sandbox=shared) as other:
        job = (await session.call("starts", {"command": "build"})).value
        await shared.jobs()[0].wait()
        assert [event.data["job"] for event in events_of(session, "job_ended")] == [job]
        assert not events_of(other, "job_started")
        assert not events_of(other, "job_ended")


async def test_what_preflight_changed_is_an_event_before_the_tool_runs_and_nothing_where_it_changed_nothing() -> None:
    async def double(n: int) -> int:
        assert [event.data["repairs"][0]["after"] for event in events_of(session, "call_repaired")] == [21]
        return 2 * n

    async with Session([double]) as session:
        assert (await session.call("double", '{"n": "21"}', id="bent")).value == 42
        assert (await session.call("double", '{"n": 21}', id="straight")).value == 42
        (repaired,) = events_of(session, "call_repaired")
    assert repaired.call_id == "bent"
    assert repaired.data["arguments"] == {"n": 21}
    (repair,) = repaired.data["repairs"]
    assert (repair["path"], repair["before"], repair["after"]) == ("n", "21", 21)


@pytest.mark.parametrize(
    ("event", "named"),
    [
        ({"type": "mine"}, "'mine' is not a type of event"),
        ({"type": "warnings"}, "did you mean 'warning'"),
        ({"type": None}, "None is not a type of event"),
        ({"type": "user"}, "'text' in the data of the event user is None; write a str"),
        ({"type": "run_ended", "data": {"reason": "done", "text": 5}}, "'text' in the data .* is 5"),
        ({"type": "warning", "data": ["x"]}, "the data of the event warning is a list"),
        ({"type": "warning", "call_id": 5}, "call_id .* is 5"),
    ],
)
async def test_an_event_that_nobody_could_read_later_is_refused_where_it_is_emitted(
    event: dict[str, Any], named: str
) -> None:
    async with Session() as session:
        session.emit("warning", data={"message": "an event"})
        with pytest.raises(HandrailError, match=named):
            session.emit(**event)
    assert [each.type for each in session.trace] == ["session_started", "warning"]
