"""Calls of many processes on one store are all run: who finds it locked waits a while, and others go on meanwhile."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Budget, Call, Session, Store, tool

pytestmark = pytest.mark.anyio
PROGRAM = Path(__file__).with_name("loaded_program.py")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "sessions.db") as made:
        yield made


class Lock:
    """Another process that writes: it has the store locked inside the block."""

    def __init__(self, store: Store) -> None:
        self._connection = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)

    def __enter__(self) -> "Lock":
        self._connection.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._connection.close()


def load(directory: Path, processes: int, calls: int) -> list[dict[str, Any]]:
    """Make so many calls in each of so many processes, which begin together. Returns what each one tells."""
    command = [sys.executable, str(PROGRAM), str(directory / "sessions.db"), str(calls), str(directory / "go")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    (directory / "go").touch()
    told = [each.communicate()[0] for each in started]
    assert [each.returncode for each in started] == [0] * processes
    return [json.loads(line) for line in told]


def test_no_call_of_four_processes_on_one_store_is_refused(tmp_path: Path) -> None:
    told = load(tmp_path, 4, 50)
    assert [each["refused"] for each in told] == [[]] * 4
    assert [(each["same"], each["warnings"]) for each in told] == [(True, 0)] * 4


@pytest.mark.long
@pytest.mark.parametrize("turn", range(5))
def test_none_of_3200_calls_of_eight_processes_on_one_store_is_refused(tmp_path: Path, turn: int) -> None:
    told = load(tmp_path, 8, 400)
    print("refused", sum(len(each["refused"]) for each in told), "stall", max(each["stall"] for each in told))
    assert [each["refused"] for each in told] == [[]] * 8
    assert [(each["same"], each["warnings"]) for each in told] == [(True, 0)] * 8


async def test_a_call_waits_for_a_locked_store_while_other_tasks_run(store: Store) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(0.001)
            turns += 1

    async with Session([add], store=store, id="s") as session, anyio.create_task_group() as group:
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        lock = Lock(store)
        with lock:
            group.start_soon(others)
            threading.Timer(1.5, lock.end).start()
            before = turns
            assert (await session.call("add", {"a": 1, "b": 2})).ok
            assert turns - before > 20, "nobody else had a turn while the call waited"
        group.cancel_scope.cancel()
    assert list(store.events("s")) == list(session.trace)
    assert [event.type for event in session.trace if event.type == "warning"] == []


async def test_calls_that_wait_together_keep_their_order_and_each_is_stored_before_it_runs(store: Store) -> None:
    ran: list[int] = []

    async def note(n: int) -> int:
        """Note it; its own call_running must be stored."""
        began = [event.call_id for event in Store(store.path).events("s") if event.type == "call_running"]
        assert f"c{n}" in began
        ran.append(n)
        return n

    async with Session([note], store=store, id="s", budget=Budget(calls=None)) as session:
        assert (await session.call("note", {"n": 0}, id="c0")).ok
        lock = Lock(store)
        with lock:
            threading.Timer(1.0, lock.end).start()
            results = await session.call_all([Call(f"c{n}", "note", {"n": n}) for n in range(1, 9)])
        assert [result.value for result in results] == list(range(1, 9))
    assert sorted(ran) == list(range(9))
    assert [event.seq for event in session.trace] == list(range(len(session.trace)))
    assert list(store.events("s")) == list(session.trace)


async def test_a_result_is_returned_once_it_is_stored(store: Store) -> None:
    lock: list[Lock] = []

    async def block() -> str:
        """Lock the store for a while."""
        lock.append(Lock(store).__enter__())
        threading.Timer(1.0, lock[0].end).start()
        return "done"

    async with Session([block], store=store, id="s") as session:
        assert (await session.call("block")).ok
        stored = [event.type for event in Store(store.path).events("s")]
        assert stored[-1] == "call_ended"


async def test_only_the_first_call_waits_for_a_store_that_stays_locked(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        with Lock(store):
            took = []
            for _ in range(3):
                began = time.monotonic()
                refused = await session.call("add", {"a": 1, "b": 1})
                took.append(time.monotonic() - began)
                assert (refused.kind, refused.data) == ("unavailable", {"started": False})
            assert max(took[1:]) < took[0] / 2, took
        assert (await session.call("add", {"a": 1, "b": 1})).ok
    assert list(store.events("s")) == list(session.trace)


async def test_a_store_that_cannot_be_written_at_all_is_not_waited_for(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        with sqlite3.connect(store.path, isolation_level=None) as other:
            other.execute("CREATE TRIGGER refuse BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END")
        began = time.monotonic()
        assert (await session.call("add", {"a": 1, "b": 1})).kind == "unavailable"
        broken = time.monotonic() - began
        other.execute("DROP TRIGGER refuse")
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        with Lock(store):
            began = time.monotonic()
            assert (await session.call("add", {"a": 1, "b": 1})).kind == "unavailable"
            locked = time.monotonic() - began
        other.close()
    assert broken < locked / 2


async def test_a_call_that_waits_for_a_locked_store_can_be_cancelled_and_never_ran(store: Store) -> None:
    ran: list[int] = []

    async def note() -> None:
        """Note it."""
        ran.append(1)

    async with Session([note], store=store, id="s") as session:
        assert (await session.call("note")).ok
        with Lock(store):
            with anyio.move_on_after(0.6) as scope:
                await session.call("note", id="waits")
            assert scope.cancelled_caught
        (ended,) = (event for event in session.trace if event.type == "call_ended" and event.call_id == "waits")
        assert ended.data["kind"] == "cancelled"
    assert ran == [1]
    assert list(store.events("s")) == list(session.trace)


async def test_sessions_are_closed_forked_loaded_and_removed_while_others_write(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    exported = list(store.export("s"))
    for use in (
        lambda: store.fork("s"),
        lambda: store.load(exported),
        lambda: store.remove("s"),
    ):
        lock = Lock(store)
        with lock:
            threading.Timer(1.0, lock.end).start()
            use()
    for each in store.sessions():
        assert store.check(each.id).ok
    session = Session([add], store=store, id="t")
    await session.__aenter__()
    assert (await session.call("add", {"a": 1, "b": 1})).ok
    session.emit("warning", data={"message": "the last event"})
    lock = Lock(store)
    with lock:
        threading.Timer(1.0, lock.end).start()
        await session.__aexit__(None, None, None)
    assert list(store.events("t")) == list(session.trace)


async def test_a_tool_with_a_short_time_limit_is_not_said_to_have_used_it_up_by_waiting(store: Store) -> None:
    @tool(timeout=0.5)
    async def quick() -> str:
        """Be quick."""
        return "done"

    async with Session([quick], store=store, id="s") as session:
        assert (await session.call("quick")).ok
        lock = Lock(store)
        with lock:
            threading.Timer(1.5, lock.end).start()
            assert (await session.call("quick")).ok
