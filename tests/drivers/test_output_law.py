"""Bytes in are bytes out, on each stream, for any schedule of writes, credits and reader speeds."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.contract.driver import Command
from handrail.drivers._command import encode_command
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.guard import frames
from tests.broken._guards import careless_guard
from tests.drivers import liars
from tests.drivers.conftest import OPENERS

PATTERNS = {1: bytes(range(251)), 2: bytes(reversed(range(241)))}
"""Of prime lengths: a piece that is missing, doubled or on the wrong stream shows."""
WRITER = """
import json, os, sys, time
plan = json.loads(sys.argv[1])
patterns = {1: bytes(range(251)), 2: bytes(reversed(range(241)))}
done = {1: 0, 2: 0}
child = os.fork() if plan["together"] else None
for stream, size, pause in plan["writes"]:
    if child is not None and (stream == 2) != (child == 0):
        continue
    pattern = patterns[stream]
    at = done[stream] % len(pattern)
    data = (pattern * (size // len(pattern) + 2))[at : at + size]
    done[stream] += size
    while data:
        data = data[os.write(stream, data):]
    time.sleep(pause)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Schedule(NamedTuple):
    """What is written, how much may be sent when the guard may send nothing more, and how long a reader rests."""

    writes: list[tuple[int, int, float]]
    together: bool
    credits: list[int]
    rests: list[float]

    def expected(self, stream: int) -> bytes:
        size = sum(size for to, size, _ in self.writes if to == stream)
        return (PATTERNS[stream] * (size // len(PATTERNS[stream]) + 1))[:size]


Run = Callable[[Schedule], tuple[int, bytes, bytes]]

seldom = st.sampled_from([0.0] * 20 + [0.001, 0.01])
sizes = st.one_of(st.integers(1, 5000), st.integers(60_000, 300_000))
few = st.lists(st.tuples(st.sampled_from([1, 2]), sizes, seldom), max_size=8)
many = st.builds(
    lambda size, count: [(stream, size, 0.0) for _ in range(count) for stream in (1, 2)],
    st.integers(30_000, 300_000),
    st.integers(4, 16),
)
schedules = st.builds(
    Schedule,
    writes=st.builds(lambda *parts: [write for part in parts for write in part], few, many, few),
    together=st.booleans(),
    credits=st.lists(st.one_of(st.integers(1, 3), st.integers(1000, 300_000)), max_size=4).map(
        lambda some: [*some, 131_072]
    ),
    rests=st.lists(seldom, min_size=1, max_size=8),
)
FLOOD = Schedule([(stream, 300_000, 0.0) for _ in range(24) for stream in (1, 2)], True, [100_003], [0.0])
"""7 MB on each stream at once."""


async def read_by(driver: GuardedDriver, schedule: Schedule) -> tuple[int, bytes, bytes]:
    """Run the writer; the exit code, and what came on each stream."""
    words = (sys.executable, "-IS", "-c", WRITER, json.dumps(schedule._asdict()))
    channel = driver.guard.channel
    exchange = channel.open(encode_command(Command(argv=words), workspace=driver.workspace, env=driver.env))
    came, credits, rests = {1: bytearray(), 2: bytearray()}, cycle(schedule.credits), cycle(schedule.rests)
    allowed = frames.FIRST_CREDIT
    while True:
        await channel.until(exchange, lambda: bool(exchange.chunks) or exchange.over)
        if not exchange.chunks:
            break
        stream, data = exchange.chunks.popleft()
        came[stream] += data
        if len(came[1]) + len(came[2]) >= allowed:
            more = next(credits)
            allowed += more
            channel.grant(exchange, more)
        await anyio.sleep(next(rests))
    assert exchange.exited is not None
    return exchange.exited[0], bytes(came[1]), bytes(came[2])


@pytest.fixture(params=["host", "jail"], scope="module")
def write_and_read(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One guard for all examples: what one of them leaves behind would harm the next."""
    with asyncio.Runner() as runner:
        driver = runner.run(OPENERS[request.param](workspace=str(tmp_path_factory.mktemp("work"))))
        yield lambda schedule: runner.run(read_by(driver, schedule))
        runner.run(driver.close())


@given(schedule=schedules)
@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_every_byte_written_comes_out_on_its_stream(write_and_read: Run, schedule: Schedule) -> None:
    assert write_and_read(schedule) == (0, schedule.expected(1), schedule.expected(2))


def test_seven_megabytes_on_both_streams_at_once_all_come_out(write_and_read: Run) -> None:
    assert write_and_read(FLOOD) == (0, FLOOD.expected(1), FLOOD.expected(2))


def test_control_a_guard_that_reads_without_credit_loses_output(tmp_path: Path) -> None:
    careless = careless_guard(("pump.c", "if (size == 0)", "if (false)"))

    async def main() -> list[tuple[int, bytes, bytes]]:
        driver = await liars.host_with(careless, tmp_path)
        try:
            return [await read_by(driver, FLOOD) for _ in range(10)]
        finally:
            await driver.close()

    assert any(ran != (0, FLOOD.expected(1), FLOOD.expected(2)) for ran in asyncio.run(main()))
