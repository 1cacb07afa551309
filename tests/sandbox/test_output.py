"""Output is capped without breaking it, kept up to a limit, and counted truly."""

import os
import re
import resource
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.contract.driver import Chunk, Command
from handrail.contract.limits import Caps
from handrail.drivers.memory import MemoryDriver, Script
from handrail.sandbox import Sandbox, Spool
from handrail.sandbox._capture import Capture
from handrail.sandbox.views import bind
from tests.drivers.watching import descriptors

pytestmark = pytest.mark.anyio
MIB = 1 << 20


def printing(*pieces: Chunk, caps: Caps | None = None) -> Sandbox:
    return bind(Sandbox(MemoryDriver(commands=lambda _: Script(chunks=pieces))), caps=caps)


def pieces_of(data: bytes, size: int, stream: Any = "stdout") -> list[Chunk]:
    return [Chunk(stream, data[begin : begin + size]) for begin in range(0, len(data), size)]


async def test_a_text_at_its_cap_is_whole_and_one_character_more_is_cut() -> None:
    whole = await printing(Chunk("stdout", b"x" * 50_000), Chunk("stderr", b"y" * 10_000)).run("x")
    assert (len(whole.stdout), len(whole.stderr), whole.truncated) == (50_000, 10_000, False)
    cut = await printing(Chunk("stdout", b"x" * 50_001)).run("x")
    assert cut.truncated
    assert cut.stdout == "x" * 20_000 + "\n[… 1 of 50,001 characters left out]\n" + "x" * 30_000
    assert (cut.stdout_size, cut.stderr_size) == (50_001, 0)
    cut = await printing(Chunk("stderr", b"y" * 10_001)).run("x")
    assert cut.stderr == "y" * 4_000 + "\n[… 1 of 10,001 characters left out]\n" + "y" * 6_000


async def test_the_beginning_and_the_end_of_a_flood_are_shown() -> None:
    data = b"BEGIN" + b"." * 3_000_000 + b"END"
    completed = await printing(*pieces_of(data, 65536)).run("x")
    assert completed.stdout.startswith("BEGIN...")
    assert completed.stdout.endswith("...END")
    assert "\n[… 2,950,008 of 3,000,008 characters left out]\n" in completed.stdout
    assert completed.spool.read() == data
    assert completed.spool.read(start=0, length=8) == b"BEGIN..."
    assert completed.spool.read(3_000_003, 100) == b"..END"
    assert completed.spool.read(3_000_008) == b""


@pytest.mark.parametrize("character", ["é", "€", "😀"])
async def test_a_multi_byte_character_at_the_cap_is_never_split(character: str) -> None:
    for shift in range(5):
        for many in (60_000, 400_000):
            data = b"a" * shift + character.encode() * many
            completed = await printing(*pieces_of(data, 65_521)).run("x")
            assert "\ufffd" not in completed.stdout
            assert f" of {many + shift:,} characters left out" in completed.stdout
            assert completed.stdout_bytes.decode() == completed.stdout
            assert completed.stdout.count(character) in range(50_000 - shift, 50_001)


async def test_a_colour_sequence_at_the_cap_is_never_broken() -> None:
    coloured = b"\x1b[38;5;196mred\x1b[0m " * 20_000
    for cap in range(1_000, 1_020):
        data = await printing(*pieces_of(coloured, 4096), caps=Caps(stdout=cap)).run("x")
        head, _, tail = data.stdout.split("\n")
        assert cap - 30 < len(head) + len(tail) <= cap
        for part in (head, tail):
            assert set(re.sub(r"\x1b\[[0-9;]*m", "", part)) <= set("red ")
    assert "\x1b" in re.sub(r"\x1b\[[0-9;]*m", "", coloured.decode()[:402]), "the control: a plain slice breaks one"


async def test_nul_and_invalid_utf_8_are_replaced_in_text_and_exact_in_bytes() -> None:
    data = b"a\0b\xff\xfec\xe2\x82"
    completed = await printing(Chunk("stdout", data)).run("x")
    assert completed.stdout_bytes == data
    assert completed.stdout == "a\0b\ufffd\ufffdc\ufffd"
    noise = os.urandom(300_000)
    completed = await printing(*pieces_of(noise, 4096)).run("x")
    assert completed.spool.read() == noise
    assert completed.stdout_bytes.decode("utf-8", "replace") == completed.stdout


@given(data=st.lists(st.sampled_from([b"a", "é".encode(), "€".encode(), "😀".encode(), b"\xff", b"\x80", b"\xe2\x82"])),
       many=st.integers(1, 60), cap=st.integers(1, 40), size=st.integers(1, 50))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_a_cut_text_is_the_beginning_and_the_end_whatever_the_bytes(
    data: list[bytes], many: int, cap: int, size: int
) -> None:
    whole = b"".join(data) * many
    capture = Capture(cap)
    for chunk in pieces_of(whole, size):
        capture.add(chunk.data)
    cut, characters = capture.cut(), whole.decode("utf-8", "surrogateescape")
    assert cut.text == cut.data.decode("utf-8", "replace")
    assert cut.truncated == (len(characters) > cap)
    if not cut.truncated:
        assert cut.data == whole
        return
    starts = int(cap * 0.4)
    marker = f"\n[… {len(characters) - cap:,} of {len(characters):,} characters left out]\n".encode()
    head, tail = cut.data.split(marker)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert head.decode("utf-8", "surrogateescape") == characters[:starts]
    assert tail.decode("utf-8", "surrogateescape") == characters[starts - cap :]


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(0, 400_000))), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_a_spool_keeps_beginning_and_end_of_both_streams_and_counts_the_rest(
    writes: list[tuple[Any, int]], segments: int
) -> None:
    spool, streams = Spool(segments * 65536), {"stdout": bytearray(), "stderr": bytearray()}
    for number, (stream, size) in enumerate(writes):
        data = (b"%07d\n" % number * (size // 8 + 1))[:size]
        streams[stream] += data
        spool.add(stream, data)
    for name, printed in streams.items():
        kept, gone = spool.read(stream=name), spool.discarded(name)  # type: ignore[arg-type]
        assert len(kept) == spool.size(name)  # type: ignore[arg-type]
        if not gone:
            assert kept == printed
            continue
        head, tail = kept.split(f"\n[… {gone} bytes were discarded here]\n".encode())
        assert printed.startswith(head)
        assert printed.endswith(tail)
        assert len(head) + len(tail) + gone == len(printed)
        middle = len(kept) // 2
        assert spool.read(3, middle, stream=name) == kept[3 : 3 + middle]  # type: ignore[arg-type]
    if sum(len(printed) for printed in streams.values()) <= max(2, segments) * 65536:
        assert spool.discarded() == 0
    spool.close()


async def test_what_passes_the_spool_is_discarded_from_the_middle_and_said() -> None:
    data = bytes(range(256)) * (MIB // 256)
    completed = await printing(*[Chunk("stdout", data)] * 8, caps=Caps(spool=4 * MIB)).run("x")
    assert completed.spool.discarded() == 4 * MIB
    assert any("4,194,304 bytes" in note and "discarded" in note for note in completed.notes)
    assert completed.stdout_size == 8 * MIB
    whole = completed.spool.read()
    assert whole.startswith(data * 2 + b"\n[")
    assert whole.endswith(b"]\n" + data * 2)


async def test_sixty_mib_of_one_stream_lose_nothing() -> None:
    block = os.urandom(MIB)
    completed = await printing(*[Chunk("stdout", block)] * 60).run("x")
    assert completed.spool.discarded() == 0
    assert completed.spool.size() == 60 * MIB
    assert completed.spool.read(37 * MIB - 5, 10) == block[-5:] + block[:5]


async def test_small_output_makes_no_file_and_large_output_is_given_back_at_close() -> None:
    sandbox = printing(Chunk("stdout", b"x" * 100_000), Chunk("stderr", b"y" * 100_000))
    small = await sandbox.run("x")
    assert not small.spool.on_disk
    assert small.spool.read(stream="stderr") == b"y" * 100_000
    sandbox = printing(*[Chunk("stdout", b"x" * MIB)] * 2)
    before = descriptors(collected=True)
    large = await sandbox.run("x")
    assert large.spool.on_disk
    assert descriptors() == before + 1
    await sandbox.close()
    assert descriptors() == before
    with pytest.raises(ValueError, match="closed"):
        large.spool.read()
    assert small.spool.read(0, 3) == b"xxx"


async def test_a_spool_that_nobody_holds_gives_its_file_back() -> None:
    sandbox = printing(*[Chunk("stdout", b"x" * MIB)] * 2)
    before = descriptors(collected=True)
    for _ in range(20):
        await sandbox.run("x")
    assert descriptors() <= before + 2


async def test_a_full_disk_loses_output_and_counts_it_but_ends_no_command() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    sandbox = printing(*[Chunk("stdout", b"x" * MIB)] * 3)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        completed = await sandbox.run("x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (completed.exit_code, completed.stdout_size) == (0, 3 * MIB)
    assert completed.spool.discarded() == 3 * MIB
    assert b"bytes were discarded here" in completed.spool.read()


class Flooding(MemoryDriver):
    """Prints the same block again and again, without a pause for anybody, until it is killed."""

    def __init__(self, stream: Any, blocks: int) -> None:
        super().__init__(commands=lambda _: "")
        self.stream, self.blocks, self.block = stream, blocks, b"0123456789abcde\n" * 4096

    async def start(self, command: Command) -> Any:
        process = await super().start(command)
        last = process.output()

        async def output() -> AsyncIterator[Chunk]:
            for _ in range(self.blocks):
                if process.signals:
                    break
                yield Chunk(self.stream, self.block)
            async for chunk in last:
                yield chunk

        process.output = output  # type: ignore[method-assign]
        return process


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_flood_passes_in_bounded_memory(stream: Any) -> None:
    sandbox = Sandbox(Flooding(stream, 4096))
    tracemalloc.start()
    try:
        completed = await sandbox.run("x", timeout=120)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert completed.stdout_size + completed.stderr_size == 256 * MIB
    assert completed.spool.discarded() == 192 * MIB
    assert peak < 8 * MIB
    await sandbox.close()


async def test_a_flood_is_ended_by_max_output_long_before_it_is_over() -> None:
    completed = await Sandbox(Flooding("stdout", 10**9)).run("x", max_output=MIB, timeout=60)
    assert (completed.ended_by, completed.may_still_run) == ("output", False)
    assert MIB <= completed.stdout_size < 100 * MIB
