"""A CommandConversation: whole frames both ways, and an end in bounded time whatever the command or its driver does."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Chunk, HandrailError, Sandbox, open_sandbox
from handrail.contract.limits import FRAME_BYTES
from handrail.drivers.memory import Script
from handrail.sandbox.views import converse
from handrail.testing import MemoryDriver
from tests.drivers.watching import descriptors, eventually
from tests.tools.world import REAL, in_time

pytestmark = pytest.mark.anyio

ECHO = """
import os, struct, sys
def exactly(n):
    data = b""
    while len(data) < n:
        more = os.read(0, n - len(data))
        if not more: sys.exit(5)
        data += more
    return data
while True:
    head = exactly(4)
    data = head + exactly(struct.unpack(">I", head)[0])
    while data: data = data[os.write(1, data):]
"""


@pytest.mark.parametrize("driver", REAL)
async def test_frames_of_any_size_come_back_whole_and_in_order(driver: str, tmp_path: Path) -> None:
    async with open_sandbox(driver, workspace=str(tmp_path), allow_weaker=True) as sandbox:
        talk = await converse(sandbox, ["python3", "-I", "-c", ECHO])
        frames = [b"", b"x", b"\0" * 70_000, bytes(range(256)) * 4096 * 4, b"end"]
        assert len(frames[3]) == FRAME_BYTES
        with in_time():
            async with anyio.create_task_group() as group:

                async def send() -> None:
                    for frame in frames:
                        await talk.send(frame)

                group.start_soon(send)
                assert [await talk.receive() for _ in frames] == frames
            with pytest.raises(ValueError, match="at most"):
                await talk.send(bytes(FRAME_BYTES + 1))
            await talk.kill()
            assert await talk.receive() is None


@pytest.mark.parametrize("driver", REAL)
@pytest.mark.parametrize("size", [0, 1, 70_000, FRAME_BYTES])
async def test_the_first_frame_comes_before_all_others_however_late_it_is_taken(
    size: int, driver: str, tmp_path: Path
) -> None:
    async with open_sandbox(driver, workspace=str(tmp_path), allow_weaker=True) as sandbox:
        late = "import time; time.sleep(0.2)\n" + ECHO
        talk = await converse(sandbox, ["python3", "-I", "-c", late], first=b"f" * size)
        with in_time():
            async with anyio.create_task_group() as group:
                group.start_soon(talk.send, b"second")
                assert [await talk.receive() for _ in range(2)] == [b"f" * size, b"second"]
            await talk.kill()


@pytest.mark.parametrize("how", ["anyio", "asyncio"])
@pytest.mark.parametrize("first", [None, b"f" * 99_000])
async def test_a_frame_whose_sender_is_cancelled_goes_out_whole(first: bytes | None, how: str, tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        late = "import time; time.sleep(0.5)\n" + ECHO
        talk = await converse(sandbox, ["python3", "-I", "-c", late], first=first)
        large = b"l" * (2 << 20)
        if how == "anyio":
            with anyio.move_on_after(0.1) as scope:
                await talk.send(large)
            assert scope.cancelled_caught, "the control"
        else:
            sending = asyncio.ensure_future(talk.send(large))
            await anyio.sleep(0.1)
            assert sending.cancel(), "the control"
        frames = [*([] if first is None else [first]), large, b"next"]
        with in_time():
            async with anyio.create_task_group() as group:
                group.start_soon(talk.send, b"next")
                assert [await talk.receive() for _ in frames] == frames
            await talk.kill()


async def test_a_first_frame_that_is_too_large_is_refused_and_nothing_goes_on(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        with pytest.raises(ValueError, match="at most"):
            await converse(sandbox, ["sleep", "600"], first=bytes(FRAME_BYTES + 1))
        assert (await sandbox.run("pgrep -c sleep || true")).stdout.strip() in ("", "0")


async def test_a_frame_that_is_too_large_ends_the_command(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        talk = await converse(sandbox, ["sh", "-c", r"printf '\377\377\377\377'; sleep 600"])
        with in_time(), pytest.raises(HandrailError, match="a frame of 4,294,967,295 bytes"):
            await talk.receive()
        assert talk.ended


async def test_half_a_frame_is_no_frame(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        talk = await converse(sandbox, ["sh", "-c", r"printf '\0\0\0\5abc'; echo oh >&2; exit 3"])
        with in_time():
            assert await talk.receive() is None
        assert (talk.exit_code, talk.logs) == (3, "oh\n")


@pytest.mark.parametrize("driver", REAL)
async def test_a_conversation_leaves_no_descriptor(driver: str, tmp_path: Path) -> None:
    async with open_sandbox(driver, workspace=str(tmp_path), allow_weaker=True) as sandbox:
        before = descriptors(collected=True)
        talk = await converse(sandbox, ["python3", "-I", "-c", ECHO])
        with in_time():
            await talk.send(b"x")
            assert await talk.receive() == b"x"
            assert descriptors() > before, "the control: it has some"
            await talk.kill()
        assert descriptors() == before


@pytest.mark.parametrize("driver", REAL)
async def test_who_sends_to_a_command_that_does_not_read_is_told_when_it_ends(driver: str, tmp_path: Path) -> None:
    async with open_sandbox(driver, workspace=str(tmp_path), allow_weaker=True) as sandbox:
        talk = await converse(sandbox, ["sleep", "600"])
        with in_time():
            async with anyio.create_task_group() as group:

                async def send() -> None:
                    with pytest.raises(BrokenPipeError):
                        await talk.send(bytes(FRAME_BYTES))

                group.start_soon(send)
                await anyio.sleep(0.05)
                await talk.kill()
            with pytest.raises(BrokenPipeError):
                await talk.send(b"late")


FLOOD = r"""
import os, struct
frame = struct.pack(">I", 1 << 20) + bytes(1 << 20)
for n in range(200):
    data = frame
    while data: data = data[os.write(1, data):]
    open("sent", "a").write("x")
"""


@pytest.mark.parametrize("driver", REAL)
async def test_a_command_whose_frames_nobody_receives_is_blocked(driver: str, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    async with open_sandbox(driver, workspace=str(tmp_path), allow_weaker=True) as sandbox:
        talk = await converse(sandbox, ["python3", "-I", "-c", FLOOD])
        with in_time():
            assert await anyio.to_thread.run_sync(eventually, lambda: sent.exists() and sent.stat().st_size >= 8)
            await anyio.sleep(0.2)
            assert sent.stat().st_size < 20
            for _ in range(200):
                assert await talk.receive() == bytes(1 << 20)
            assert await talk.receive() is None
    assert sent.stat().st_size == 200, "the control: it goes on when they are received"


async def test_where_a_broken_pipe_would_end_this_process_there_is_none(tmp_path: Path) -> None:
    usual = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
            talk = await converse(sandbox, ["sh", "-c", "exec <&-; sleep 600"])
            await anyio.sleep(0.1)
            with in_time(), suppress(BrokenPipeError):
                for _ in range(20):
                    await talk.send(b"x")
                    await anyio.sleep(0.01)
    finally:
        signal.signal(signal.SIGPIPE, usual)


class Stalled:
    """A command whose driver never answers again."""

    id, pid = "1", None

    async def output(self) -> AsyncIterator[Chunk]:
        await anyio.sleep_forever()
        yield Chunk("stdout", b"")

    async def send(self, data: bytes | None) -> None:
        await anyio.sleep_forever()

    async def wait(self) -> int:
        await anyio.sleep_forever()
        return 0

    async def signal(self, name: str) -> None:
        await anyio.sleep_forever()


class Silent(MemoryDriver):
    features = MemoryDriver.features | {"stdin"}

    async def start(self, command: Any) -> Any:
        return Stalled()


class Feeding(MemoryDriver):
    features = MemoryDriver.features | {"stdin"}


@pytest.mark.parametrize("driver", [Silent(), Feeding(commands={"x": Script(hang=True, deaf=True)})])
async def test_a_driver_that_stalls_does_not_stall_the_end(driver: MemoryDriver) -> None:
    sandbox = Sandbox(driver)
    talk = await converse(sandbox, ["x"])
    with anyio.move_on_after(0.05):
        assert await talk.receive() is None
    with in_time():
        await talk.kill()
    assert await talk.receive() is None


async def test_a_line_is_no_list_of_words() -> None:
    with pytest.raises(ValueError, match="not a line for the shell"):
        await converse(Sandbox(MemoryDriver()), "python3 x.py")
