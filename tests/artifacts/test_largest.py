"""An artifact holds at most 4 GiB. More is refused, and nothing of it is stored.

Sparse files stand for large contents: they have a size, and no bytes on disk.
"""

import mmap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from handrail import Context, Session, tool
from handrail.artifacts.store import Artifacts, ArtifactTooLarge
from handrail.contract.limits import MAX_ARTIFACT_BYTES
from tests.artifacts.test_store import contents
from tests.gates.shaping import giving

pytestmark = pytest.mark.anyio
MIB = 1 << 20


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


async def test_a_larger_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with Artifacts(tmp_path / "kept") as store:
        with pytest.raises(ArtifactTooLarge, match=f"{MAX_ARTIFACT_BYTES:,}"):
            await store.put_file(sparse(tmp_path / "large", MAX_ARTIFACT_BYTES + 1))
        assert contents(tmp_path / "kept") == set()
        assert (await store.put_file(sparse(tmp_path / "small", MIB))).size == MIB, "the control"


async def test_larger_bytes_are_refused_and_the_call_is_an_execution_error(tmp_path: Path) -> None:
    path = sparse(tmp_path / "large", MAX_ARTIFACT_BYTES + 1)

    @tool
    async def keep(context: Context) -> Any:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                return await context.artifacts.put(view)  # type: ignore[arg-type]  # what bytes can do, it can
            finally:
                view.release()

    async with Session([keep]) as session:
        result = await session.call("keep")
    assert (result.ok, result.kind) == (False, "execution_error")
    assert "An artifact holds at most" in result.message


@pytest.mark.long
async def test_a_larger_stream_ends_where_it_becomes_too_large(tmp_path: Path) -> None:
    given = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal given
        while given < MAX_ARTIFACT_BYTES + 100 * MIB:
            given += 16 * MIB
            yield bytes(16 * MIB)

    with Artifacts(tmp_path) as store:
        with pytest.raises(ArtifactTooLarge):
            await store.put_stream(chunks())
        assert given == MAX_ARTIFACT_BYTES + 16 * MIB
        assert contents(tmp_path) == set()


@pytest.mark.long
async def test_an_answer_that_would_be_larger_is_an_execution_error_and_one_below_is_whole(tmp_path: Path) -> None:
    part = "x" * MIB  # one text, many times: the answer is large, and the memory that it takes is not
    for count, is_kept in ((4_095, True), (4_097, False)):
        with Artifacts(tmp_path / str(count)) as store:
            async with Session([giving([part] * count, timeout=None)], artifacts=store) as session:
                result = await session.call("t")
                kept = session.artifacts.own()
        assert result.ok is is_kept
        assert [each.size for each in kept] == ([count * (MIB + 4)] if is_kept else [])
        if not is_kept:
            assert result.kind == "execution_error"
            assert "more than is kept" in result.message
            assert contents(tmp_path / str(count)) == set()
