"""A store that is full, read-only, damaged, removed or attacked says so; nothing is lost that could be kept."""

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Agent, Call, Context, HandrailError, Policy, Rule, Session, Store, Success, Turn
from handrail.session.session import core_of
from handrail.testing import ScriptedModel

pytestmark = pytest.mark.anyio
PROGRAM = Path(__file__).with_name("faults.py")
NOBODY = 65534


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "sessions.db") as made:
        yield made


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can reach."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="handrail-faults-"))
    place.chmod(0o755)
    yield place
    for each in [place, *place.rglob("*")]:
        if each.is_dir():
            each.chmod(0o755)
    shutil.rmtree(place)


def run(name: str, directory: Path, *before: str, ordinary: bool = False) -> None:
    """Run one of the programs, which must say ok; if asked, as an ordinary user."""
    user = [str(NOBODY)] if ordinary and os.geteuid() == 0 else []
    done = subprocess.run(
        [*before, sys.executable, str(PROGRAM), name, str(directory), *user],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def mounted(how: str, directory: Path) -> list[str]:
    """A command before another one, which has a mount of its own."""
    inner = f'{how.replace("HERE", str(directory))} && exec "$@"'
    return ["unshare", "-Urm", "sh", "-c", inner, "sh"]


def test_a_full_disk_refuses_calls_until_there_is_room_and_loses_nothing(tmp_path: Path) -> None:
    run("full", tmp_path, *mounted("mount -t tmpfs -o size=600k none HERE", tmp_path))


def test_closing_on_a_full_disk_says_so_and_what_was_stored_can_be_resumed(tmp_path: Path) -> None:
    run("full_at_the_end", tmp_path)


def test_a_read_only_file_system_can_be_read_and_says_what_cannot_be_written(tmp_path: Path) -> None:
    run("make", tmp_path)
    run("read_only", tmp_path, *mounted("mount --bind HERE HERE && mount -o remount,ro,bind HERE", tmp_path))


def test_a_directory_that_the_user_may_not_write_can_be_read(open_place: Path) -> None:
    run("make", open_place)
    for each in open_place.iterdir():
        each.chmod(0o555 if each.is_dir() else 0o444)
    open_place.chmod(0o555)
    run("read_only", open_place, ordinary=True)


def test_a_database_that_the_user_may_not_write_refuses_calls(open_place: Path) -> None:
    run("make", open_place)
    open_place.chmod(0o777)
    (open_place / "sessions.db.claims").chmod(0o777)
    (open_place / "sessions.db").chmod(0o444)
    run("read_only_file", open_place, ordinary=True)


async def test_a_call_that_is_refused_before_its_body_never_runs(store: Store) -> None:
    policy = Policy(deny=[Rule("forbidden")])

    def forbidden() -> None:
        """Never."""

    async with Session([add, forbidden], store=store, policy=policy) as session:
        for name, arguments in (("unknown", "{}"), ("add", '{"a": "x"}'), ("add", "nonsense"), ("forbidden", "{}")):
            assert not (await session.call(name, arguments)).ok
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert (await session.call("add", {"a": 1, "b": 2})).kind == "unavailable"
        other.close()
        types = [event.type for event in session.trace]
        assert types.count("call_started") == types.count("call_ended") == 5
        assert "call_running" not in types
        assert (await session.call("add", {"a": 1, "b": 2})).ok  # control
        assert [event.type for event in session.trace].count("call_running") == 1
    assert [*store.events(session.id)] == [*session.trace]


@pytest.mark.parametrize("gone", ["file", "directory", "copy", "other", "older"])
async def test_a_store_that_is_removed_or_replaced_under_a_session_gets_all_of_its_events(
    tmp_path: Path, gone: str
) -> None:
    path = tmp_path / "below" / "sessions.db"
    store = Store(path)
    async with Session([add], store=store, id="s") as session:
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        shutil.copy(path, tmp_path / "older")
        shutil.copy(f"{path}-wal", tmp_path / "older-wal")
        assert (await session.call("add", {"a": 2, "b": 1})).ok
        shutil.copy(path, tmp_path / "copy")
        shutil.copy(f"{path}-wal", tmp_path / "copy-wal")
        with Store(tmp_path / "other") as other:
            async with Session([add], store=other, id="t") as apart:
                await apart.call("add", {"a": 1, "b": 1})
        shutil.rmtree(path.parent) if gone == "directory" else [path.unlink(), Path(f"{path}-wal").unlink()]
        Path(f"{path}-shm").unlink(missing_ok=True)
        for end in ("", "-wal"):
            if gone not in ("file", "directory") and (tmp_path / (gone + end)).exists():
                shutil.copy(tmp_path / (gone + end), f"{path}{end}")
        assert (await session.call("add", {"a": 3, "b": 1})).ok
    assert list(Store(path).events("s")) == list(session.trace)
    assert list(store.events("s")) == list(session.trace)
    if gone == "other":
        assert list(store.events("t")) == list(apart.trace)
    async with Session.resume(store, "s", tools=[add]) as again:
        assert (await again.call("add", {"a": 1, "b": 1})).ok


def leaf_of(path: Path, table: str) -> int:
    """The number of a page of the table, neither the first nor the last one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = path.read_bytes()
    page = data[(root - 1) * size : root * size]
    assert page[0] == 5, "the table has only one page"
    first = int.from_bytes(page[14:16], "big")
    return int.from_bytes(page[first : first + 4], "big")


@pytest.mark.parametrize("with_what", [b"\xff", b"\x00"])
async def test_a_page_damaged_while_it_is_in_use_is_named_and_the_others_can_be_read(
    store: Store, with_what: bytes
) -> None:
    async with Session([add], store=store, id="first") as first:
        for n in range(40):
            await first.call("add", {"a": n, "b": 1})
    async with Session([add], store=store, id="second") as session:
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        page = leaf_of(store.path, "events")
        with store.path.open("r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(with_what * 4096)
        store.close()  # forget the pages that SQLite has in memory
        for use in (lambda: list(store.events("first")), lambda: Session.resume(store, "first", tools=[add])):
            with pytest.raises(HandrailError, match=r"damaged.*Restore it from a copy"):
                use()
        states = {each.id: each.state for each in store.sessions()}
        assert states == {"first": "damaged", "second": "running"}
        assert (await session.call("add", {"a": 1, "b": 1})).ok
    assert list(store.events("second")) == list(session.trace)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("UPDATE events SET event = 'x' || event WHERE key & 4294967295 = 2", "event 2 .*cannot be read"),
        ("UPDATE events SET event = '[1]' WHERE key & 4294967295 = 2", "event 2 .*cannot be read"),
        ("DELETE FROM events WHERE key & 4294967295 = 2", "event 2 .*missing"),
        (
            """UPDATE events SET event = '[1,"call_ended",null,null,{"memory":1}]' WHERE key & 4294967295 = 3""",
            "damaged",
        ),
    ],
)
async def test_events_that_are_not_what_was_written_are_named(store: Store, damage: str, named: str) -> None:
    for id in ("bad", "good"):
        async with Session([add], store=store, id=id) as session:
            await session.call("add", {"a": 1, "b": 1})
        if id == "bad":
            with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
                connection.execute(damage)
    shown = {each.id: each.state for each in store.sessions()}
    assert shown["good"] == "idle"
    with pytest.raises(HandrailError, match=named):
        Session.resume(store, "bad", tools=[add])
    Session.resume(store, "good", tools=[add])


@pytest.mark.parametrize("id", ["../x", "a/b", "..", "/etc/passwd", "ünï", "x" * 200, "a\\b", "%2e"])
async def test_an_id_may_look_like_a_path_and_stays_inside_the_store(store: Store, tmp_path: Path, id: str) -> None:
    async with Session([add], store=store, id=id) as session:
        await session.artifacts.put("content")
        assert (await session.call("add", {"a": 1, "b": 1})).ok
    assert [each.id for each in store.sessions()] == [id]
    other = Store(tmp_path / "other.db")
    assert other.load(list(store.export(id))) == id
    names = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert names == {"sessions", "other"}
    store.remove(id)
    assert store.sessions() == []


@pytest.mark.parametrize("id", ["", "\ud800", "a\nb", "a\x00b", "x" * 201, "\x1b[2J"])
async def test_an_id_that_cannot_be_written_or_printed_is_refused(store: Store, id: str) -> None:
    with pytest.raises(HandrailError, match=r"Session\.id"):
        Session([add], store=store, id=id)
    assert not store.path.exists()
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    head, *rest = store.export("s")
    made = store.load([json.dumps({**json.loads(head), "session": id}), *rest])
    assert made not in (id, "s")  # an export of somebody else gets another one
    assert {each.id for each in store.sessions()} == {made, "s"}


def event(seq: int, type: str = "warning", data: Any = None, **other: Any) -> str:
    given = {"time": 1.0, "call_id": None, "parent": None} | other
    return json.dumps({"event": [seq, given["time"], type, given["call_id"], given["parent"], data or {}]})


HEAD = json.dumps({"handrail": 1, "session": "h"})
ARTIFACT: dict[str, Any] = {"artifact": "a_" + "0" * 32, "media_type": "text/plain", "name": None, "pins": 0}


@pytest.mark.parametrize(
    "lines",
    [
        [event(0, "user")],
        [event(0, "user", {"text": 5})],
        [event(0, "model_answered", {"text": "x"})],
        [event(0, "model_answered", {"text": "", "calls": [1], "stop": "end", "model": "", "usage": {}, "keep": None})],
        [event(0, "model_answered", {"text": "", "calls": [], "stop": "", "model": "", "usage": {"input_tokens": "x"},
                                     "keep": 1})],
        [event(0, "call_ended", {"tool": "x", "result": {}})],
        [event(0, "call_ended", {"tool": "x", "result": {"ok": True, "result": 1}, "memory": {"x": 1}})],
        [event(0, "call_started", {"tool": "x"})],
        [event(0, "tools_loaded", {"tools": 1})],
        [event(0, "run_ended", {"reason": []})],
        [event(0, "job_started", {"job": []})],
        [event(0, call_id=["x"])],
        [event(0, parent={})],
        [event(0, time=float("nan"))],
        [event(0, time=1e999)],
        [event(0, data=[1])],
        [event(0, "nonsense")],
        [event(0), event(0)],
        [event(0), event(2)],
        [event(0), json.dumps({"base64": "AAAA"})],
        [event(0), json.dumps(ARTIFACT), json.dumps({"base64": "AAAA"})],
        [event(0), json.dumps(ARTIFACT)],
        [event(0), json.dumps(ARTIFACT | {"pins": "many"})],
        [event(0), json.dumps(ARTIFACT | {"pins": -1})],
        [event(0), json.dumps(ARTIFACT | {"name": ["x"]})],
        [event(0), json.dumps(ARTIFACT | {"artifact": "../../../x"})],
        [event(0), json.dumps(ARTIFACT | {"media_type": None})],
        [event(0), HEAD, event(1)],
        [event(0), "null"],
        [event(0), "[]"],
        [event(0), '{"event": [1, 2]}'],
    ],
)  # fmt: skip
async def test_a_hostile_export_is_refused_and_leaves_nothing(store: Store, tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(HandrailError):
        store.load([HEAD, *lines])
    assert store.sessions() == []
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and "sessions.db-" not in path.name]
    assert kept in ([], [store.path])
    assert not list(tmp_path.parent.glob("x"))
    assert store.load([HEAD, event(0)]) == "h"  # control


async def test_a_large_export_is_read_line_by_line(store: Store) -> None:
    made: list[int] = []

    def lines() -> Iterator[str]:
        yield HEAD
        for seq in range(100_000):
            yield event(seq, data={"message": "x"})
            made.append(seq)
        yield event(100_000, data={"message": "y" * 20_000_000})

    id = store.load(lines())
    count = 0
    for seq, each in enumerate(store.events(id)):
        assert each.seq == seq
        count += 1
    assert count == 100_001
    async with Session.resume(store, id, tools=[add]) as session:
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        assert session.event_count == 100_001 + 4


async def test_two_threads_may_use_one_store_for_everything(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    failed: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(15):
                id = store.load(list(store.export("s")))
                store.sessions()
                copy = store.fork(id)
                store.remove(id)
                assert len(list(store.events(copy))) == 4
                store.remove(copy)
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert [each.id for each in store.sessions()] == ["s"]


async def test_looking_which_sessions_run_takes_none_away_from_who_wants_to_go_on_with_it(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            store.sessions()

    with ThreadPoolExecutor(3) as threads:
        for _ in range(3):
            threads.submit(look)
        try:
            for _ in range(300):
                store.claim("s", exists=True).close()
            with store.claim("s", exists=True), pytest.raises(HandrailError, match="in use by this process"):
                store.claim("s", exists=True)
        finally:
            over.set()


async def test_of_many_who_want_a_session_while_somebody_looks_one_gets_it_soon(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    with store.claim("s", exists=True):
        (file,) = Path(f"{store.path}.claims").iterdir()
    file.touch()
    kept, refused, together = [], list[str](), threading.Barrier(9)

    def want() -> None:
        together.wait()
        try:
            kept.append(store.claim("s", exists=True))
        except HandrailError as error:
            refused.append(str(error))

    with file.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)  # as another process that lists the sessions
        wants = [threading.Thread(target=want, daemon=True) for _ in range(8)]
        for thread in wants:
            thread.start()
        together.wait()
        await anyio.sleep(0.05)
    end = time.monotonic() + 30
    for thread in wants:
        thread.join(max(0.0, end - time.monotonic()))
    assert (len(kept), len(refused)) == (1, 7), "they wait for each other"
    kept[0].close()


async def test_a_session_that_runs_survives_close_and_can_be_exported_and_forked(store: Store, tmp_path: Path) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def wait(context: Context) -> str:
        """Wait."""
        context.show("waiting")
        begun.set()
        await go_on.wait()
        return "done"

    async with Session([wait, add], store=store, id="s") as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "wait")
        await begun.wait()
        store.close()
        exported = list(store.export("s"))
        copy = store.fork("s")
        store.close()
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        go_on.set()
    assert list(store.events("s")) == list(session.trace)
    ends = [each for each in store.events(copy) if each.type == "call_ended"]
    assert [each.data["kind"] for each in ends] == ["cancelled"]
    other = Store(tmp_path / "other.db")
    async with Session.resume(other, other.load(exported), tools=[wait, add]) as resumed:
        ends = [each for each in resumed.trace if each.type == "call_ended"]
        assert [each.data["kind"] for each in ends] == ["unknown_outcome"]


async def test_a_session_removed_while_it_is_read_is_said_not_cut_short(store: Store) -> None:
    for id in ("s", "t"):
        async with Session([add], store=store, id=id) as session:
            for n in range(300):
                await session.call("add", {"a": n, "b": 1})
    for read in (store.events, store.export):
        id = "s" if read == store.events else "t"
        reading: Iterator[Any] = iter(read(id))
        next(reading)
        store.remove(id)
        with pytest.raises(HandrailError, match="was removed while it was read"):
            list(reading)
    assert store.sessions() == []


async def test_a_forked_child_neither_writes_the_session_nor_ends_its_claim(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                session.emit("warning", data={"message": "from the child"})
                why = core_of(session).begin_body("x", None)
                core_of(session).transcript.release()
                code = 0 if "forked" in why else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(HandrailError, match="in use"):
            Session.resume(Store(store.path), "s")
        assert (await session.call("add", {"a": 1, "b": 1})).ok
    assert list(store.events("s")) == list(session.trace)


async def test_a_result_for_a_tool_that_is_gone_after_resume_is_still_told(store: Store) -> None:
    model = ScriptedModel([Turn("", (Call("c", "add", '{"a": 1, "b": 2}'),)), "3"])
    agent = Agent(model, tools=[add], store=store)
    async with agent.session:
        await agent.run("add")
    after = Agent.resume(ScriptedModel([Turn("", (Call("c", "add", "{}"),)), "gone"]), store, agent.session.id)
    async with after.session:
        assert (await after.run("again")).text == "gone"
    told = [result for message in after.messages for result in message.results]
    assert told[0] == Success(3)
    assert told[1].kind == "tool_not_found"
