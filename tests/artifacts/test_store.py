"""Artifacts: the same bytes come back, from any range, or nothing does."""

import hashlib
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.artifacts._blobs import PIECE
from handrail.artifacts.store import Artifacts, keep_stream
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef

pytestmark = pytest.mark.anyio


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def contents(directory: Path) -> set[int]:
    """The inodes that hold content, each once however often it is linked."""
    return {path.stat().st_ino for path in files(directory) if path.suffix != ".json"}


async def test_bytes_and_text_come_back_as_they_were(tmp_path: Path) -> None:
    store = Artifacts(str(tmp_path))
    for data in (b"", b"\0\xff", "grün 🎉", "a\r\nb", b"x" * (3 * PIECE + 17)):
        kept = await store.put(data)
        assert await store.read(kept) == (data.encode() if isinstance(data, str) else data)
        assert kept.size == len(await store.read(kept.ref))


async def test_a_handle_says_size_type_and_name() -> None:
    with Artifacts() as store:
        text = await store.put("é", name="e.txt")
        data = await store.put(b"\0", media_type="image/png")
        assert store.info(text) == ArtifactRef(text.ref, 2, "text/plain; charset=utf-8", "e.txt")
        assert store.info(data.ref) == ArtifactRef(data.ref, 1, "image/png", None)


async def test_the_same_content_is_stored_once_and_other_content_is_not(tmp_path: Path) -> None:
    store = Artifacts(str(tmp_path))
    first, second = await store.put(b"same" * 1000), await store.scope("s").put(b"same" * 1000)
    assert first.ref == second.ref
    assert len(contents(tmp_path)) == 1
    await store.put(b"other")
    assert len(contents(tmp_path)) == 2


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2 * PIECE + 50), st.none() | st.integers(0, 2 * PIECE + 50))
def test_any_range_is_the_slice_of_the_whole(start: int, length: int | None) -> None:
    async def check() -> None:
        kept = await STORE.put(WHOLE)
        expected = WHOLE[start:] if length is None else WHOLE[start : start + length]
        assert await STORE.read(kept, start, length) == expected

    anyio.run(check)


WHOLE = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range((2 * PIECE + 32) // 32))
STORE = Artifacts()


async def test_a_range_that_counts_backwards_is_refused() -> None:
    with Artifacts() as store:
        kept = await store.put(b"abc")
        for start, length in ((-1, None), (0, -1)):
            with pytest.raises(ValueError, match="must not be negative"):
                await store.read(kept, start, length)


@pytest.mark.parametrize("at", [0, PIECE + 5, 2 * PIECE + 1])
async def test_a_tampered_file_is_refused_wherever_the_changed_part_is_read(tmp_path: Path, at: int) -> None:
    store = Artifacts(str(tmp_path))
    kept = await store.put(b"x" * (2 * PIECE + 10))
    (target,) = {path.resolve() for path in tmp_path.rglob(kept.ref)}
    before = target.stat()
    with target.open("r+b") as file:
        file.seek(at)
        file.write(b"y")
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    for start, length in ((0, None), (at, 1)):
        with pytest.raises(ToolFailed, match="changed on disk"):
            await store.read(kept, start, length)
    elsewhere = 0 if at >= PIECE else 2 * PIECE
    assert await store.read(kept, elsewhere, 1) == b"x", "a part that was not changed is still good"


@pytest.mark.parametrize("change", ["shorter", "longer", "a link", "a pipe"])
async def test_a_file_that_became_something_else_is_refused(tmp_path: Path, change: str) -> None:
    store = Artifacts(str(tmp_path / "store"))
    kept = await store.put(b"secret" * 10)
    (target,) = (tmp_path / "store").rglob(kept.ref)
    if change in ("shorter", "longer"):
        with target.open("r+b") as file:
            file.truncate(59 if change == "shorter" else 61)
    else:
        target.unlink()
        if change == "a link":
            (tmp_path / "other").write_bytes(b"secret" * 10)
            target.symlink_to(tmp_path / "other")
        else:
            os.mkfifo(target)
    with anyio.fail_after(90), pytest.raises(ToolFailed):
        await store.read(kept)


async def test_storing_the_content_again_heals_a_tampered_file(tmp_path: Path) -> None:
    store = Artifacts(str(tmp_path))
    kept = await store.put(b"abc" * 100)
    (target,) = tmp_path.rglob(kept.ref)
    target.write_bytes(b"abd" * 100)
    with pytest.raises(ToolFailed):
        await store.read(kept)
    again = await store.put(b"abc" * 100)
    assert again.ref == kept.ref
    assert await store.read(again) == b"abc" * 100


HOSTILE = [
    "../../etc/passwd",
    "a_../../x",
    "/etc/passwd",
    "a_",
    "",
    "a_\0",
    "session.json",
    "a_" + "0" * 32,
    ".",
    "a_é",
]


@pytest.mark.parametrize("ref", HOSTILE)
async def test_a_reference_never_leads_to_another_file(ref: str, tmp_path: Path) -> None:
    store = Artifacts(str(tmp_path))
    scope = store.scope("s")
    kept = await scope.put(b"x")
    assert scope.has(kept.ref), "the control: a real reference is known"
    assert not scope.has(ref)
    assert scope.info(ref) is None
    assert not scope.show(ref)
    with pytest.raises(ToolFailed) as caught:
        await scope.read(ref)
    assert caught.value.failure.kind == "invalid_args"
    for use in (scope.pin, scope.unpin):
        with pytest.raises(ToolFailed):
            use(ref)


@pytest.mark.parametrize("session", ["../up", "a/b", "x" * 400, "\n", "ü\ud800"])
async def test_any_session_id_is_only_a_name(session: str, tmp_path: Path) -> None:
    inside = tmp_path / "store"
    scope = Artifacts(str(inside)).scope(session)
    kept = await scope.put(b"x")
    assert await scope.read(kept) == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


async def test_a_file_is_taken_in_piece_by_piece(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(WHOLE)
    with Artifacts(str(tmp_path / "store")) as store:
        kept = await store.put_file(source, name="source")
        assert (kept.size, kept.name) == (len(WHOLE), "source")
        assert await store.read(kept) == WHOLE
        with pytest.raises(FileNotFoundError):
            await store.put_file(tmp_path / "missing")
        assert not list((tmp_path / "store" / "incoming").iterdir())


async def test_a_stream_that_breaks_off_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Artifacts(str(tmp_path))

    def read(start: int, length: int) -> bytes:
        if start > 2 * PIECE:
            raise OSError("the disk is gone")
        return b"x" * length

    with pytest.raises(OSError, match="gone"):
        await keep_stream(store, read, "stdout")
    assert files(tmp_path) == []


async def test_a_stream_is_kept_whole_from_a_plain_or_an_async_reader() -> None:
    async def later(start: int, length: int) -> bytes:
        return WHOLE[start : start + min(length, 100_001)]

    with Artifacts() as store:
        plain = await keep_stream(store, lambda start, length: WHOLE[start : start + length], "stdout")
        waiting = await keep_stream(store, later, "stderr")
        assert plain.ref == waiting.ref
        assert await store.read(plain) == WHOLE


async def test_storing_and_reading_holds_the_content_once_in_memory(tmp_path: Path) -> None:
    size = 32 << 20
    data = b"z" * size
    store = Artifacts(str(tmp_path))
    tracemalloc.start()
    try:
        kept = await store.put(data)
        _, stored = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert len(await store.read(kept)) == size
        _, read = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored < size / 4
    assert read < size * 1.25


def test_many_first_answers_at_once_make_one_private_directory(tmp_path: Path) -> None:
    program = (
        "import anyio, os, sys, tempfile\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from handrail.artifacts.store import Artifacts\n"
        "sys.setswitchinterval(1e-6)  # threads change places as often as they can\n"
        "async def main():\n"
        "    for _ in range(5):\n"
        "        with Artifacts() as store:\n"
        "            async with anyio.create_task_group() as tasks:\n"
        "                for n in range(16):\n"
        "                    tasks.start_soon(store.put, str(n) * 100_000)\n"
        "            print(len(os.listdir(tempfile.tempdir)))\n"
        "        print(len(os.listdir(tempfile.tempdir)))\n"
        "anyio.run(main)\n"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (seen.stdout.split(), seen.stderr) == ([b"1", b"0"] * 5, b"")


def test_a_private_directory_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import anyio, os, tempfile\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from handrail.artifacts.store import Artifacts\n"
        "store = Artifacts()\n"
        "anyio.run(store.put, b'x')\n"
        "print('STARTED', flush=True)\n"
    )
    kill = subprocess.run([sys.executable, "-c", program + "os.kill(os.getpid(), 9)"], capture_output=True, check=False)
    assert (kill.returncode, kill.stdout) == (-9, b"STARTED\n")
    assert len(list(tmp_path.glob("handrail-artifacts-*"))) == 1, "the control: it was left behind"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"STARTED\n")
    assert list(tmp_path.iterdir()) == []
