"""Checks of ranges and of atomic writes: a reader gets what it asked for, and the old content or the new."""

import errno
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from handrail.contract.driver import Driver
from handrail.testing.conformance.check import Group, Seen
from handrail.testing.conformance.site import Open, Site, collect, outcome

RANGES: Final = Group("range_read", needs=("files",))
ATOMIC: Final = Group("atomic_write", needs=("files",))
TEXT: Final = b"0123456789"
LARGE: Final = 1 << 20
ROUNDS: Final = 12
"""Four threads that write one file in its place mix it in every second round."""
TERABYTE: Final = 1 << 40
HOLD: Final = "exec 3< file; touch started; until test -e go; do sleep 0.01; done; cat <&3"


async def _range(open: Open, start: int, length: int | None, expected: bytes | str) -> Seen:
    site = await open()
    await site.driver.write(site.at("file"), TEXT)
    whole = await site.driver.read(site.at("file"))
    read = site.driver.read
    try:
        got: object = await read(site.at("file"), start=start, length=length)
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


async def _sparse(open: Open) -> tuple[Site, bool]:
    site = await open()
    await site.needs("truncate")
    ran = await site.run(f"truncate -s {TERABYTE} big && printf tail >> big && echo STARTED")
    return site, ran.stdout == b"STARTED\n"


@RANGES.with_commands
async def the_end_of_a_sparse_terabyte_is_read(open: Open) -> Seen:
    site, made = await _sparse(open)
    got = await site.driver.read(site.at("big"), start=TERABYTE - 4, length=100)
    return Seen("read the last 8 bytes of 1 TB", made, b"\0\0\0\0tail", got)


@RANGES.with_commands
async def a_terabyte_is_not_read_at_once(open: Open) -> Seen:
    site, made = await _sparse(open)
    try:
        await site.driver.read(site.at("big"))
        got: object = "no error"
    except OSError as error:
        got = errno.errorcode.get(error.errno or 0, error.errno)
    return Seen("read all of 1 TB", made, "EFBIG", got)


@ATOMIC.with_commands
async def a_command_that_has_a_file_open_keeps_the_old_content(open: Open) -> Seen:
    site = await open()
    await site.driver.write(site.at("file"), b"old")
    process = await site.start(HOLD)
    await site.until("started")
    await site.driver.write(site.at("file"), b"newer")
    await site.driver.write(site.at("go"), b"")
    return Seen(HOLD, await site.exists("started"), b"old", (await collect(process)).stdout)


@ATOMIC.check
async def a_reader_sees_the_old_content_or_the_new(open: Open) -> Seen:
    site = await open()
    contents = [letter * LARGE for letter in (b"a", b"b")]
    await site.driver.write(site.at("file"), contents[0])
    seen: set[bytes] = set()
    begun, over = anyio.Event(), anyio.Event()

    async def read_on() -> None:
        while not over.is_set():
            seen.add(await site.driver.read(site.at("file")))
            begun.set()
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(read_on)
        await begun.wait()
        for number in range(ROUNDS):
            await site.driver.write(site.at("file"), contents[number % 2])
            if seen - set(contents):
                break
        over.set()
    strange = sorted(len(text) for text in seen - set(contents))
    return Seen("write 1 MiB again and again while another reads", bool(seen), [], strange)


@ATOMIC.check
async def of_two_writers_one_wins_whole(open: Open) -> Seen:
    """Of different sizes: a shorter text that is written last in its place leaves the end of a longer one."""
    site = await open()
    contents = [b"a" * LARGE, b"b" * (LARGE // 2), b"c" * (LARGE // 4), b"d" * 1000]
    for _ in range(ROUNDS):
        async with anyio.create_task_group() as group:
            for content in contents:
                group.start_soon(site.driver.write, site.at("file"), content)
        if await site.driver.read(site.at("file")) not in contents:
            break
    got = await site.driver.read(site.at("file"))
    return Seen("four writes at once", len(got) > 0, True, got in contents)


async def _cancelled(site: Site, driver: Driver) -> bool:
    """Whether a large write was cut off."""
    await driver.write(site.at("file"), b"old")
    work = partial(driver.write, site.at("file"), b"n" * (64 << 20))
    for seconds in (0.0, 0.001, 0.01):
        with anyio.move_on_after(seconds) as scope:
            await work()
        if scope.cancelled_caught:
            return True
    return False


@ATOMIC.check
async def a_cancelled_write_leaves_the_old_content(open: Open) -> Seen:
    site = await open()
    cut_off = await _cancelled(site, site.driver)
    new = b"old" if cut_off else b"n" * (64 << 20)
    got = await site.driver.read(site.at("file"))
    return Seen("write 64 MiB, cancelled", await site.exists("file"), (len(new), True), (len(got), got == new))


@ATOMIC.check
async def a_cancelled_write_leaves_no_other_file(open: Open) -> Seen:
    site = await open(own=True)
    await _cancelled(site, site.driver)
    names = [entry.name for entry in await site.driver.list(site.directory)]
    for _ in range(50):  # what was cut off may still be tidied up
        if names == ["file"]:
            break
        await anyio.sleep(0.02)
        names = [entry.name for entry in await site.driver.list(site.directory)]
    return Seen("write 64 MiB, cancelled; list", "file" in names, ["file"], names)


@ATOMIC.check
async def a_refused_write_leaves_no_other_file(open: Open) -> Seen:
    site = await open()
    await site.driver.make_dir(site.at("sub"))
    got = await outcome(site.driver.write(site.at("sub"), b"x"))
    names = [entry.name for entry in await site.driver.list(site.directory)]
    return Seen("write to a directory; list", got != "no error", ["sub"], names)


@ATOMIC.with_commands
async def a_written_file_is_whole_for_the_next_command(open: Open) -> Seen:
    site = await open()
    await site.driver.write(site.at("file"), b"x" * (2 << 20))
    ran = await collect(await site.start("wc -c < file"))
    return Seen("wc -c < file", ran.code == 0, b"2097152", ran.stdout.strip())
