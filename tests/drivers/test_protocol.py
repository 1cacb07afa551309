"""The guard takes every frame as hostile: what is wrong ends it, with everything, and says what was wrong."""

import os
import socket
import struct
import subprocess
from collections.abc import Iterator

import pytest

from handrail.drivers.guard import frames
from handrail.drivers.guard.build import PROGRAM
from tests.drivers.watching import MARK, PATIENCE, alive, eventually, new_mark

HELLO = frames.hello(False, [frames.NO_LIMIT] * 5, [b"/tmp"])


class Raw:
    """A guard spoken to in bytes."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE)
        words = [str(PROGRAM), "--channel", str(theirs.fileno())]
        self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self.channel = theirs.fileno()
        theirs.close()
        self.inbox = bytearray()

    def rest(self) -> list[tuple[int, int, bytes]]:
        """Every frame until it ends."""
        try:
            while data := self.socket.recv(1 << 16):
                self.inbox += data
        except ConnectionResetError:
            pass  # it ended without reading all that was sent
        return [(kind, id, bytes(body)) for kind, id, body in frames.split(memoryview(self.inbox))]

    def frame(self) -> tuple[int, int, bytes]:
        while True:
            found = next(frames.split(memoryview(bytes(self.inbox))), None)
            if found:
                kind, id, body = found
                del self.inbox[: frames.HEAD_SIZE + len(body)]
                return kind, id, bytes(body)
            data = self.socket.recv(1 << 16)
            assert data, "it ended"
            self.inbox += data


@pytest.fixture
def raw() -> Iterator[Raw]:
    raw = Raw()
    yield raw
    raw.socket.close()
    raw.process.kill()
    raw.process.wait()


def start(id: int, line: str, mark: str = "", *, input: bool = False) -> bytes:
    env = [f"{MARK}={mark}".encode(), b"PATH=/usr/bin:/bin"]
    return frames.start(id, [line.encode()], line=True, cwd=b"/", env=env, input=input)


BROKEN = {
    "too short": struct.pack("<IB", 1, 2),
    "too long": struct.pack("<IBI", 5 << 20, 2, 9),
    "an unknown type": frames.frame(99, 5),
    "a type of the other side": frames.frame(frames.OUTPUT, 5),
    "a second hello": HELLO,
    "bytes left over": frames.frame(frames.SIGNAL, 1, b"\x09more"),
    "ends too early": frames.frame(frames.CREDIT, 1, b"\0"),
    "an unknown signal": frames.frame(frames.SIGNAL, 1, b"\x0b"),
    "an id that never was": frames.frame(frames.CLOSE, 77),
    "an id used twice": start(1, "true"),
    "input of no size": frames.frame(frames.INPUT, 1),
    "too much input": b"".join(frames.frame(frames.INPUT, 2, b"x" * (64 << 10)) for _ in range(8)),
    "strings that do not end": frames.frame(frames.START, 5, b"\0\0" + struct.pack("<II", 1, 3) + b"abc"),
    "more strings than said": frames.frame(frames.START, 5, b"\0\0" + struct.pack("<II", 1, 4) + b"a\0b\0"),
    "a command without arguments": frames.start(5, [], line=False, cwd=b"/", env=[], input=False),
    "an unknown operation": frames.file(5, 9, b"/tmp"),
    "a relative path": frames.file(5, frames.READ, b"tmp"),
    "too much credit": frames.frame(frames.CREDIT, 1, b"\xff" * 4),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_frame_ends_the_guard_and_everything_it_started(raw: Raw, name: str) -> None:
    mark = new_mark()
    raw.socket.sendall(
        HELLO + start(1, "setsid sleep 1000 & sleep 1000", mark) + start(2, "sleep 1000", mark, input=True)
    )
    assert [raw.frame()[0] for _ in range(3)] == [frames.GREETED, frames.STARTED, frames.STARTED]
    assert eventually(lambda: bool(alive(mark))), "the control: it runs"
    raw.socket.sendall(BROKEN[name])
    said = raw.rest()
    assert said[-1][0] == frames.BROKEN
    assert raw.process.wait(PATIENCE) == 70
    assert not alive(mark)


@pytest.mark.parametrize(
    "first", [start(1, "true"), frames.frame(frames.CLOSE, 1), HELLO[:9] + bytes((frames.VERSION + 1,)) + HELLO[10:]]
)
def test_what_is_no_hello_of_this_version_comes_to_nothing(raw: Raw, first: bytes) -> None:
    raw.socket.sendall(first)
    assert [kind for kind, _, _ in raw.rest()] == [frames.BROKEN]


def test_a_truncated_frame_and_then_the_end_of_the_stream_end_everything(raw: Raw) -> None:
    mark = new_mark()
    raw.socket.sendall(HELLO + start(1, "sleep 1000", mark) + start(2, "sleep 1000")[:20])
    assert [raw.frame()[0] for _ in range(2)] == [frames.GREETED, frames.STARTED]
    raw.socket.shutdown(socket.SHUT_WR)
    raw.rest()
    assert raw.process.wait(PATIENCE) == 0
    assert not alive(mark)


def test_frames_may_come_one_byte_at_a_time(raw: Raw) -> None:
    for byte in HELLO + start(1, "echo hi"):
        raw.socket.sendall(bytes([byte]))
    kinds = [raw.frame()[0] for _ in range(4)]
    assert kinds == [frames.GREETED, frames.STARTED, frames.OUTPUT, frames.EXITED]


def test_frames_for_work_that_is_over_are_ignored(raw: Raw) -> None:
    raw.socket.sendall(HELLO + start(1, "true"))
    assert [raw.frame()[0] for _ in range(3)] == [frames.GREETED, frames.STARTED, frames.EXITED]
    for late in (frames.frame(frames.SIGNAL, 1, b"\x09"), frames.frame(frames.CREDIT, 1, b"\1\0\0\0")):
        raw.socket.sendall(late + frames.frame(frames.CLOSE, 1))
    raw.socket.sendall(start(2, "true"))
    assert raw.frame()[:2] == (frames.STARTED, 2)


def test_no_more_than_the_credit_is_sent_while_it_runs(raw: Raw) -> None:
    raw.socket.sendall(HELLO + start(1, "yes & sleep 1000"))
    assert [raw.frame()[0] for _ in range(2)] == [frames.GREETED, frames.STARTED]
    raw.socket.settimeout(1)
    size = 0
    while size < 1 << 20:
        size += len(raw.frame()[2]) - 1
    assert size == 1 << 20
    with pytest.raises(TimeoutError):
        raw.frame()


def test_the_guard_does_not_show_its_descriptors_to_a_payload_of_the_same_user(raw: Raw) -> None:
    guard = f"/proc/{raw.process.pid}"
    line = f"readlink -v {guard}/fd/0; cat {guard}/environ; echo x > {guard}/fd/{raw.channel}; cat /proc/$PPID/maps"
    control = "readlink /proc/$$/fd/1 && cat /proc/$$/environ > /dev/null && echo CONTROL"
    raw.socket.sendall(HELLO + start(1, f"{line}; {control}"))
    said = b""
    while (frame := raw.frame())[0] != frames.EXITED:
        said += frame[2][1:] if frame[0] == frames.OUTPUT else b""
    assert said.count(b"ermission denied") == 4, said
    assert b"CONTROL" in said


def test_the_guard_ends_with_its_client_even_when_another_process_holds_the_stream(raw: Raw) -> None:
    mark = new_mark()
    ours, theirs = socket.socketpair()
    client = subprocess.Popen(["sleep", "1000"])
    pidfd = os.pidfd_open(client.pid)
    words = [str(PROGRAM), "--channel", str(theirs.fileno()), "--client", str(pidfd)]
    guard = subprocess.Popen(words, pass_fds=[theirs.fileno(), pidfd], stdin=subprocess.DEVNULL)
    ours.sendall(HELLO + start(1, "setsid sleep 1000 & sleep 1000", mark))
    assert eventually(lambda: len(alive(mark)) >= 2)
    client.kill()
    client.wait()
    assert guard.wait(PATIENCE) == 0
    assert not alive(mark)
    for end in (ours, theirs):
        end.close()
    os.close(pidfd)
