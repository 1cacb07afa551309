"""Streams: what is submitted to one runs in order, streams overlap, and closing one leaves nothing behind."""

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import (
    Command,
    CommandStream,
    Context,
    HandrailError,
    ReadFile,
    Sandbox,
    Session,
    StreamMark,
    Unavailable,
    WriteFile,
    open_sandbox,
    run_sync,
    tool,
)
from handrail.drivers.memory import Script
from handrail.testing import MemoryDriver
from tests.tools.world import in_time

pytestmark = pytest.mark.anyio
Misuse = Callable[[CommandStream, StreamMark], object]


def hangs(name: str = "hang") -> MemoryDriver:
    """A driver whose commands of this line never end by themselves."""
    return MemoryDriver({"a": "b"}, lambda command: Script(hang=True) if command.line == name else "ran")


async def until(happens: Callable[[], bool]) -> None:
    with in_time():
        while not happens():  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.005)


async def test_an_empty_stream_has_done_everything() -> None:
    async with Sandbox(MemoryDriver()) as sandbox, sandbox.stream() as stream:
        assert stream.query()
        await stream.synchronize()
        mark = stream.record_event()
        assert mark.done
        await mark.wait()
        assert mark.elapsed_time(mark) == 0


async def test_a_stream_gives_what_dispatch_gives_and_in_order() -> None:
    async with Sandbox(hangs()) as sandbox, sandbox.stream() as stream:
        written, read = stream.submit(WriteFile("x", "1")), stream.submit(ReadFile("x"))
        ran = stream.submit(Command(line="ls"))
        assert not stream.query()
        assert (await ran).stdout == "ran"
        assert (await read, (await written).bytes_written) == ("1", 1)
        assert await read == "1", "it can be awaited again"
        assert stream.query()


async def test_a_failed_payload_does_not_stop_its_stream_and_warns_nobody(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()  # what other tests left may be reported
    caplog.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with Sandbox(hangs()) as sandbox, sandbox.stream() as stream:
            failed = stream.submit(ReadFile("gone"))
            stream.submit(ReadFile("gone too"))
            assert await stream.submit(ReadFile("a")) == "b"
            with pytest.raises(FileNotFoundError):
                await failed
        del failed
        gc.collect()
        await anyio.lowlevel.checkpoint()
    assert caplog.records == []


async def test_streams_overlap_and_one_stream_does_not() -> None:
    driver = hangs()
    async with Sandbox(driver) as sandbox, sandbox.stream() as one, sandbox.stream() as other:
        one.submit(Command(line="hang"))
        after = one.submit(Command(line="after"))
        assert (await other.submit(Command(line="beside"))).stdout == "ran"
        assert [command.line for command in driver.started] == ["hang", "beside"]
        await driver.processes[0].signal("KILL")
        assert (await after).stdout == "ran"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["write", "fail", "mark", "wait", "wait_stream"]))))
def test_any_submissions_to_any_streams_happen_in_the_order_of_each_stream(
    plan: list[tuple[int, str]],
) -> None:
    async def run() -> None:
        driver = MemoryDriver(commands=lambda _: "ran")
        async with Sandbox(driver) as sandbox:
            streams = [sandbox.stream() for _ in range(3)]
            marks: list[tuple[int, StreamMark]] = [(0, streams[0].record_event())]
            before: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
            """What must have started before what is submitted to this stream next."""
            wanted: dict[str, set[str]] = {}
            at_mark: list[set[str]] = [set()]
            for number, (where, what) in enumerate(plan):
                stream, name = streams[where], f"{where}-{number}"
                if what == "write":
                    stream.submit(Command(line=name))
                    wanted[name] = set(before[where])
                    before[where].add(name)
                elif what == "fail":
                    stream.submit(ReadFile("gone"))
                elif what == "mark":
                    marks.append((where, stream.record_event()))
                    at_mark.append(set(before[where]))
                elif what == "wait":
                    stream.wait_event(marks[-1][1])
                    before[where] |= at_mark[-1]
                else:
                    other = (where + 1) % 3
                    stream.wait_stream(streams[other])
                    before[where] |= before[other]
            for stream in streams:
                await stream.synchronize()
            started = [str(command.line) for command in driver.started]
            assert sorted(started) == sorted(wanted)
            for place, name in enumerate(started):
                assert wanted[name] <= set(started[:place])
            assert all(mark.done for _, mark in marks)

    run_sync(run)


async def test_a_mark_happens_when_what_was_before_it_has_ended() -> None:
    driver = hangs()
    async with Sandbox(driver) as sandbox, sandbox.stream() as one, sandbox.stream() as other:
        start = one.record_event()
        one.submit(Command(line="hang"))
        end = one.record_event()
        waited = other.wait_event(end)
        after = other.submit(Command(line="after"))
        await until(lambda: len(driver.processes) == 1)
        assert (start.done, end.done, other.query()) == (True, False, False)
        for early in ((start, end), (end, start)):
            with pytest.raises(ValueError, match="not happened yet"):
                early[0].elapsed_time(early[1])
        await driver.processes[0].signal("KILL")
        await end.wait()
        await waited
        await after
        assert start.elapsed_time(end) > 0 > end.elapsed_time(start)
        assert [command.line for command in driver.started] == ["hang", "after"]


async def test_elapsed_time_counts_milliseconds() -> None:
    async with Sandbox(MemoryDriver(commands={"slow": Script(delay=0.2)})) as sandbox, sandbox.stream() as stream:
        start = stream.record_event()
        stream.submit(Command(line="slow"))
        end = stream.record_event()
        await end.wait()
        assert start.elapsed_time(end) >= 190


async def test_a_wait_that_times_out_lets_its_stream_go_on() -> None:
    async with Sandbox(hangs()) as sandbox, sandbox.stream() as one, sandbox.stream() as other:
        one.submit(Command(line="hang"))
        waited = other.wait_event(one.record_event(), timeout=0.05)
        unheard = other.wait_event(one.record_event(), timeout=0.05)
        assert await other.submit(ReadFile("a")) == "b"
        with pytest.raises(TimeoutError, match=r"0\.05 s"):
            await waited
        del unheard
        with pytest.raises(ValueError, match="timeout"):
            other.wait_event(one.record_event(), timeout=-1)


def running(word: str) -> bool:
    """Whether any process of this machine has this word on its command line."""
    lines = Path("/proc").glob("[0-9]*/cmdline")
    return any(word.encode() in line for line in map(_read, lines))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""


async def test_closing_ends_what_runs_and_cancels_what_waits(tmp_path: Path) -> None:
    nap = f"300.{os.getpid()}"
    async with open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox:
        async with sandbox.stream() as stream:
            first = stream.submit(Command(line=f"setsid sleep {nap} & touch began; sleep {nap}"))
            waiting = [stream.submit(Command(line=f"touch {number}")) for number in range(10_000)]
            mark = stream.record_event()
            await until((tmp_path / "began").exists)
            assert running(nap), "a control"
        assert not running(nap)
        for each in (first, waiting[0], waiting[-1]):
            with pytest.raises(Unavailable, match="closed before"):
                await each
        with pytest.raises(Unavailable, match="closed before"):
            await mark.wait()
        assert (stream.query(), mark.done, repr(stream)[-8:]) == (True, False, " closed>")
        assert [path.name for path in tmp_path.iterdir()] == ["began"]
        for use in (lambda: stream.submit(ReadFile("a")), stream.record_event, lambda: stream.wait_event(mark)):
            with pytest.raises(Unavailable, match="open another"):
                use()
        await stream.close()


async def test_a_caller_that_is_cancelled_half_way_closes_its_stream() -> None:
    driver = hangs("5000")
    async with Sandbox(driver) as sandbox:
        submitted = []
        with anyio.CancelScope() as scope:
            async with sandbox.stream() as stream, anyio.create_task_group() as group:
                submitted = [stream.submit(Command(line=str(number))) for number in range(10_000)]
                group.start_soon(stream.synchronize)
                await until(lambda: len(driver.started) == 5001)
                scope.cancel()
        assert [command.line for command in driver.started] == [str(number) for number in range(5001)]
        assert driver.processes[-1].signals, "what ran was ended"
        assert (await submitted[4999]).stdout == "ran"
        with pytest.raises(Unavailable):
            await submitted[5000]
        with pytest.raises(Unavailable):
            await submitted[-1]


async def test_who_stops_waiting_ends_nothing() -> None:
    driver = MemoryDriver(commands={"slow": Script("done", delay=0.2)})
    async with Sandbox(driver) as sandbox, sandbox.stream() as stream:
        slow = stream.submit(Command(line="slow"))
        with anyio.move_on_after(0.01):
            await slow
        assert (await slow).stdout == "done"


async def test_a_sandbox_that_is_closed_under_a_stream_fails_all_that_is_left() -> None:
    async with Sandbox(hangs()) as sandbox:
        stream, other = sandbox.stream(), sandbox.stream()
        running = stream.submit(Command(line="hang"))
        left = [stream.submit(ReadFile("a")) for _ in range(1000)]
        waiting = other.wait_stream(stream)
        await anyio.lowlevel.checkpoint()
    for each in (running, left[0], left[-1]):
        with pytest.raises(Unavailable):
            await each
    await waiting
    assert stream.query()
    with pytest.raises(Unavailable):
        await stream.submit(ReadFile("a"))
    with pytest.raises(Unavailable, match="closed"):
        sandbox.stream()


class Dead(MemoryDriver):
    async def start(self, command: Command) -> Any:
        raise Unavailable("The guard is gone.", retryable=False)


async def test_a_dead_driver_fails_each_payload_and_stops_no_stream() -> None:
    async with Sandbox(Dead({"a": "b"})) as sandbox, sandbox.stream() as stream:
        failed = [stream.submit(Command(line="ls")) for _ in range(3)]
        assert await stream.submit(ReadFile("a")) == "b"
        for each in failed:
            with pytest.raises(Unavailable, match="guard is gone"):
                await each


@pytest.mark.parametrize(
    "use",
    [
        lambda stream, mark: stream.submit(ReadFile("a")),
        lambda stream, mark: stream.record_event(),
        lambda stream, mark: stream.wait_event(mark),
        lambda stream, mark: asyncio.run(stream.synchronize()),
        lambda stream, mark: asyncio.run(mark.wait()),
    ],
)
async def test_a_stream_belongs_to_the_event_loop_that_opened_it(use: Misuse) -> None:
    async with Sandbox(hangs()) as sandbox, sandbox.stream() as stream:
        stream.submit(Command(line="hang"))
        mark, failed = stream.record_event(), []

        def elsewhere() -> None:
            try:
                use(stream, mark)
            except HandrailError as error:
                failed.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert [text.partition(";")[0] for text in failed] == ["this stream belongs to another event loop"]


async def test_a_thread_without_an_event_loop_cannot_open_a_stream() -> None:
    async with Sandbox(hangs()) as sandbox:
        with pytest.raises(HandrailError, match="async def"):
            await anyio.to_thread.run_sync(sandbox.stream)


async def test_a_mark_of_another_sandbox_can_be_waited_for() -> None:
    driver = hangs()
    async with Sandbox(driver) as here, Sandbox(hangs()) as there:
        async with here.stream() as one, there.stream() as other:
            one.submit(Command(line="hang"))
            other.wait_stream(one)
            after = other.submit(ReadFile("a"))
            await until(lambda: len(driver.processes) == 1)
            assert not other.query()
            await driver.processes[0].signal("KILL")
            assert await after == "b"
        with pytest.raises(HandrailError, match="the mark is"):
            there.stream().wait_event("mark")  # type: ignore[arg-type]
        with pytest.raises(HandrailError, match="wait_stream"):
            there.stream().wait_stream(there)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["timeout", "close"])
async def test_streams_that_wait_for_each_other_end_by_timeout_or_close(end: str) -> None:
    async with Sandbox(hangs()) as sandbox:
        one, other = sandbox.stream(), sandbox.stream()
        one.submit(Command(line="hang"))
        first = other.wait_event(one.record_event(), 0.05 if end == "timeout" else None)
        one.wait_stream(other)
        last = other.submit(ReadFile("a"))
        with in_time():
            if end == "close":
                await one.close()
            with pytest.raises(TimeoutError if end == "timeout" else Unavailable):
                await first
            assert await last == "b"
            await one.close()


async def test_a_stream_that_waits_for_itself_goes_on() -> None:
    async with Sandbox(hangs()) as sandbox, sandbox.stream() as stream:
        stream.submit(Command(line="ls"))
        stream.wait_stream(stream)
        assert await stream.submit(ReadFile("a")) == "b"


async def test_a_stream_ends_with_the_call_that_opened_it() -> None:
    driver, opened = hangs(), []

    @tool
    async def leaves(context: Context) -> str:
        """Open a stream and leave it."""
        stream = context.sandbox.stream()
        opened.append(stream)
        stream.submit(Command(line="hang"))
        await until(lambda: len(driver.processes) == 1)
        return "left"

    async with Sandbox(driver) as sandbox, Session([leaves], sandbox=sandbox) as session:
        assert (await session.call("leaves")).value == "left"
        assert driver.processes[0].signals
        with pytest.raises(Unavailable):
            opened[0].submit(ReadFile("a"))


def test_an_event_loop_that_ends_closes_its_streams_silently() -> None:
    streams = []

    async def leave() -> None:
        stream = Sandbox(hangs()).stream()
        streams.append(stream)
        stream.submit(Command(line="hang"))
        stream.submit(Command(line="hang"))
        await anyio.sleep(0.01)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(leave())
        gc.collect()
    assert repr(streams[0]).endswith("closed>")


async def test_a_payload_costs_no_more_in_a_stream_than_by_itself() -> None:
    """A chained task for each would cost 0.5 ms; CPU time is compared, because other programs may run."""
    async with Sandbox(MemoryDriver({"a": "b"})) as sandbox, sandbox.stream() as stream:
        start = process_time()
        for _ in range(1_000):
            await sandbox.dispatch(ReadFile("a"))
        alone = process_time() - start
        last = [stream.submit(ReadFile("a")) for _ in range(1_000)][-1]
        assert await last == "b"
        together = process_time() - start - alone
    assert together < alone * 3
