"""A command whose input and output are pipes to this process: the guard starts and ends it, and passes on its log."""

import os
import socket
import struct
from typing import Any

import anyio
import pytest

from handrail.contract.driver import Command
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.guard import frames
from tests.drivers.test_protocol import HELLO, Raw, raw
from tests.drivers.watching import MARK, PATIENCE, alive, descriptors, eventually, new_mark

__all__ = ["raw"]
pytestmark = pytest.mark.anyio
LINE = "read x; echo got $x; echo log >&2; ls -l /proc/self/fd | grep -o '[0-9] -> .*'"


@pytest.mark.guarded
async def test_a_piped_command_has_its_pipes_and_no_other_descriptor(driver: GuardedDriver) -> None:
    with anyio.fail_after(PATIENCE):
        process = await driver.start_piped(Command(line=LINE, input=True))
        pipes = process.pipes
        assert pipes is not None
        assert pipes.write(b"it\n") == 3
        through_guard = [chunk async for chunk in process.output()]
        assert await process.wait() == 0
        said = pipes.rest().decode().splitlines()
    assert said[0] == "got it"
    assert [line.partition(":")[0] for line in said[1:4]] == ["0 -> pipe", "1 -> pipe", "2 -> pipe"]
    assert [line.partition(" ")[0] for line in said[4:]] == ["3"], "the directory that ls reads"
    assert [(chunk.stream, chunk.data) for chunk in through_guard] == [("stderr", b"log\n")]
    pipes.close()


@pytest.mark.guarded
async def test_a_command_that_cannot_start_leaves_no_descriptor(driver: GuardedDriver) -> None:
    before = descriptors(collected=True)
    with anyio.fail_after(PATIENCE), pytest.raises(FileNotFoundError):
        await driver.start_piped(Command(argv=("no-such-program",), input=True))
    assert descriptors() == before


@pytest.mark.guarded
async def test_the_end_of_a_piped_command_is_that_of_its_tree(driver: GuardedDriver) -> None:
    mark = new_mark()
    with anyio.fail_after(PATIENCE):
        command = Command(line="setsid sleep 1000 & sleep 1000", env={MARK: mark}, input=True)
        process = await driver.start_piped(command)
        if driver.name == "host":
            assert eventually(lambda: bool(alive(mark))), "the control: it runs"
        await process.signal("KILL")
        assert await process.wait() == 137
        assert process.pipes is not None
        assert process.pipes.rest() == b""
    assert not alive(mark)
    process.pipes.close()


def passing(count: int, id: int) -> tuple[bytes, list[int]]:
    frame = frames.start(id, [b"cat"], line=False, cwd=b"/", env=[b"PATH=/usr/bin:/bin"], input=False, pipes=True)
    return frame, [os.open("/dev/null", os.O_RDWR) for _ in range(count)]


BROKEN: dict[str, tuple[int, int, int]] = {
    "without its descriptors": (0, 4, 1),
    "with one of two": (1, 4, 1),
    "with two inputs": (2, 5, 1),
    "with more than any command takes": (66, 4, 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_command_with_other_descriptors_than_its_own_ends_the_guard(raw: Raw, name: str) -> None:
    count, flags, id = BROKEN[name]
    frame, fds = passing(count, id)
    frame = frame[:10] + bytes((flags,)) + frame[11:]
    raw.socket.sendall(HELLO)
    assert raw.frame()[0] == frames.GREETED
    socket.send_fds(raw.socket, [frame], fds)
    for fd in fds:
        os.close(fd)
    assert raw.rest()[-1][0] == frames.BROKEN
    assert raw.process.wait(PATIENCE) == 70


def test_descriptors_may_come_before_the_command_and_in_pieces(raw: Raw) -> None:
    raw.socket.sendall(HELLO)
    assert raw.frame()[0] == frames.GREETED
    ends: list[Any] = [os.pipe() for _ in range(4)]
    frame, _ = passing(0, 1)
    socket.send_fds(raw.socket, [frame[:1]], [ends[0][0], ends[1][1], ends[2][0], ends[3][1]])
    raw.socket.sendall(frame[1:] + frame[:5] + struct.pack("<I", 2) + frame[9:])
    for fd in (ends[0][0], ends[1][1], ends[2][0], ends[3][1]):
        os.close(fd)
    for number in (0, 2):
        os.write(ends[number][1], b"%d" % number)
        os.close(ends[number][1])
        assert os.read(ends[number + 1][0], 10) == b"%d" % number
        os.close(ends[number + 1][0])
    assert sorted(raw.frame()[0] for _ in range(4)) == [frames.STARTED] * 2 + [frames.EXITED] * 2
