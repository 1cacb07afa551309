"""Live output is joined, bounded and counted: the first piece at once, the rest a few times a second."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Context, Event, Policy, Session, builtin_tools, open_sandbox
from tests.journeys.evidence import endings, events_of, only_ending

pytestmark = pytest.mark.anyio
EVENT_LIMIT = 64 << 10
KEPT = 64 << 10
EVENT_INTERVAL = 1 / 16


def shown(session: Session) -> list[Event]:
    return events_of(session, "call_output")


def text_of(events: list[Event], stream: str = "progress") -> str:
    return "".join(event.data["text"] for event in events if event.data["stream"] == stream)


def counted(events: list[Event], stream: str = "progress") -> int:
    """Everything that the events answer for: what they show, what was left out, and what was dropped."""
    each = [event.data for event in events if event.data["stream"] == stream]
    return sum(len(d["text"].encode()) + d.get("left_out", 0) + d.get("dropped", 0) for d in each)


async def test_the_first_piece_is_shown_at_once_and_many_small_ones_become_a_few_events() -> None:
    first: list[str] = []

    async def chatters(context: Context) -> None:
        context.show("begin ")
        first.extend(event.data["text"] for event in shown(session))
        for n in range(5_000):
            context.show(f"{n} ")

    async with Session([chatters]) as session:
        began = monotonic()
        await session.call("chatters")
        took = monotonic() - began
    assert first == ["begin "]
    assert text_of(shown(session)) == "begin " + "".join(f"{n} " for n in range(5_000))
    assert 2 <= len(shown(session)) <= 20 * took + 2


async def test_a_call_shows_at_most_twenty_events_a_second_whatever_its_streams() -> None:
    async def chatters(context: Context) -> None:
        until = monotonic() + 2.5
        while monotonic() < until:
            for stream in ("stdout", "stderr", "progress"):
                context.show(".", stream=stream)
            await anyio.sleep(0.001)

    async with Session([chatters]) as session:
        await session.call("chatters")
    times = [event.time for event in shown(session)]
    assert len(times) > 20, "the control: enough came"
    assert all(later - earlier > 0.95 for earlier, later in zip(times, times[20:], strict=False))
    assert {event.data["stream"] for event in shown(session)[:6]} == {"stdout", "stderr", "progress"}


async def test_a_piece_that_comes_beside_the_timer_makes_no_event_too_many() -> None:
    async def stutters(context: Context) -> None:
        until = monotonic() + 2.5
        while monotonic() < until:  # the loop is blocked until the timer and the next piece are due at once
            context.show(".", stream="stdout")
            context.show(".", stream="stderr")
            sleep(EVENT_INTERVAL * 1.1)
            context.show(".", stream="stdout")
            await anyio.lowlevel.checkpoint()

    async with Session([stutters]) as session:
        await session.call("stutters")
    times = [event.time for event in shown(session)[:-3]]  # but for what the streams had left at the end
    assert len(times) > 10, "the control: enough came"
    assert all(later - earlier > EVENT_INTERVAL * 0.9 for earlier, later in pairwise(times))


async def test_what_follows_the_first_piece_is_shown_while_the_call_still_runs() -> None:
    seen = anyio.Event()

    async def watch(event: Event) -> None:
        if event.type == "call_output" and "second" in event.data["text"]:
            seen.set()

    async def waits(context: Context) -> bool:
        context.show("first ")
        context.show("second")
        with anyio.fail_after(30):
            await seen.wait()
        return True

    async with Session([waits], readers=[watch]) as session:
        assert (await session.call("waits")).value is True


async def test_the_rest_of_every_stream_comes_before_the_end_of_the_call() -> None:
    async def shows(context: Context) -> None:
        for n in range(3):
            context.show(f"o{n}", stream="stdout")
            context.show(f"e{n}", stream="stderr")

    async with Session([shows]) as session:
        await session.call("shows")
    events = shown(session)
    assert (text_of(events, "stdout"), text_of(events, "stderr")) == ("o0o1o2", "e0e1e2")
    assert all(event.seq < only_ending(session).seq for event in events)


@pytest.mark.parametrize("piece", ["x" * 1_000, "é" * 700, "€𝄞" * 300, "x" * 300_000])
async def test_an_event_holds_64_kib_of_the_newest_text_and_counts_what_it_left_out(piece: str) -> None:
    async def floods(context: Context) -> None:
        for _ in range(400_000 // len(piece.encode()) + 1):
            context.show(piece)
        context.show("the end")

    async with Session([floods]) as session:
        await session.call("floods")
    events = shown(session)
    total = len(piece.encode()) * (400_000 // len(piece.encode()) + 1) + len("the end")
    assert all(len(event.data["text"].encode()) <= EVENT_LIMIT for event in events)
    assert counted(events) == total
    assert any(event.data.get("left_out", 0) > 0 for event in events)
    assert events[-1].data["text"].endswith("the end")
    assert "\ufffd" not in text_of(events)


async def test_older_events_of_a_call_keep_their_number_and_lose_their_text() -> None:
    seen: list[Event] = []

    async def watch(event: Event) -> None:
        seen.append(event)

    async def long(context: Context) -> None:
        for n in range(8):
            context.show(str(n) * 20_000)
            await anyio.sleep(0.06)

    async def short(context: Context) -> None:
        context.show("kept")

    async with Session([long, short], readers=[watch]) as session:
        await session.call("short")
        await session.call("long", id="long")
    endings(session)  # no gap in the numbers
    events = [event for event in shown(session) if event.call_id == "long"]
    assert counted(events) == 160_000
    assert sum(len(event.data["text"]) for event in events) <= KEPT
    assert events[0].data == {"text": "", "stream": "progress", "dropped": 20_000}
    assert "dropped" not in events[-1].data
    assert text_of(shown(session)[:1]) == "kept"  # the control: another call's output stays
    assert [event.seq for event in seen] == [event.seq for event in session.trace]
    assert text_of([event for event in seen if event.type == "call_output"][1:]) == "".join(
        str(n) * 20_000 for n in range(8)
    )


async def test_a_background_job_shows_what_it_prints_under_the_call_that_started_it(tmp_path: Path) -> None:
    texts: list[tuple[str | None, str]] = []
    came = anyio.Event()

    async def watch(event: Event) -> None:
        if event.type == "call_output":
            texts.append((event.call_id, event.data["text"]))
            if "later" in event.data["text"]:
                came.set()

    async with (
        open_sandbox("jail", workspace=str(tmp_path)) as sandbox,
        Session(builtin_tools(), sandbox=sandbox, readers=[watch], policy=Policy(mode="open")) as session,
    ):
        command = "echo sooner; until [ -e go ]; do sleep 0.05; done; echo later; sleep 600"
        result = await session.call("bash", {"command": command, "background": True}, id="job")
        assert result.ok
        (tmp_path / "go").touch()
        with anyio.fail_after(60):
            await came.wait()
    assert "".join(text for _, text in texts) == "sooner\nlater\n"
    assert {call_id for call_id, _ in texts} == {"job"}


async def test_what_a_job_printed_last_is_shown_before_the_session_ends() -> None:
    async with (
        open_sandbox("jail") as sandbox,
        Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="open")) as session,
    ):
        await session.call("bash", {"command": "echo one; echo two >&2; touch printed; sleep 600", "background": True})
        with anyio.fail_after(60):
            while not await sandbox.exists("printed") or sandbox.jobs()[0].size < 8:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert (text_of(shown(session), "stdout"), text_of(shown(session), "stderr")) == ("one\n", "two\n")


LARGE = """
import sys
from handrail import Policy, Session, builtin_tools, open_sandbox, run_sync

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

async def main(size):
    async with open_sandbox("jail") as sandbox:
        async with Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="open")) as session:
            await session.call("bash", {"command": "seq 100000"})
            before = peak()
            command = f"head -c {size} /dev/zero | tr '\\\\0' x"
            result = await session.call("bash", {"command": command, "timeout": 3000}, id="large")
            events = [event.data for event in session.trace if event.type == "call_output" and event.call_id == "large"]
            counted = sum(len(d["text"]) + d.get("left_out", 0) + d.get("dropped", 0) for d in events)
            print(result.ok, result.value["exit_code"], counted, peak() - before, len(events))

run_sync(main, int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    "size", [100_000_000, pytest.param(1_000_000_000, marks=pytest.mark.long)], ids=["100 MB", "1 GB"]
)
async def test_much_output_passes_through_a_session_within_64_mib(size: int) -> None:
    ran: Any = await anyio.to_thread.run_sync(
        lambda: subprocess.run([sys.executable, "-c", LARGE, str(size)], capture_output=True, text=True, check=False)
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    ok, code, total, grown, _ = ran.stdout.split()
    assert (ok, code, int(total)) == ("True", "0", size)
    assert int(grown) < 64 << 10, ran.stdout  # KiB
