"""What is kept can be listed, shown, exported, loaded, forked, resumed and removed; and says clearly when it cannot."""

import gc
import json
import os
import sqlite3
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    Budget,
    Call,
    Context,
    Decision,
    HandrailError,
    Image,
    Message,
    Policy,
    Sandbox,
    Session,
    Store,
    Tool,
    Turn,
    Usage,
    builtin_tools,
)
from handrail.gates.permit import approvals_of
from handrail.session.session import core_of
from handrail.testing import MemoryDriver, ScriptedModel
from handrail.tools.task import task

COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def picture() -> dict[str, Any]:
    """Draw."""
    return {"drawn": [Image(b"\x89PNG one"), Image(b"GIF two", "image/gif")], "note": "two of them"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "below" / "sessions.db") as made:
        yield made


def turn(*made: tuple[str, Any], text: str = "") -> Turn:
    calls = tuple(Call(f"id{n}", name, arguments) for n, (name, arguments) in enumerate(made))
    return Turn(text, calls, "tool_use", Usage(10, 5), keep={"signature": "é\ud800"})


def as_text(messages: list[Message]) -> str:
    """Every byte that a provider would be sent of the messages."""
    return json.dumps(
        [
            [
                message.role,
                message.text,
                [[call.id, call.name, call.arguments, call.cut] for call in message.calls],
                [[result.to_envelope("t"), repr(result.value)] for result in message.results],
                repr(message.images),
                message.keep,
            ]
            for message in messages
        ]
    )


async def filled(store: Store, model: Any = None, **options: Any) -> Agent:
    """A session of two runs, with pictures and failures in it, closed."""
    lines = [
        turn(("add", '{"a": 1, "b": "2"}'), ("picture", {}), ("nothing", "{}"), text="let me see"),
        "First.",
        turn(("add", {"a": "one", "b": 2}), ("picture", {})),
        "Second.",
    ]
    agent = Agent(model or ScriptedModel(lines), tools=[add, picture], store=store, system="be brief", **options)
    async with agent.session:
        await agent.run("add them\nplease")
        await agent.run("again")
    return agent


async def test_a_resumed_session_tells_the_model_the_same_messages_byte_for_byte(store: Store) -> None:
    before = await filled(store)
    model = ScriptedModel([turn(("add", {"a": 3, "b": 4})), "Third."])
    after = Agent.resume(model, store, before.session.id, tools=[add, picture], system="be brief")
    assert as_text(after.messages) == as_text(before.messages)
    assert len(after.messages) == 8
    async with after.session:
        assert (await after.run("more")).text == "Third."
    assert as_text(after.messages[:8]) == as_text(before.messages)
    ids = [call.id for message in after.messages for call in message.calls]
    assert len(set(ids)) == len(ids) == 6
    seen = [event.seq for event in after.session.trace]
    assert seen == list(range(len(seen)))
    assert [*store.events(before.session.id)] == [*after.session.trace]


async def test_a_resumed_session_goes_on_counting_its_calls(store: Store) -> None:
    async def twice(context: Context) -> int:
        """Call another tool twice."""
        return sum([(await context.use("add", {"a": 1, "b": number})).value for number in (1, 2)])

    lines = [turn(("task", {"prompt": "go"})), turn(("twice", {})), "did it", turn(("add", {"a": 1, "b": 1})), "done"]
    agent = Agent(ScriptedModel(lines), tools=[add, twice, task], store=store)
    async with agent:
        await agent.run("go")
        await agent.session.call("add", {"a": 1, "b": 1}, id="a/1/b")  # which looks like one of a task
        await agent.session.call("twice")
    assert agent.session.call_count == 6  # those of the task are not the session's
    again = Session.resume(store, agent.session.id, tools=[add, twice, task])
    assert again.call_count == 6
    async with again:
        await again.call("add", {"a": 1, "b": 1})
    assert again.call_count == 7


async def test_what_another_model_wanted_back_is_not_given_to_this_one(store: Store) -> None:
    before = await filled(store)
    assert before.messages[1].keep is not None

    class Other(ScriptedModel):
        name = "other"

    after = Agent.resume(Other(["ok"]), store, before.session.id, tools=[add, picture])
    assert {message.keep for message in after.messages} == {None}


async def test_the_list_says_what_each_session_is(store: Store) -> None:
    assert store.sessions() == []
    first = await filled(store)
    async with Session([add], store=store, id="second") as session:
        await session.call("add", {"a": 1, "b": 1})
        running, other = store.sessions()
        assert (running.id, running.state, running.calls, running.title) == ("second", "running", 1, "")
        assert (other.id, other.state, other.title) == (first.session.id, "done", "add them please")
        assert (other.calls, other.usage.input_tokens, other.model) == (5, 20, "ScriptedModel")
    assert [each.state for each in store.sessions()] == ["idle", "done"]
    with Store(store.path) as again:
        assert again.sessions() == store.sessions()


async def test_only_this_user_can_read_what_is_kept(store: Store) -> None:
    await filled(store)
    for path in [store.path.parent, *store.path.parent.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


async def test_an_export_loads_into_the_same_session(store: Store, tmp_path: Path) -> None:
    agent = await filled(store)
    lines = list(store.export(agent.session.id))
    assert all(line.isascii() and "\n" not in line for line in lines)
    other = Store(tmp_path / "other.db")
    id = other.load(lines)
    assert id == agent.session.id
    assert list(other.events(id)) == list(store.events(id))
    assert list(other.export(id)) == lines
    resumed = Agent.resume(ScriptedModel([]), other, id, tools=[add, picture])
    assert as_text(resumed.messages) == as_text(agent.messages)  # with the pictures
    assert other.load(lines) != id  # its own id is taken


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda lines: [], "no events"),
        (lambda lines: lines[:1], "no events"),
        (lambda lines: ["hello", *lines], "line 1 "),
        (lambda lines: [lines[0], *lines[2:]], "line 2 .*event 0"),
        (lambda lines: [*lines[:5], "{", *lines[5:]], "line 6 "),
        (lambda lines: [*lines[:4], lines[4].replace('"', "'", 1), *lines[5:]], "line 5 "),
        (lambda lines: [*lines[:-1], json.dumps({"base64": "AAAA"})], "content"),
        (lambda lines: [*lines[:-1], json.dumps({"base64": "%"})], "line "),
        (lambda lines: [lines[0], lines[1].replace("session_started", "mine"), *lines[2:]], "line 2 .*type 'mine'"),
        (lambda lines: ["[" * 100_000], "line 1 "),
        (lambda lines: [json.dumps({"handrail": 99, "session": "x"})], "line 1 "),
    ],
)
async def test_a_damaged_export_is_refused_by_line_and_adds_nothing(
    store: Store, tmp_path: Path, change: Any, named: str
) -> None:
    agent = await filled(store)
    other = Store(tmp_path / "other.db")
    with pytest.raises(HandrailError, match=named):
        other.load(change(list(store.export(agent.session.id))))
    assert other.sessions() == []
    assert not list((tmp_path / "other.db.artifacts").rglob("a_*"))


async def test_a_fork_at_any_event_is_a_session_of_its_own_that_goes_on(store: Store) -> None:
    agent = await filled(store)
    events = list(store.events(agent.session.id))
    for at in range(len(events)):
        id = store.fork(agent.session.id, at)
        forked = list(store.events(id))
        assert forked[1 : at + 1] == events[1 : at + 1]
        assert forked[0].data["forked_from"] == {"session": agent.session.id, "event": at}
        model = ScriptedModel(["Gone on."])
        resumed = Agent.resume(model, store, id, tools=[add, picture])
        async with resumed.session:
            assert (await resumed.run("go on")).text == "Gone on."
        for number, message in enumerate(resumed.messages):
            answered = resumed.messages[number + 1].results if message.calls else ()
            assert len(answered) == len(message.calls)
        ends = [event.call_id for event in resumed.session.trace if event.type == "call_ended"]
        assert len(ends) == len(set(ends))
        store.remove(id)
    assert list(store.events(agent.session.id)) == events
    for wrong in (-1, len(events)):
        with pytest.raises(HandrailError, match=f"events 0 to {len(events) - 1}"):
            store.fork(agent.session.id, wrong)


async def test_the_open_calls_of_a_fork_end_as_cancelled(store: Store) -> None:
    agent = await filled(store)
    running = next(event for event in agent.session.trace if event.type == "call_running")
    id = store.fork(agent.session.id, running.seq)
    ends = [event for event in store.events(id) if event.type == "call_ended"]
    assert {event.data["kind"] for event in ends} == {"cancelled"}
    assert len(ends) == 3


async def test_artifacts_go_with_the_last_session_that_has_them(store: Store) -> None:
    agent = await filled(store)
    copy = store.fork(agent.session.id)
    (ref,) = {each["ref"] for event in agent.session.trace for each in event.data.get("images", ())[:1]}
    store.remove(agent.session.id)
    assert await store.artifacts.scope(copy).read(ref) == b"\x89PNG one"
    store.remove(copy)
    assert store.sessions() == []
    kept = [path for path in Path(f"{store.path}.artifacts").rglob("*") if path.is_file()]
    assert kept == []
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)


async def test_a_removal_that_was_interrupted_is_finished_by_the_next(store: Store) -> None:
    first, second = await filled(store), await filled(store)
    with closing(
        sqlite3.connect(store.path, isolation_level=None)
    ) as connection:  # as a kill after hiding it leaves it
        connection.execute("INSERT INTO removed SELECT no FROM sessions WHERE id = ?", (first.session.id,))
        connection.execute("DELETE FROM sessions WHERE id = ?", (first.session.id,))
    async with Session([add], store=store) as third:  # its number must not be that of the removed one
        await third.call("add", {"a": 1, "b": 1})
    assert len(list(store.events(third.id))) == len(third.trace)
    store.remove(second.session.id)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (len(third.trace),)


async def test_a_store_that_nobody_closed_is_closed_when_it_is_collected(tmp_path: Path) -> None:
    store = Store(tmp_path / "sessions.db")
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    open_one = sqlite3.connect(store.path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
        caught.clear()  # about what earlier tests left
        del session, store
        gc.collect()
        assert [str(each.message) for each in caught] == []
        del open_one  # the control: from Python 3.13 on a connection that is dropped open warns
        gc.collect()
        assert bool(caught) == (sys.version_info >= (3, 13))


LAST = """
import asyncio, atexit, os, sys
from handrail import Session, Store, tool

store = Store(sys.argv[1])

def open_files():
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += "s.db" in os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            pass
    return found

atexit.register(lambda: print(open_files()))
atexit.register(store.close)
atexit.register(lambda: print(open_files()))

@tool
def one() -> int:
    "One."
    return 1

async def main():
    async with Session([one], store=store) as session:
        await session.call("one", {})

asyncio.run(main())
"""


def test_a_store_is_closed_by_whoever_closes_it_when_python_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "always", "-c", LAST, str(tmp_path / "s.db")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert before > 0, "the control"
    assert after == 0
    assert "unclosed database" not in ran.stderr


async def test_a_store_is_closed_also_when_its_connection_is_collected_before_it(tmp_path: Path) -> None:
    """Objects that are collected together go in the order in which the last collection met them."""

    def connections() -> list[sqlite3.Connection]:
        return [each for each in gc.get_objects() if type(each) is sqlite3.Connection]

    stores, before = [Store(tmp_path / "sessions.db")], connections()
    async with Session([add], store=stores[0], id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    del session
    first = [each for each in connections() if each not in before]
    assert len(first) == 1
    stores = [*stores]  # met later than the connection
    gc.collect()
    first.clear()
    stores.append(stores)  # type: ignore[arg-type]  # so that only a collection ends it
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del stores
        gc.collect()
    assert [str(each.message) for each in caught] == []


async def test_a_session_belongs_to_one_at_a_time_and_the_refusal_names_the_other(store: Store) -> None:
    async with Session([add], store=store, id="mine") as session:
        await session.call("add", {"a": 1, "b": 1})
        with pytest.raises(HandrailError, match="mine is in use by this process"):
            Session.resume(store, "mine", tools=[add])
        with pytest.raises(HandrailError, match="in use"):
            store.remove("mine")
        program = "import sys; from handrail import *; Session.resume(Store(sys.argv[1]), 'mine')"
        other = subprocess.run(
            [sys.executable, "-c", program, str(store.path)], check=False, capture_output=True, text=True
        )
        assert f"in use by process {os.getpid()} on " in other.stderr
    Session.resume(store, "mine", tools=[add])  # control: it is free now


async def test_the_same_id_cannot_begin_twice_and_an_unknown_one_cannot_be_resumed(store: Store) -> None:
    async with Session([add], store=store, id="mine") as session:
        await session.call("add", {"a": 1, "b": 1})
    with pytest.raises(HandrailError, match=r"already in .*Session\.resume"):
        Session([add], store=store, id="mine")
    for use in (store.events, store.fork, store.remove, store.export, lambda id: Session.resume(store, id)):
        with pytest.raises(HandrailError, match="no session 'other'"):
            use("other")  # type: ignore[operator]
    assert [each.id for each in store.sessions()] == ["mine"]


async def test_a_session_without_events_is_not_in_the_store(store: Store) -> None:
    async with Session([add], store=store):
        pass
    assert store.sessions() == []
    assert not list(Path(f"{store.path}.claims").iterdir())


async def test_todo_and_what_was_read_last_and_remembered_rules_return(store: Store, tmp_path: Path) -> None:
    async def approver(request: Any) -> Decision:
        return Decision.remember()

    def options() -> dict[str, Any]:
        driver = MemoryDriver(files={"/workspace/a.txt": b"one\n"})
        tools = [each for each in builtin_tools() if each.name in ("todo", "read", "write")]
        return {"tools": tools, "sandbox": Sandbox(driver), "policy": Policy(mode="ask")}

    async with Session(**options(), approver=approver, store=store, id="s") as session:
        await session.call("todo", {"items": [{"content": "x", "status": "pending"}]})
        await session.call("read", {"path": "a.txt"})
        written = await session.call("write", {"path": "b.txt", "content": "1"})
        assert written.ok
        rules = [rule.pattern for rule in approvals_of(core_of(session).shared).remembered]
        assert rules
    async with Session.resume(store, "s", **options()) as again:
        assert core_of(again).memory("todo", lasts=True)["items"] == [{"content": "x", "status": "pending"}]
        assert [rule.pattern for rule in approvals_of(core_of(again).shared).remembered] == rules
    other = options() | {"policy": Policy(mode="strict")}
    async with Session.resume(store, "s", **other) as strict:
        assert approvals_of(core_of(strict).shared).remembered == []


async def test_a_loaded_session_brings_no_rules_and_a_resumed_one_only_those_about_one_value(store: Store) -> None:
    asked: list[str] = []

    async def approver(request: Any) -> Decision:
        asked.append(request.arguments["command"])
        return Decision.remember()

    def options() -> dict[str, Any]:
        bash = Tool("bash", COMMAND, lambda context, arguments: "ran", effects=["executes"])
        return {"tools": [bash], "policy": Policy(mode="ask"), "approver": approver}

    async def call_both(session: Session) -> list[str]:
        asked.clear()
        for line in ("ls", "ls *.py"):
            assert (await session.call("bash", {"command": line})).ok
        return list(asked)

    async with Session(**options(), store=store, id="s") as session:
        assert await call_both(session) == ["ls", "ls *.py"]
        assert await call_both(session) == [], "the control: both are remembered"
    exported = list(store.export("s"))
    assert any('"rule"' in line for line in exported), "the control"
    async with Session.resume(store, "s", **options()) as again:
        assert await call_both(again) == ["ls *.py"]
    loaded = store.load(exported)
    async with Session.resume(store, loaded, **options()) as other:
        assert await call_both(other) == ["ls", "ls *.py"]


async def test_another_workspace_or_a_weaker_sandbox_is_refused_unless_allowed(store: Store) -> None:
    async with Session([add], sandbox=Sandbox(MemoryDriver()), store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
    with pytest.raises(HandrailError, match=r"no workspace.*allow_other_workspace=True"):
        Session.resume(store, "s", tools=[add])
    with pytest.raises(HandrailError, match=r"enforced .*files.*allow_weaker=True"):
        Session.resume(store, "s", tools=[add], allow_other_workspace=True)
    async with Session.resume(store, "s", tools=[add], allow_other_workspace=True, allow_weaker=True) as allowed:
        assert (await allowed.call("add", {"a": 1, "b": 1})).ok


def hold(path: Path) -> sqlite3.Connection:
    """A writer of another program, who does not let go."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def test_a_locked_store_loses_nothing_and_no_new_call_is_run_until_it_is_free(store: Store) -> None:
    ran: list[int] = []

    async def note(n: int) -> None:
        """Note it."""
        ran.append(n)

    async with Session([note], store=store, id="s") as session:
        assert (await session.call("note", {"n": 1})).ok
        other = hold(store.path)
        for n in (2, 3):
            refused = await session.call("note", {"n": n})
            assert (refused.kind, refused.data, refused.retryable) == ("unavailable", {"started": False}, True)
            assert "locked" in refused.message
        warnings = [event.data["message"] for event in session.trace if event.type == "warning"]
        assert len(warnings) == 1
        assert "locked" in warnings[0]
        other.close()
        assert (await session.call("note", {"n": 4})).ok
    assert ran == [1, 4]
    assert list(store.events("s")) == list(session.trace)


async def test_closing_with_unwritten_events_says_how_many(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
        stored = len(session.trace)
        other = hold(store.path)
        await session.call("add", {"a": 1, "b": 1})
        left = len(session.trace) - stored
        assert left > 2
        with pytest.raises(HandrailError, match=f"the last {left} events .*locked"):
            await session.__aexit__(None, None, None)
        other.close()
    Session.resume(store, "s", tools=[add])  # what was stored is a session that can be resumed


@pytest.mark.parametrize("damage", ["newer", "damaged", "text", "directory"])
async def test_a_store_that_cannot_be_read_says_why(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "sessions.db"
    with Store(path) as store:
        async with Session([add], store=store, id="s") as session:
            await session.call("add", {"a": 1, "b": 1})
    if damage == "newer":
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA user_version = 99")
    elif damage == "damaged":
        path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000)
        Path(f"{path}-wal").unlink(missing_ok=True)
    elif damage == "text":
        path.write_text("these are my notes")
    else:
        path.unlink()
        path.mkdir()
    named = {"newer": "newer version", "damaged": "damaged", "text": "not a store", "directory": "path of a file"}
    with pytest.raises(HandrailError, match=named[damage]):
        Session.resume(Store(path), "s", tools=[add])
    if damage != "directory":
        with pytest.raises(HandrailError, match=named[damage]):
            Store(path).sessions()


async def test_many_sessions_and_threads_write_at_once_and_each_has_its_own_events(store: Store) -> None:
    def show(context: Context) -> None:
        """Show from a thread."""
        for n in range(20):
            context.show(f"{n} ")

    sessions = [Session([add, show], store=store, budget=Budget(calls=None)) for _ in range(16)]

    async def use(session: Session) -> None:
        async with session:
            await session.call_all(
                [Call(f"c{n}", *(("show", {}) if n % 3 else ("add", {"a": n, "b": 1}))) for n in range(20)]
            )

    async with anyio.create_task_group() as group:
        for session in sessions:
            group.start_soon(use, session)
    for session in sessions:
        assert list(store.events(session.id)) == list(session.trace)
        assert sum(event.type == "call_ended" for event in session.trace) == 20


async def test_live_text_that_was_dropped_is_dropped_in_the_store_too(store: Store) -> None:
    async def flood(context: Context) -> None:
        """Print much, slowly enough for many events."""
        for n in range(8):
            context.show(f"{n}" * 20_000)
            await anyio.sleep(0.08)

    async with Session([flood], store=store, id="s") as session:
        await session.call("flood")
    stored = list(store.events("s"))
    assert stored == list(session.trace)
    output = [event.data for event in stored if event.type == "call_output"]
    assert any(data.get("dropped") for data in output)
    assert sum(len(data["text"]) for data in output) <= 64 << 10


async def test_two_programs_may_create_one_store_at_the_same_moment(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from handrail import Session, Store
async def one(number: int) -> int:
    "One."
    return number
async def main():
    async with Session([one], store=Store(sys.argv[1])) as session:
        for number in range(20):
            assert (await session.call("one", {"number": number})).ok
asyncio.run(main())
"""
    path = tmp_path / "sessions.db"
    others = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(4)]
    assert [other.wait() for other in others] == [0, 0, 0, 0]
    assert [each.calls for each in Store(path).sessions()] == [20] * 4


async def test_a_forked_child_opens_its_own_connection(store: Store) -> None:
    async with Session([add], store=store, id="s") as session:
        await session.call("add", {"a": 1, "b": 1})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if len(list(store.events("s"))) == 4 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (await session.call("add", {"a": 1, "b": 1})).ok
    assert list(store.events("s")) == list(session.trace)
