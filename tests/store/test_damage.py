"""Damage to a store is told, with the last good event: what is changed, missing or exchanged never passes for whole."""

import random
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from handrail import Context, Event, HandrailError, Session, Store, Unavailable
from handrail.store.check import DamagedSession

pytestmark = pytest.mark.anyio
LAST_GOOD = "Its last good event is"
LOW = 0xFFFFFFFF
"""The bits of a row's key that are the event's number."""


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "sessions.db") as made:
        yield made


async def fill(store: Store, id: str = "s", calls: int = 4) -> list[Event]:
    """A session with some calls and live output; it ends as if its process had been killed if the store is copied."""
    async with Session([add], store=store, id=id) as session:
        session.emit("user", data={"text": f"Some words of {id}"})
        for n in range(calls):
            await session.call("add", {"a": n, "b": 1})
            session.emit("call_output", "c", None, {"text": f"printed {n}\n", "stream": "stdout"})
            assert session.trace  # written now, in a commit of its own
    return list(store.events(id))


def change(store: Store, *statements: str) -> None:
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement


def end_marks(store: Store) -> Path:
    return Path(f"{store.path}.ends")


# Every bit


def killed(store: Store, to: Path) -> None:
    """Copy an open store as a killed process leaves it. What SQLite shares between processes goes with them."""
    shutil.copytree(store.path.parent, to, ignore=shutil.ignore_patterns("*-shm", "*.claims"))


def seen(home: Path) -> object:
    """All that a reader of a store sees; "reported" if it is told of damage anywhere."""
    with Store(home / "sessions.db") as store:
        try:
            listed, events = store.sessions(), list(store.events("s"))
        except (HandrailError, Unavailable):
            return "reported"
        return "reported" if any(each.state == "damaged" for each in listed) else (listed, events)


def flips(source: Path, file: str, work: Path, samples: int | None) -> Counter[str]:
    """Flip bits of a file, one at a time. Returns how many were reported, harmless and unnoticed."""
    shutil.copytree(source, work)
    whole = seen(work)
    assert whole != "reported"
    shutil.rmtree(work)
    data = (source / file).read_bytes()
    places = random.Random(26)
    used = [offset for offset, byte in enumerate(data) if byte]
    offsets = range(len(data)) if samples is None else places.sample(used, min(samples, len(used)))
    found = Counter[str]()
    for offset in offsets:
        shutil.copytree(source, work)
        changed = bytearray(data)
        changed[offset] ^= 1 << places.randrange(8)
        (work / file).write_bytes(changed)
        now = seen(work)
        found["reported" if now == "reported" else "harmless" if now == whole else "unnoticed"] += 1
        shutil.rmtree(work)
    return found


async def both_states(top: Path) -> None:
    """A store whose events are in the file itself, and one whose events are in its log."""
    with Store(top / "new" / "sessions.db") as store:
        await fill(store)
        killed(store, top / "log")
    shutil.copytree(top / "new", top / "file", ignore=shutil.ignore_patterns("*.claims"))


@pytest.mark.parametrize(("state", "file"), [("file", "sessions.db"), ("log", "sessions.db-wal")])
async def test_a_flipped_bit_is_reported_or_harmless(tmp_path: Path, state: str, file: str) -> None:
    await both_states(tmp_path)
    found = flips(tmp_path / state, file, tmp_path / "work", 150)
    assert found["unnoticed"] == 0, found
    assert found["reported"] > 50, found


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "file"), [("file", "sessions.db"), ("log", "sessions.db-wal"), ("log", "sessions.db")]
)
async def test_no_flipped_bit_at_any_byte_goes_unnoticed(tmp_path: Path, state: str, file: str) -> None:
    await both_states(tmp_path)
    found = flips(tmp_path / state, file, tmp_path / "work", None)
    print(state, file, found)
    assert found["unnoticed"] == 0, found


@pytest.mark.parametrize(("state", "file"), [("file", "sessions.db"), ("log", "sessions.db-wal")])
async def test_without_digests_and_end_mark_flipped_bits_go_unnoticed(tmp_path: Path, state: str, file: str) -> None:
    await both_states(tmp_path)
    shutil.rmtree(tmp_path / state / "sessions.db.ends")
    if state == "file":
        with Store(tmp_path / state / "sessions.db") as store:
            change(store, "UPDATE events SET digest = NULL")
    assert flips(tmp_path / state, file, tmp_path / "work", 150)["unnoticed"] > 10


async def test_a_flipped_bit_in_the_end_mark_is_told_and_loses_no_event(store: Store) -> None:
    events = await fill(store)
    (mark,) = end_marks(store).iterdir()
    data = mark.read_bytes()
    for offset in range(0, len(data), 3):
        mark.write_bytes(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
        assert list(store.events("s")) == events
        found = store.check("s")
        assert (found.ok, found.end_mark) == (True, "unreadable")
    for cut in (b"", data[:20], data[:-1]):
        mark.write_bytes(cut)
        assert list(store.events("s")) == events
    mark.write_bytes(data)
    assert store.check("s").end_mark == "fits"


# Every kind of damage, wherever it is met

DAMAGES = {
    "a changed text": (6, "UPDATE events SET event = replace(event, 'add', 'odd') WHERE key & 4294967295 = 6"),
    "live output with another text": (5, "UPDATE events SET event = replace(event, 'printed', 'painted')"),
    "a row that is gone": (5, "DELETE FROM events WHERE key & 4294967295 = 5"),
    "rows that are cut off": (15, "DELETE FROM events WHERE key & 4294967295 >= 15"),
    "no rows at all": (0, "DELETE FROM events"),
    "two rows exchanged": (
        5,
        "UPDATE events SET key = -key WHERE key & 4294967295 IN (5, 9)",
        "UPDATE events SET key = (-key & ~4294967295) + 14 - (-key & 4294967295) WHERE key < 0",
    ),
    "a row twice": (
        9,
        """UPDATE events SET (event, digest) = (SELECT event, digest FROM events WHERE key & 4294967295 = 5)
           WHERE key & 4294967295 = 9""",
    ),
    "the row of another session": (
        7,
        """UPDATE events SET (event, digest) = (SELECT event, digest FROM events AS e
           WHERE e.key = (2 << 32) + (events.key & 4294967295)) WHERE key = (1 << 32) + 7""",
    ),
    "all rows of another session": (
        0,
        """UPDATE events SET (event, digest) = (SELECT event, digest FROM events AS e
           WHERE e.key = (2 << 32) + (events.key & 4294967295)) WHERE key < 2 << 32""",
    ),
    "a digest that is gone": (5, "UPDATE events SET digest = NULL WHERE key & 4294967295 = 5"),
    "digests that are gone": (5, "UPDATE events SET digest = NULL WHERE key & 4294967295 >= 5"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_each_kind_of_damage_is_told_with_the_last_good_event_and_the_rest_can_be_forked(
    store: Store, tmp_path: Path, damage: str
) -> None:
    events, other = await fill(store), await fill(store, "other")
    good, *statements = DAMAGES[damage]
    only = [f"{each} {'AND' if 'WHERE' in each else 'WHERE'} key < 2 << 32" for each in map(str, statements)]
    change(store, *only)
    read: list[Event] = []
    for use in (
        lambda: read.extend(store.events("s")),
        lambda: list(store.export("s")),
        lambda: Store(tmp_path / "other.db").load(store.export("s")),
        lambda: store.fork("s"),
        lambda: Session.resume(store, "s", tools=[add]),
    ):
        with pytest.raises(DamagedSession) as told:
            use()
        assert (told.value.good, told.value.missing) == (good, len(events) - good)
        assert (LAST_GOOD in str(told.value)) == bool(good)
    assert read == events[: len(read)]
    assert len(read) <= good + 1
    found = store.check("s")
    assert (found.ok, found.events, found.missing) == (False, good, len(events) - good)
    assert list(store.events("other")) == other
    assert store.check("other").ok
    assert Store(tmp_path / "other.db").sessions() == []
    if good:
        copy = store.fork("s", at=good - 1)
        assert list(store.events(copy))[1:good] == events[1:good]
        async with Session.resume(store, copy, tools=[add]) as session:
            assert (await session.call("add", {"a": 1, "b": 1})).ok
    store.remove("s")
    assert {each.id for each in store.sessions()} >= {"other"}
    assert list(end_marks(store).iterdir()) != []


@pytest.mark.parametrize("listed_before", [True, False])
async def test_the_list_shows_a_session_that_lost_its_end_as_damaged(store: Store, listed_before: bool) -> None:
    await fill(store)
    await fill(store, "other")
    if listed_before:
        store.sessions()
    change(store, "DELETE FROM events WHERE key < 2 << 32 AND key & 4294967295 > 9")
    assert {each.id: each.state for each in store.sessions()} == {"s": "damaged", "other": "idle"}


@pytest.mark.parametrize("first", ["lost", "kept"])
async def test_a_damaged_session_is_listed_with_what_its_good_part_says(store: Store, first: str) -> None:
    events = await fill(store)
    change(store, f"DELETE FROM events WHERE key & {LOW} >= {5 if first == 'kept' else 0}")
    (listed,) = store.sessions()
    assert listed.state == "damaged"
    if first == "kept":
        assert (listed.created, listed.updated) == (events[0].time, events[4].time)
    assert listed.updated >= events[0].time


async def test_live_output_that_has_its_old_text_again_is_told(store: Store) -> None:
    async def flood(context: Context) -> None:
        """Print much, slowly enough for many events."""
        for n in range(8):
            context.show(f"{n}" * 20_000)
            await anyio.sleep(0.08)

    async with Session([flood], store=store, id="s") as session:
        await session.call("flood")
    assert store.check("s").ok
    dropped = next(event for event in store.events("s") if event.data.get("dropped"))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        key, text = connection.execute("SELECT key, event FROM events WHERE key & ? = ?", (LOW, dropped.seq)).fetchone()
        old = text.replace('"text":""', '"text":"0"').replace(f',"dropped":{dropped.data["dropped"]}', "")
        assert old != text
        kept = connection.execute("SELECT digest FROM events WHERE key = ?", (key,)).fetchone()[0][:16]
        then = kept + sha256(old.encode()).digest()[:16]  # as the row was, with the digest that it had
        connection.execute("UPDATE events SET event = ?, digest = ? WHERE key = ?", (old, then, key))
    for use in (lambda: list(store.events("s")), lambda: store.fork("s"), lambda: Session.resume(store, "s")):
        with pytest.raises(DamagedSession, match="1 live-output events have a text again"):
            use()
    assert not store.check("s").ok


# The end mark


async def test_a_session_of_which_nothing_is_left_is_listed_as_damaged_until_it_is_removed(tmp_path: Path) -> None:
    with Store(tmp_path / "new" / "sessions.db") as first:
        await fill(first, "before")
    with Store(tmp_path / "new" / "sessions.db") as first:
        events = await fill(first)
        killed(first, tmp_path / "killed")
    log = tmp_path / "killed" / "sessions.db-wal"
    log.write_bytes(log.read_bytes()[:10_000])  # the beginning of a log is whole
    with Store(tmp_path / "killed" / "sessions.db") as store:
        states = {each.id: each.state for each in store.sessions()}
        assert states == {"s": "damaged", "before": "idle"}
        for use in (
            lambda: list(store.events("s")),
            lambda: Session.resume(store, "s"),
            lambda: store.fork("s", at=0),
        ):
            with pytest.raises(DamagedSession, match=f"All of its {len(events)} events are lost"):
                use()
        with pytest.raises(HandrailError, match="already in"):
            Session([add], store=store, id="s")
        store.remove("s")
        assert [each.id for each in store.sessions()] == ["before"]
        await fill(store)


async def test_a_mark_that_is_behind_the_rows_is_no_damage(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
        assert session.trace
        (mark,) = end_marks(store).iterdir()
        before = mark.read_bytes()
        await session.call("add", {"a": 2, "b": 1})
    assert mark.read_bytes() != before
    mark.write_bytes(before)  # as a kill between the commit and the mark leaves it
    assert store.check("s").ok
    assert [each.state for each in store.sessions()] == ["idle"]
    async with Session.resume(store, "s", tools=[add]) as again:
        assert (await again.call("add", {"a": 3, "b": 1})).ok
    assert store.check("s").ok
    assert mark.read_bytes() != before


async def test_a_store_copied_without_its_end_marks_opens_and_says_so(store: Store, tmp_path: Path) -> None:
    events = await fill(store)
    store.close()
    shutil.copy(store.path, tmp_path / "copy.db")
    with Store(tmp_path / "copy.db") as copy:
        assert list(copy.events("s")) == events
        assert (copy.check("s").ok, copy.check("s").end_mark) == (True, "none")
        async with Session.resume(copy, "s", tools=[add]) as session:
            assert (await session.call("add", {"a": 1, "b": 1})).ok
        assert copy.check("s").end_mark == "fits"


async def test_a_store_that_was_removed_on_purpose_is_not_missed(store: Store) -> None:
    await fill(store)
    store.close()
    store.path.unlink()
    assert store.sessions() == []
    events = await fill(store, calls=1)
    assert store.check("s").ok
    assert list(store.events("s")) == events


async def test_a_file_that_is_gone_is_told_by_the_end_marks_beside_it(store: Store) -> None:
    assert store.problems() == []
    await fill(store)
    store.close()
    store.path.unlink()
    (told,) = store.problems()
    assert "is gone, and the end marks of 1 session are beside it. Restore the file from a copy" in told
    for use in (lambda: list(store.events("s")), lambda: Session.resume(store, "s")):
        with pytest.raises(HandrailError, match=r"there is no session 's' .* is gone, and the end marks"):
            use()
    shutil.rmtree(end_marks(store))
    assert store.problems() == []


async def test_an_older_copy_in_the_place_of_a_store_is_told_what_it_lacks(store: Store, tmp_path: Path) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    store.close()
    shutil.copy(store.path, tmp_path / "older")
    async with Session.resume(store, "s", tools=[add]) as session:
        await session.call("add", {"a": 1, "b": 1})
    store.close()
    shutil.copy(tmp_path / "older", store.path)
    with pytest.raises(DamagedSession, match=r"end at 3, and 7 was written.*last good event is 3; 4 after it are lost"):
        list(store.events("s"))


async def test_a_removed_session_leaves_no_end_mark_and_only_its_user_can_read_one(store: Store) -> None:
    await fill(store)
    copy = store.fork("s")
    marks = list(end_marks(store).iterdir())
    assert len(marks) == 2
    assert {mark.stat().st_mode & 0o777 for mark in marks} == {0o600}
    assert end_marks(store).stat().st_mode & 0o777 == 0o700
    loaded = store.load(list(store.export("s")))
    assert all(store.check(id).end_mark == "fits" for id in ("s", copy, loaded))
    for id in ("s", copy, loaded):
        store.remove(id)
    assert list(end_marks(store).iterdir()) == []


def read_all(path: Path, over: threading.Event, told: list[str]) -> None:
    """List and check all sessions, again and again; add what is told of damage, and a line for each that is whole."""
    while not over.is_set():
        with Store(path) as mine:
            for each in mine.sessions():
                try:
                    found = mine.check(each.id)
                except HandrailError as error:
                    told.append(str(error))
                else:
                    told.append("whole" if found.ok and each.state != "damaged" else f"{each} {found}")


async def test_who_reads_while_others_write_is_told_of_no_damage(store: Store) -> None:
    over, told = threading.Event(), list[str]()
    readers = [threading.Thread(target=read_all, args=(store.path, over, told)) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for n in range(6):
            await fill(store, f"s{n}", calls=20)
            if n % 2:
                store.remove(f"s{n}")
    finally:
        over.set()
        for reader in readers:
            reader.join()
    gone = ("the session was removed while it was read", "there is no session")  # just now, and that is said
    assert [each for each in told if each != "whole" and not each.startswith(gone)] == []
    assert told.count("whole") > 5


# What others wrote


async def test_events_without_digests_are_counted_and_those_written_after_them_are_checked(store: Store) -> None:
    old = await fill(store, calls=2)
    change(store, "UPDATE events SET digest = NULL")
    shutil.rmtree(end_marks(store))
    assert (store.check("s").ok, store.check("s").without_digest) == (True, len(old))
    async with Session.resume(store, "s", tools=[add]) as session:
        await session.call("add", {"a": 1, "b": 1})
    assert (store.check("s").ok, store.check("s").without_digest) == (True, len(old))
    change(store, f"UPDATE events SET event = replace(event, 'a', 'b') WHERE key & 4294967295 = {len(old) + 2}")
    assert store.check("s").events == len(old) + 2


@pytest.mark.parametrize("where", ["summary", "event", "summary and event"])
async def test_what_is_nested_too_deeply_is_no_recursion_error(store: Store, where: str) -> None:
    await fill(store)
    deep = "[" * 100_000 + "]" * 100_000
    if "summary" in where:
        change(store, f"UPDATE sessions SET summary = '{{\"title\": {deep}}}', folded = 3, digest = NULL")
    if "event" in where:
        change(store, f"UPDATE events SET event = '{deep}' WHERE key & 4294967295 = 2")
    (summary,) = store.sessions()
    assert summary.state == ("damaged" if "event" in where else "idle")
    if "event" in where:
        with pytest.raises(HandrailError, match="event 2 cannot be read"):
            list(store.events("s"))
    else:
        assert summary.title == "Some words of s"  # read from the events again


async def test_a_changed_summary_is_made_again(store: Store) -> None:
    await fill(store)
    before = store.sessions()
    for changed in ("replace(summary, 'words', 'w\x01rds')", "'{}'", "replace(summary, 'idle', 'done')"):
        change(store, f"UPDATE sessions SET summary = {changed}")
        assert store.sessions() == before


async def test_a_damaged_artifact_is_told_by_the_check(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        ref = await session.artifacts.put("content " * 1_000)
        await session.call("add", {"a": 1, "b": 1})
    assert store.check("s").ok
    objects = Path(f"{store.path}.artifacts") / "objects"
    (blob,) = objects.iterdir()
    blob.chmod(0o600)
    blob.write_bytes(blob.read_bytes().replace(b"content", b"CONTENT", 1))
    found = store.check("s")
    assert (found.ok, found.damage) == (False, "")
    assert ref.ref in found.artifacts[0]


def use_all(store: Store) -> list[Callable[[], object]]:
    return [store.sessions, lambda: list(store.events("s")), lambda: store.check("s"), store.problems]


@pytest.mark.parametrize("offset", [18, 56, 100, 4_000])
async def test_a_file_whose_first_page_is_damaged_is_told_by_handrail(store: Store, offset: int) -> None:
    await fill(store)
    store.close()
    with store.path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xd4" * 40)
    for use in use_all(store):
        try:
            use()
        except HandrailError:
            break
    else:
        pytest.fail("nobody was told")
