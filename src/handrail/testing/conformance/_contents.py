"""Checks of ranges and of atomic writes: a reader gets the range it asked for, of the old content or the new."""

import errno
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from handrail.contract.driver import Driver
from handrail.testing.conformance.check import Group, Seen
from handrail.testing.conformance.fixture import Fixture, Open, collect, outcome

RANGES: Final = Group("range_read", needs=("files",))
ATOMIC: Final = Group("atomic_write", needs=("files",))
TEXT: Final = b"0123456789"
LARGE: Final = 1 << 20
ROUNDS: Final = 12
"""Number of rounds; four threads that write one file in place mix its content in every second round."""
TERABYTE: Final = 1 << 40
HOLD: Final = "exec 3< file; touch started; until test -e go; do sleep 0.01; done; cat <&3"


async def _range(open: Open, start: int, length: int | None, expected: bytes | str) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("file"), TEXT)
    whole = await fixture.driver.read(fixture.at("file"))
    read = fixture.driver.read
    try:
        got: object = await read(fixture.at("file"), start=start, length=length)
    except ValueError as error:
        got = type(error).__name__
    return Seen(f"read(start={start}, length={length}) of {TEXT!r}", whole == TEXT, expected, got)


RANGES.add("a read may start in the middle", _range, 4, None, b"456789")
RANGES.add("a read may stop in the middle", _range, 0, 3, b"012")
RANGES.add("a read may start and stop in the middle", _range, 3, 4, b"3456")
RANGES.add("a read past the end gives what is there", _range, 8, 100, b"89")
RANGES.add("a read from the end gives nothing", _range, 10, 5, b"")
RANGES.add("a read from far beyond the end gives nothing", _range, 1 << 40, None, b"")
RANGES.add("a read of no bytes gives nothing", _range, 2, 0, b"")
RANGES.add("a negative start is ValueError", _range, -1, None, "ValueError")
RANGES.add("a negative length is ValueError", _range, 0, -1, "ValueError")


async def _sparse(open: Open) -> tuple[Fixture, bool]:
    fixture = await open()
    await fixture.needs("truncate")
    ran = await fixture.run(f"truncate -s {TERABYTE} big && printf tail >> big && echo STARTED")
    return fixture, ran.stdout == b"STARTED\n"


@RANGES.with_commands
async def the_end_of_a_sparse_terabyte_is_read(open: Open) -> Seen:
    fixture, made = await _sparse(open)
    got = await fixture.driver.read(fixture.at("big"), start=TERABYTE - 4, length=100)
    return Seen("read the last 8 bytes of 1 TB", made, b"\0\0\0\0tail", got)


@RANGES.with_commands
async def a_terabyte_is_not_read_at_once(open: Open) -> Seen:
    fixture, made = await _sparse(open)
    try:
        await fixture.driver.read(fixture.at("big"))
        got: object = "no error"
    except OSError as error:
        got = errno.errorcode.get(error.errno or 0, error.errno)
    return Seen("read all of 1 TB", made, "EFBIG", got)


@ATOMIC.with_commands
async def a_command_that_has_a_file_open_keeps_the_old_content(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("file"), b"old")
    process = await fixture.start(HOLD)
    await fixture.until("started")
    await fixture.driver.write(fixture.at("file"), b"newer")
    await fixture.driver.write(fixture.at("go"), b"")
    return Seen(HOLD, await fixture.exists("started"), b"old", (await collect(process)).stdout)


@ATOMIC.check
async def a_reader_sees_the_old_content_or_the_new(open: Open) -> Seen:
    fixture = await open()
    contents = [letter * LARGE for letter in (b"a", b"b")]
    await fixture.driver.write(fixture.at("file"), contents[0])
    seen: set[bytes] = set()
    begun, over = anyio.Event(), anyio.Event()

    async def read_on() -> None:
        while not over.is_set():
            seen.add(await fixture.driver.read(fixture.at("file")))
            begun.set()
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(read_on)
        await begun.wait()
        for number in range(ROUNDS):
            await fixture.driver.write(fixture.at("file"), contents[number % 2])
            if seen - set(contents):
                break
        over.set()
    strange = sorted(len(text) for text in seen - set(contents))
    return Seen("write 1 MiB again and again while another reads", bool(seen), [], strange)


@ATOMIC.check
async def of_two_writers_one_wins_whole(open: Open) -> Seen:
    """Write texts of different sizes: written in place, a shorter text leaves the end of a longer one."""
    fixture = await open()
    contents = [b"a" * LARGE, b"b" * (LARGE // 2), b"c" * (LARGE // 4), b"d" * 1000]
    for _ in range(ROUNDS):
        async with anyio.create_task_group() as group:
            for content in contents:
                group.start_soon(fixture.driver.write, fixture.at("file"), content)
        if await fixture.driver.read(fixture.at("file")) not in contents:
            break
    got = await fixture.driver.read(fixture.at("file"))
    return Seen("four writes at once", len(got) > 0, True, got in contents)


async def _cancelled(fixture: Fixture, driver: Driver) -> bool:
    """Return whether a large write was cut off."""
    await driver.write(fixture.at("file"), b"old")
    work = partial(driver.write, fixture.at("file"), b"n" * (64 << 20))
    for seconds in (0.0, 0.001, 0.01):
        with anyio.move_on_after(seconds) as scope:
            await work()
        if scope.cancelled_caught:
            return True
    return False


@ATOMIC.check
async def a_cancelled_write_leaves_the_old_content(open: Open) -> Seen:
    fixture = await open()
    cut_off = await _cancelled(fixture, fixture.driver)
    new = b"old" if cut_off else b"n" * (64 << 20)
    got = await fixture.driver.read(fixture.at("file"))
    return Seen("write 64 MiB, cancelled", await fixture.exists("file"), (len(new), True), (len(got), got == new))


@ATOMIC.check
async def a_cancelled_write_leaves_no_other_file(open: Open) -> Seen:
    fixture = await open(own=True)
    await _cancelled(fixture, fixture.driver)
    names = [entry.name for entry in await fixture.driver.list(fixture.directory)]
    for _ in range(50):  # what was cut off may still be tidied up
        if names == ["file"]:
            break
        await anyio.sleep(0.02)
        names = [entry.name for entry in await fixture.driver.list(fixture.directory)]
    return Seen("write 64 MiB, cancelled; list", "file" in names, ["file"], names)


@ATOMIC.check
async def a_refused_write_leaves_no_other_file(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.make_dir(fixture.at("sub"))
    got = await outcome(fixture.driver.write(fixture.at("sub"), b"x"))
    names = [entry.name for entry in await fixture.driver.list(fixture.directory)]
    return Seen("write to a directory; list", got != "no error", ["sub"], names)


@ATOMIC.with_commands
async def a_written_file_is_whole_for_the_next_command(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("file"), b"x" * (2 << 20))
    ran = await collect(await fixture.start("wc -c < file"))
    return Seen("wc -c < file", ran.code == 0, b"2097152", ran.stdout.strip())
