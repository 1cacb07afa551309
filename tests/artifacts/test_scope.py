"""Scopes: who may read an artifact, and how long it stays."""

import json
import re
from pathlib import Path

import pytest

from handrail import Context, Session, tool
from handrail.artifacts.store import Artifacts
from handrail.contract.errors import HandrailError, ToolFailed

pytestmark = pytest.mark.anyio


async def test_an_artifact_of_another_session_cannot_be_read_even_by_its_reference() -> None:
    with Artifacts() as store:
        mine, theirs = store.scope("mine"), store.scope("theirs")
        kept = await mine.put(b"secret")
        assert await mine.read(kept) == b"secret"
        assert not theirs.has(kept)
        assert theirs.info(kept) is None
        for use in (theirs.pin, theirs.unpin):
            with pytest.raises(ToolFailed, match="no artifact"):
                use(kept)
        with pytest.raises(ToolFailed, match="no artifact"):
            await theirs.read(kept)
        with pytest.raises(ToolFailed, match="no artifact"):
            theirs.share(kept, "theirs")


async def test_parent_and_child_read_each_others_and_siblings_do_not() -> None:
    with Artifacts() as store:
        parent = store.scope("parent")
        child, other = parent.child("child"), store.scope("other", parent="parent")
        grandchild = child.child("grandchild")
        above, below, deep = await parent.put(b"above"), await child.put(b"below"), await grandchild.put(b"deep")
        assert await child.read(above) == await grandchild.read(above) == b"above"
        assert await parent.read(below) == b"below"
        assert await parent.read(deep) == b"deep"
        assert not other.has(below)
        assert not other.has(deep)
        assert other.has(above)


async def test_what_was_shared_can_be_read_and_nothing_else_can() -> None:
    with Artifacts() as store:
        mine, theirs = store.scope("mine"), store.scope("theirs")
        shared, kept = await mine.put(b"shared"), await mine.put(b"kept")
        mine.share(shared, "theirs")
        assert await theirs.read(shared) == b"shared"
        assert not theirs.has(kept)


async def test_the_owner_of_the_store_sees_everything() -> None:
    with Artifacts() as store:
        kept = await store.scope("s").put(b"x")
        assert await store.read(kept) == b"x"
        own = await store.put(b"of the owner")
        assert not store.scope("s").has(own)


async def test_a_session_that_is_its_own_ancestor_hangs_nothing() -> None:
    with Artifacts() as store:
        one, two = store.scope("one", parent="two"), store.scope("two", parent="one")
        kept = await one.put(b"x")
        assert two.has(kept)


async def test_pins_are_counted_and_the_last_one_lets_go(tmp_path: Path) -> None:
    scope = Artifacts(str(tmp_path)).scope("s")
    kept = await scope.put(b"x")
    scope.pin(kept)
    scope.pin(kept)
    scope.unpin(kept)
    assert scope.has(kept)
    scope.unpin(kept)
    assert not scope.has(kept)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "session.json"] == []


async def test_what_was_shown_stays_although_nobody_pins_it() -> None:
    with Artifacts() as store:
        scope = store.scope("s")
        shown, pinned, idle = await scope.put(b"shown"), await scope.put(b"pinned"), await scope.put(b"idle")
        assert scope.show(shown)
        scope.pin(shown)
        scope.unpin(shown)
        scope.pin(pinned)
        assert scope.sweep() == 1
        assert (scope.has(shown), scope.has(pinned), scope.has(idle)) == (True, True, False)


async def test_letting_go_in_one_session_takes_nothing_from_another() -> None:
    with Artifacts() as store:
        one, two = store.scope("one"), store.scope("two")
        kept = await one.put(b"same")
        await two.put(b"same")
        one.pin(kept)
        one.unpin(kept)
        assert not one.has(kept)
        assert await two.read(kept) == b"same"


async def test_a_fork_keeps_pins_and_goes_its_own_way() -> None:
    with Artifacts() as store:
        old = store.scope("old")
        kept = await old.put(b"x", name="x.txt")
        old.pin(kept)
        new = old.fork("new")
        later = await old.put(b"later")
        old.unpin(kept)
        assert not old.has(kept)
        assert await new.read(kept) == b"x"
        assert new.info(kept) == kept
        assert new.sweep() == 0
        assert not new.has(later)


async def test_a_later_process_finds_what_was_stored_with_its_scopes_and_pins(tmp_path: Path) -> None:
    first = Artifacts(str(tmp_path))
    parent = first.scope("parent")
    kept, below = await parent.put("text", name="t"), await parent.child("child").put(b"below")
    parent.pin(kept)
    second = Artifacts(str(tmp_path))
    again = second.scope("parent")
    assert again.info(kept) == kept
    assert await again.read(kept) == b"text"
    assert await again.read(below) == b"below"
    assert not second.scope("stranger").has(kept)
    assert again.sweep() == 0
    again.unpin(kept)
    assert not again.has(kept)


async def test_a_forged_description_is_not_believed(tmp_path: Path) -> None:
    scope = Artifacts(str(tmp_path)).scope("s")
    kept, other = await scope.put(b"x"), await scope.put(b"y")
    (description,) = tmp_path.rglob(f"{kept.ref}.json")
    (foreign,) = tmp_path.rglob(f"{other.ref}.json")
    description.write_text(foreign.read_text().replace(other.ref, kept.ref))
    again = Artifacts(str(tmp_path)).scope("s")
    assert not again.has(kept)
    assert again.has(other)


async def test_a_session_without_a_store_has_a_private_one_that_goes_with_it() -> None:
    places: list[Path] = []

    @tool
    async def keep(context: Context) -> str:
        kept = await context.artifacts.put(b"x" * 100)
        holder = context.artifacts._index.find(None, kept.ref)
        assert holder is not None
        places.append(holder[0].link(kept.ref))
        assert places[0].stat().st_size == 100
        return kept.ref

    async with Session([keep]) as session:
        ref = (await session.call("keep")).value
        assert await session.artifacts.read(ref) == b"x" * 100
    assert places
    assert not places[0].exists()
    assert not places[0].parents[2].exists()


async def test_two_sessions_on_one_store_do_not_see_each_other() -> None:
    @tool
    async def keep(text: str, context: Context) -> str:
        return (await context.artifacts.put(text)).ref

    @tool
    async def look(ref: str, context: Context) -> str:
        return (await context.artifacts.read(ref)).decode()

    with Artifacts() as store:
        async with Session([keep, look], artifacts=store) as one, Session([keep, look], artifacts=store) as two:
            ref = (await one.call("keep", {"text": "secret"})).value
            assert (await one.call("look", {"ref": ref})).value == "secret"
            refused = await two.call("look", {"ref": ref})
            assert not refused.ok
            assert (refused.kind, refused.field) == ("invalid_args", "ref")
            async with Session([look], artifacts=one.artifacts.child("child")) as child:
                assert (await child.call("look", {"ref": ref})).value == "secret"
        assert await store.read(ref) == b"secret", "a given store outlives its sessions"


def test_a_session_refuses_what_is_no_store() -> None:
    with pytest.raises(HandrailError, match="artifacts"):
        Session(artifacts="somewhere")  # type: ignore[arg-type]


async def test_a_reference_keeps_its_type_when_the_same_bytes_are_stored_again() -> None:
    with Artifacts() as store:
        parent = store.scope("parent")
        child = parent.child("child")
        await child.put("something else")
        first = await parent.put("[1]", media_type="application/json", name="a.json")
        for again in (parent, child):
            kept = await again.put("[1]", media_type="text/plain", name="b.txt")
            assert (kept.ref, kept.media_type) == (first.ref, "application/json")
        assert (await parent.put(b"[1]")).media_type == "application/json"
        for scope in (parent, child, store):
            assert scope.info(first.ref).media_type == "application/json"  # type: ignore[union-attr]
        stranger = store.scope("stranger")
        assert (await stranger.put("[1]")).media_type.startswith("text/plain"), "the control: what it cannot see"


async def test_the_gate_does_not_change_the_type_of_what_a_tool_stored() -> None:
    rows = list(range(20_000))

    @tool
    async def make(context: Context) -> list[int]:
        await context.artifacts.put(json.dumps(rows), media_type="text/x-rows", name="rows")
        return rows

    async with Session([make]) as session:
        (ref,) = re.findall(r"a_[0-9a-f]{32}", (await session.call("make")).warnings[0])
        assert session.artifacts.info(ref).media_type == "text/x-rows"  # type: ignore[union-attr]
