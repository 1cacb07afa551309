"""An artifact that lacks a part is marked, and the mark goes with it wherever its content does."""

import json
from pathlib import Path
from typing import Any

import pytest

from handrail import ArtifactRef, Session, Store
from handrail.artifacts._blobs import PIECE
from handrail.artifacts.store import Artifacts

pytestmark = pytest.mark.anyio
CUT_LINE = "\n[… 1,234 {} were discarded here]\n"


async def test_the_mark_is_in_the_handle_in_its_wire_form_and_in_info() -> None:
    with Artifacts() as store:
        cut, whole = await store.put("head tail", incomplete=True), await store.put("all of it")
        assert (cut.incomplete, store.info(cut), cut.to_wire()["incomplete"]) == (True, cut, True)
        assert (whole.incomplete, store.info(whole), "incomplete" in whole.to_wire()) == (False, whole, False)


async def test_a_stream_is_asked_after_its_last_chunk_whether_it_lacks_a_part() -> None:
    given: list[bytes] = []

    async def chunks() -> Any:
        for _ in range(3):
            given.append(b"x")
            yield b"x"

    with Artifacts() as store:
        assert (await store.put_stream(chunks(), incomplete=lambda: len(given) == 3)).incomplete
        assert not (await store.put_stream(chunks_of(b"y"), incomplete=lambda: False)).incomplete


async def chunks_of(data: bytes) -> Any:
    yield data


async def test_the_mark_survives_reopening_children_sharing_and_forks(tmp_path: Path) -> None:
    first = Artifacts(str(tmp_path))
    cut = await first.scope("s").put("head tail", incomplete=True)
    whole = await first.scope("s").put("all")
    later = Artifacts(str(tmp_path))
    scope = later.scope("s")
    scope.share(cut, "other")
    forked = scope.fork("copy")
    for seen in (scope, scope.child("s/1"), later.scope("other"), forked, Artifacts(str(tmp_path)).scope("copy")):
        assert seen.info(cut) == ArtifactRef(cut.ref, cut.size, cut.media_type, None, True)
    assert forked.info(whole) == whole, "the control"


async def test_content_that_is_incomplete_stays_so_when_it_is_stored_again() -> None:
    with Artifacts() as store:
        scope = store.scope("s")
        cut = await scope.put("head tail", incomplete=True)
        assert (await scope.put("head tail")).incomplete, "read and stored again, it has no more than before"
        assert (await scope.child("s/1").put("head tail")).incomplete
        again = await scope.put("all")
        assert not again.incomplete
        assert (await scope.put("all", incomplete=True)).incomplete
        assert cut.ref != again.ref


async def test_the_mark_is_exported_and_comes_back(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        async with Session((), store=store, id="one") as session:
            session.emit("user", data={"text": "hi"})
            cut = await session.artifacts.put("head tail", incomplete=True)
            whole = await session.artifacts.put("all")
            for each in (cut, whole):
                session.artifacts.show(each)
        lines = list(store.export("one"))
    described = {line["artifact"]: line for line in map(json.loads, lines) if "artifact" in line}
    assert described[cut.ref]["incomplete"] is True
    assert "incomplete" not in described[whole.ref]
    with Store(tmp_path / "b.db") as other:
        made = other.load(lines)
        scope = other.artifacts.scope(made)
        assert scope.info(cut.ref) == cut
        assert scope.info(whole.ref) == whole


@pytest.mark.parametrize("unit", ["characters", "bytes"])
async def test_what_an_earlier_version_stored_without_its_middle_is_found_and_marked(tmp_path: Path, unit: str) -> None:
    line = CUT_LINE.format(unit)
    texts = {
        "cut": "a" * (PIECE - 20) + line + "b" * 100_000,  # the line is in two pieces
        "whole": "a" * (PIECE + 100_000),
        "quoted": json.dumps({"text": "a" * 100_000 + line}),  # a JSON text has no such line of its own
    }
    old = Artifacts(str(tmp_path))
    kept = {name: await old.scope("s").put(text, name=name) for name, text in texts.items()}
    data = await old.scope("s").put(texts["cut"].encode() + b"!", media_type="image/png")
    for path in tmp_path.glob("sessions/*/a_*.json"):
        described = json.loads(path.read_text())
        del described["incomplete"]
        path.write_text(json.dumps(described))
    for _ in range(2):
        found = Artifacts(str(tmp_path)).scope("s")
        marked = {name: found.info(ref.ref).incomplete for name, ref in kept.items()}  # type: ignore[union-attr]
        assert marked == {"cut": True, "whole": False, "quoted": False}
        assert found.info(data) == data
    (path,) = tmp_path.glob(f"sessions/*/{kept['cut'].ref}.json")
    assert json.loads(path.read_text())["incomplete"] is True


async def test_an_export_of_an_earlier_version_is_looked_at_too(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        async with Session((), store=store, id="one") as session:
            session.emit("user", data={"text": "hi"})
            cut = await session.artifacts.put("a" * 100_000 + CUT_LINE.format("bytes") + "b" * 9)
            session.artifacts.show(cut)
        lines = list(store.export("one"))
        assert store.artifacts.scope("one").info(cut) == cut, "the control: here nobody marked it"
    with Store(tmp_path / "b.db") as other:
        found = other.artifacts.scope(other.load(lines)).info(cut.ref)
    assert found is not None
    assert found.incomplete
