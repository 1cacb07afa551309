"""A stuck `def` body delays neither the next call nor the interpreter's exit, and uses up no shared thread."""

import contextvars
import subprocess
import sys
import threading
import time

import anyio
import pytest

from handrail import Session, tool
from handrail.threads import in_thread
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_a_def_body_that_runs_out_of_time_is_named_as_still_running_and_its_end_is_told() -> None:
    release = threading.Event()

    @tool(timeout=0.05)
    def stuck() -> str:
        release.wait(30)
        return "too late"

    async with Session([stuck]) as session:
        result = await session.call("stuck", id="s")
        assert not result.ok
        assert result.kind == "timeout"
        assert "may still be running" in result.message
        assert not events_of(session, "call_late")
        release.set()
        with anyio.fail_after(25):
            async for event in session.events():
                if event.type == "call_late":
                    break
    assert (event.call_id, event.data) == ("s", {"tool": "stuck", "outcome": "ended"})
    assert len(endings(session)) == 1


async def test_a_hundred_stuck_bodies_leave_the_event_loops_threads_and_the_next_call_alone() -> None:
    release = threading.Event()

    @tool(timeout=0.2)
    def stuck() -> None:
        release.wait(30)

    def quick() -> str:
        return threading.current_thread().name

    async with Session([stuck, quick]) as session:
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(session.call, "stuck")
        before = threading.active_count()
        with anyio.fail_after(25):
            assert (await session.call("quick")).value == "handrail body"
            assert await anyio.to_thread.run_sync(lambda: "a shared thread is free") == "a shared thread is free"
        assert before >= 100  # the control: they really were stuck
        assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        release.set()
    kinds = [event.data["kind"] for event in endings(session).values()]
    assert kinds.count("timeout") == 100
    deadline = time.monotonic() + 60
    while threading.active_count() > before - 50 and time.monotonic() < deadline:  # noqa: ASYNC110
        await anyio.sleep(0.01)
    assert threading.active_count() <= before - 50  # those that came back did not all stay


async def test_a_def_body_sees_the_context_variables_of_its_caller_and_cannot_change_them() -> None:
    def who() -> str:
        before = WHO.get()
        WHO.set("changed")
        return before

    WHO.set("me")
    async with Session([who]) as session:
        assert (await session.call("who")).value == "me"
        assert (await session.call("who")).value == "me"
    assert WHO.get() == "me"


PROGRAM = """
import sys, threading, time
from handrail import Session, run_sync, tool

@tool(timeout=0.2)
def stuck() -> None:
    'Sleep.'
    time.sleep(60)

def slow_reader(event) -> None:
    time.sleep(60)

async def main() -> None:
    session = Session([stuck], readers=[slow_reader])
    result = await session.call("stuck")
    print(result.kind, sum(thread.name.startswith("handrail") for thread in threading.enumerate()))

run_sync(main)
"""


def test_stuck_bodies_and_readers_do_not_delay_the_exit_of_the_interpreter() -> None:
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == ["timeout", "2"]  # the control: both threads were still there
    assert time.monotonic() - began < 30


CLOSED = """
import asyncio, sys, threading
import anyio
from handrail.threads import in_thread

async def main():
    begun = threading.Event()
    def work():
        begun.set()
        may_end.wait()
    call = in_thread if sys.argv[1] == "ours" else anyio.to_thread.run_sync
    loop.create_task(call(work))
    while not begun.is_set():
        await asyncio.sleep(0.01)

may_end, loop = threading.Event(), asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
may_end.set()
print(any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()), flush=True)
if sys.argv[1] != "ours":
    import os
    os._exit(0)
"""


def test_a_loop_that_is_closed_while_a_thread_works_does_not_keep_the_program_from_its_exit() -> None:
    def ran(how: str) -> str:
        program = [sys.executable, "-W", "ignore", "-c", CLOSED, how]
        return subprocess.run(program, capture_output=True, text=True, timeout=110, check=True).stdout.strip()

    assert ran("ours") == "False"
    assert ran("anyio") == "True", "the control: a thread of anyio waits for ever"


async def test_who_is_cancelled_waits_for_the_end_of_what_runs_in_its_thread() -> None:
    ended = threading.Event()

    def work() -> None:
        time.sleep(0.2)
        ended.set()

    with anyio.move_on_after(0.01) as scope:
        await in_thread(work)
    assert scope.cancelled_caught
    assert ended.is_set()
