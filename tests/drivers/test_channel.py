"""A guard that a command took over is not believed: what it says is checked, counted, and cut."""

import errno
import os
import socket
import struct
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from handrail.contract.driver import Command
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers._reports import host_report
from handrail.drivers.guard import frames
from handrail.drivers.guard.channel import Channel
from handrail.drivers.guard.spawn import Guard
from tests.drivers.conftest import Open
from tests.drivers.watching import PATIENCE, Ran, collect, run

pytestmark = pytest.mark.anyio


def greeting(version: int = frames.VERSION, shell: int = 2, nothing: int = 0, pid: int = 7) -> bytes:
    return frames.frame(frames.GREETED, 0, struct.pack("<HBBI", version, shell, nothing, pid))


def number(kind: int, value: int, id: int = 1) -> bytes:
    return frames.frame(kind, id, struct.pack("<I", value))


def pair(kind: int, value: int, flags: int, id: int = 1) -> bytes:
    return frames.frame(kind, id, struct.pack("<IB", value, flags))


def output(data: bytes, stream: int = 1, id: int = 1) -> bytes:
    return frames.frame(frames.OUTPUT, id, bytes((stream,)) + data)


STARTED = number(frames.STARTED, 5)
EXITED = pair(frames.EXITED, 0, 0)


class Puppet:
    """A guard whose every word the test says, and the driver over it."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(PATIENCE)
        self.process = subprocess.Popen(["sleep", "1000"])
        self.stderr = os.memfd_create("words", os.MFD_CLOEXEC)
        self.guard = Guard(self.process, Channel(ours), self.stderr)

    async def greeted(self, greeting: bytes) -> GuardedDriver:
        self.theirs.sendall(greeting)
        await self.guard.greet(jail=False, limits=Limits(), roots=["/"])
        return GuardedDriver(self.guard, report=host_report(), workspace="/", env={}, tmp="/tmp", program="guard")


@asynccontextmanager
async def puppet() -> AsyncIterator[Puppet]:
    it = Puppet()
    try:
        yield it
    finally:
        it.process.kill()
        await it.guard.close()
        it.theirs.close()


async def run_hearing(answer: bytes) -> Ran:
    """Run a command of which the guard says this."""
    async with puppet() as it:
        driver = await it.greeted(greeting())
        it.theirs.sendall(answer)
        return await collect(await driver.start(Command(line="true")))


GREETINGS = {
    "another version": greeting(version=frames.VERSION + 1),
    "an unknown shell": greeting(shell=3),
    "no number of its own": greeting(pid=0),
    "something where nothing is": greeting(nothing=1),
    "too short": frames.frame(frames.GREETED, 0, b"\1\0\2"),
    "too long": frames.frame(frames.GREETED, 0, struct.pack("<HBBII", frames.VERSION, 2, 0, 7, 7)),
    "twice": greeting() + greeting(),
    "something else first": frames.frame(frames.STARTED, 0, b"\1\0\0\0"),
}


@pytest.mark.parametrize("name", GREETINGS)
async def test_a_greeting_that_is_none_is_refused(name: str) -> None:
    with anyio.fail_after(PATIENCE):
        async with puppet() as it:
            with pytest.raises(Unavailable, match="broke its protocol"):
                await (await it.greeted(GREETINGS[name])).start(Command(line="true"))


COMMANDS = {
    "empty output": STARTED + output(b"") + EXITED,
    "output of no stream at all": STARTED + frames.frame(frames.OUTPUT, 1) + EXITED,
    "a third stream": STARTED + output(b"x", 3) + EXITED,
    "a second start": STARTED + STARTED + EXITED,
    "a start after its end": STARTED + pair(frames.FAILED, errno.ENOENT, 3),
    "the number 0": number(frames.STARTED, 0) + EXITED,
    "a number that no process has": number(frames.STARTED, 1 << 23) + EXITED,
    "a start without a number": frames.frame(frames.STARTED, 1) + EXITED,
    "an exit code that no process has": STARTED + pair(frames.EXITED, 256, 0),
    "unknown flags": STARTED + pair(frames.EXITED, 0, 16),
    "an exit that ends too early": STARTED + frames.frame(frames.EXITED, 1, b"\0\0"),
    "a failure nowhere": pair(frames.FAILED, errno.ENOENT, 4),
    "an errno that there is not": pair(frames.FAILED, 5000, 1),
    "input taken that was never sent": STARTED + number(frames.TAKEN, 1) + EXITED,
    "an unknown type": STARTED + frames.frame(99, 1) + EXITED,
    "work that never was": STARTED + output(b"x", id=2) + EXITED,
    "too much output": STARTED + b"".join(output(b"x" * 60_000) for _ in range(40)) + EXITED,
    "a frame that is too large": STARTED + struct.pack("<IBI", 3 << 20, frames.OUTPUT, 1) + b"x" * (2 << 20),
}


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_frame_about_a_command_that_no_guard_sends_is_refused(name: str) -> None:
    with anyio.fail_after(PATIENCE), pytest.raises(Unavailable, match="broke its protocol"):
        await _in_pieces(COMMANDS[name])


async def _in_pieces(answer: bytes) -> None:
    """More than a socket's buffer is fed from a thread."""
    async with puppet() as it:
        driver = await it.greeted(greeting())
        feeder = threading.Thread(target=_feed, args=(it.theirs, answer))
        feeder.start()
        try:
            process = await driver.start(Command(line="true"))
            await process.wait()
        finally:
            it.theirs.shutdown(socket.SHUT_RDWR)
            await anyio.to_thread.run_sync(feeder.join)


def _feed(stream: socket.socket, data: bytes) -> None:
    try:
        stream.sendall(data)
    except OSError:
        pass  # nobody listens any more


async def test_control_what_a_guard_does_send_is_heard() -> None:
    ran = await run_hearing(STARTED + output(b"out") + output(b"err", 2) + pair(frames.EXITED, 3, 1))
    assert (ran.code, ran.stdout, ran.stderr, len(ran.notes)) == (3, b"out", b"err", 1)


async def test_without_credit_no_more_is_kept_than_was_allowed() -> None:
    flood = STARTED + b"".join(output(b"x" * 60_000) for _ in range(500))
    kept = 0
    with anyio.fail_after(PATIENCE):
        async with puppet() as it:
            driver = await it.greeted(greeting())
            feeder = threading.Thread(target=_feed, args=(it.theirs, flood))
            feeder.start()
            process = await driver.start(Command(line="true"))
            with pytest.raises(Unavailable, match="more output than it was allowed"):
                await process.wait()
            with suppress(Unavailable):
                async for chunk in process.output():
                    kept += len(chunk.data)
            it.theirs.shutdown(socket.SHUT_RDWR)
            await anyio.to_thread.run_sync(feeder.join)
    assert 0 < kept <= frames.FIRST_CREDIT + frames.OVERDRAFT


RECORD = struct.Struct("<BIQqIII")


def record(
    kind: int = 0, mode: int = 0o644, size: int = 1, ns: int = 0, name: bytes = b"", real: bytes = b"/x"
) -> bytes:
    return RECORD.pack(kind, mode, size, 0, ns, len(name), len(real)) + name + real


FILES = {
    "read more than was asked for": ("read", output(b"x" * 11)),
    "read on the other stream": ("read", output(b"x", 2)),
    "read that was started": ("read", STARTED),
    "stat of nothing": ("stat", b""),
    "stat of two": ("stat", output(record() + record())),
    "stat with a name": ("stat", output(record(name=b"x"))),
    "stat without a path": ("stat", output(record(real=b""))),
    "stat of an unknown type": ("stat", output(record(kind=4))),
    "stat of an unknown mode": ("stat", output(record(mode=1 << 20))),
    "stat of a size below nothing": ("stat", output(record(size=1 << 63))),
    "stat of more than a second": ("stat", output(record(ns=10**9))),
    "stat that ends too early": ("stat", output(record()[:20])),
    "stat whose path ends too early": ("stat", output(record()[:-1])),
    "stat with a relative path": ("stat", output(record(real=b"x"))),
    "stat without end": ("stat", output(b"x" * (200 << 10))),
    "list of a path": ("list", output(record(name=b"../../etc/passwd", real=b""))),
    "list of dots": ("list", output(record(name=b"..", real=b""))),
    "list of no name": ("list", output(record(name=b"", real=b""))),
    "an answer to a write": ("write", output(b"x")),
    "an answer to a removal": ("remove", output(b"x")),
}


@pytest.mark.parametrize("name", FILES)
async def test_an_answer_about_a_file_that_no_guard_gives_is_refused(name: str) -> None:
    asked, answer = FILES[name]
    stat = output(record(kind=1), id=2) + pair(frames.EXITED, 0, 0, id=2)  # a list asks for its directory too
    with anyio.fail_after(PATIENCE):
        async with puppet() as it:
            driver = await it.greeted(greeting())
            it.theirs.sendall(answer + EXITED + (stat if asked == "list" else b""))
            work = {
                "read": lambda: driver.read("/x", length=10),
                "stat": lambda: driver.stat("/x"),
                "list": lambda: driver.list("/x"),
                "write": lambda: driver.write("/x", b""),
                "remove": lambda: driver.remove("/x"),
            }
            with pytest.raises(Unavailable, match="broke its protocol"):
                await work[asked]()


async def test_a_long_text_of_a_guard_is_cut() -> None:
    with pytest.raises(Unavailable) as raised:
        await run_hearing(STARTED + frames.frame(frames.BROKEN, 0, b"x" * 100_000))
    assert 100 < len(str(raised.value)) < 1000


async def test_a_text_of_a_guard_is_passed_on_without_control_characters() -> None:
    with pytest.raises(Unavailable) as raised:
        await run_hearing(STARTED + frames.frame(frames.BROKEN, 0, b"\x1b[2J\0 out of\r\n memory \xff \xc2\x9b"))
    assert str(raised.value).isprintable()
    assert "out of memory" in str(raised.value)


async def test_what_a_guard_writes_to_its_standard_error_is_passed_on_without_control_characters() -> None:
    with anyio.fail_after(PATIENCE):
        async with puppet() as it:
            os.write(it.stderr, b"\x1b[2J\0 no\n namespaces")
            it.theirs.shutdown(socket.SHUT_RDWR)
            with pytest.raises(Unavailable) as raised:
                await it.guard.greet(jail=False, limits=Limits(), roots=["/"])
    assert str(raised.value).isprintable()
    assert "no namespaces" in str(raised.value)


async def test_a_file_operation_of_which_nothing_is_heard_is_given_up() -> None:
    with anyio.fail_after(PATIENCE):
        async with puppet() as it:
            driver = await it.greeted(greeting())
            assert driver.silence == 60
            driver.silence = 0.2
            for work in (driver.read("/x"), driver.write("/x", b"x" * (1 << 20)), driver.stat("/x")):
                with pytest.raises(Unavailable, match=r"0\.2 s"):
                    await work


async def test_a_cancelled_start_gives_no_process_though_the_guard_has_answered() -> None:
    async with puppet() as it:
        driver = await it.greeted(greeting())
        it.theirs.sendall(STARTED)
        started = None
        with anyio.CancelScope() as scope:
            scope.cancel()
            started = await driver.start(Command(line="true"))
        assert started is None
        assert scope.cancelled_caught


async def test_a_flood_of_frames_leaves_the_loop_to_others() -> None:
    count, turns = 100_000, 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    with anyio.fail_after(PATIENCE * 3):
        async with puppet() as it, anyio.create_task_group() as group:
            driver = await it.greeted(greeting())
            it.theirs.sendall(STARTED + EXITED)
            await collect(await driver.start(Command(line="true")))
            frame = frames.frame(frames.DEAF, 1)
            more = number(frames.STARTED, 5, id=2) + frame * count + pair(frames.EXITED, 0, 0, id=2)
            feeder = threading.Thread(target=_feed, args=(it.theirs, more))
            feeder.start()
            process = await driver.start(Command(line="true"))
            group.start_soon(tick)
            await process.wait()
            group.cancel_scope.cancel()
            await anyio.to_thread.run_sync(feeder.join)
    assert turns >= count // 1000


async def test_a_command_that_widens_its_pipes_loses_nothing_and_harms_no_other(opened: Open, kind: str) -> None:
    driver = await opened(kind)
    most = int(Path("/proc/sys/fs/pipe-max-size").read_text())
    code = (
        "import fcntl, os, sys\n"
        "for fd in (1, 2):\n"
        f"    fcntl.fcntl(fd, 1031, {most})\n"
        f"    os.set_blocking(fd, False); os.write(fd, b'x' * {most})\n"
    )
    await driver.write(f"{driver.workspace}/widen.py", code.encode())
    ran = await run(driver, "python3 widen.py")
    assert (ran.code, len(ran.stdout), len(ran.stderr)) == (0, most, most), ran
    assert (await run(driver, "echo usable")).stdout == b"usable\n"
