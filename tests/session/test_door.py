"""A session's door lets other processes of the same user in, and nobody else; no watcher can harm the session."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Call,
    Decision,
    Event,
    HandrailError,
    HeldApprovals,
    Policy,
    Session,
    Store,
    Unavailable,
    first_of,
    tool,
)
from handrail.session.session import core_of
from handrail.store.attached import Attached
from handrail.store.door import MAX_FRAME_BYTES, short_path
from handrail.testing import approve_all, never_answers

pytestmark = pytest.mark.anyio
ASKS = Policy(mode="ask")
PROGRAM = """
import sys, anyio
from handrail import Policy, Session, Store, tool
from handrail.testing import never_answers

@tool(risk="high", effects=["executes"])
async def act(text: str) -> str:
    "Act."
    with open(sys.argv[2], "a") as file:
        file.write(text + "\\n")
    await anyio.sleep(600 if text == "long" else 0)
    return text

async def main():
    approver = never_answers.within(600)
    policy = Policy(mode="ask")
    async with Session([act], store=Store(sys.argv[1]), id="s", door=True, approver=approver, policy=policy) as session:
        for text in sys.argv[3:]:
            result = await session.call("act", {"text": text})
            print(result.to_envelope("act"), flush=True)

anyio.run(main)
"""


VISIT = """
import os, socket, sys
os.chdir(sys.argv[1])
os.seteuid(int(sys.argv[3]))
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[2])
print("connected", client.recv(100))
"""


@tool(risk="high", effects=["executes"])
async def act(text: str = "") -> str:
    """Act."""
    return text


@tool
async def note(text: str = "") -> str:
    """Take a note."""
    return text


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions.db")


def doors(store: Store) -> list[Path]:
    return sorted(store.path.with_name("sessions.db.claims").glob("*.door"))


async def seen(attached: Attached, type: str) -> Event:
    with anyio.fail_after(60):
        async for event in attached.events():
            if event.type == type:
                return event
    raise AssertionError(f"no {type} came")


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110 - another process makes it true
            await anyio.sleep(0.01)


@asynccontextmanager
async def program(store: Store, *texts: str) -> AsyncIterator["subprocess.Popen[str]"]:
    """A program with a session that asks for approval of each text."""
    command = [sys.executable, "-c", PROGRAM, str(store.path), str(store.path.with_name("effects")), *texts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            await until(lambda: any(each.activity == "waits" for each in store.sessions()))
            yield running
        finally:
            running.kill()


async def test_another_process_answers_and_the_transcript_says_who(store: Store) -> None:
    async with program(store, "hello", "second") as running, store.attach("s") as attached:
        asked = (await seen(attached, "approval_asked")).data
        assert attached.state == "waits"
        assert not await attached.answer(asked["id"], Decision.approve(), arguments_hash="of other arguments")
        hash = asked["arguments_hash"]
        assert await attached.answer(asked["id"], Decision.approve(), arguments_hash=hash, by="web")
        assert not await attached.answer(asked["id"], Decision.deny(), arguments_hash=hash), "the first answer counts"
        assert (await seen(attached, "approval_settled")).data["by"] == "web"
        assert (await seen(attached, "call_ended")).data["status"] == "ok"
        async for event in attached.events():
            if event.type == "approval_asked" and event.data["id"] != asked["id"]:
                hash = event.data["arguments_hash"]
                assert await attached.answer(event.data["id"], Decision.deny("no"), arguments_hash=hash)
                break
        with anyio.fail_after(60):
            assert [event.type async for event in attached.events()][-1] == "call_ended"
        assert attached.state == "ended"
        with pytest.raises(Unavailable, match="ended"):
            await attached.terminate("call_1")
        assert running.wait(60) == 0
    assert doors(store) == []


async def test_another_process_ends_a_call_for_a_person(store: Store) -> None:
    async with program(store, "long") as other, store.attach("s") as attached:
        asked = (await seen(attached, "approval_asked")).data
        await attached.answer(asked["id"], Decision.approve(), arguments_hash=asked["arguments_hash"])
        running = await seen(attached, "call_running")
        assert running.call_id is not None
        assert not await attached.terminate("another call")
        assert await attached.terminate(running.call_id)
        assert other.stdout is not None
        assert "'killed_by': 'user'" in other.stdout.read()


async def test_a_killed_process_leaves_no_door_behind_the_next_attach(store: Store) -> None:
    async with program(store, "x") as running, store.attach("s") as watching:
        running.send_signal(signal.SIGKILL)
        running.wait()
        with anyio.fail_after(60):
            assert [event.type async for event in watching.events()][-1] == "approval_asked"
        assert watching.state == "ended"
        with pytest.raises(Unavailable, match="ended"):
            await watching.stop()
    assert len(doors(store)) == 1, "the control: it was killed"
    async with store.attach("s") as attached:
        assert attached.state == "ended"
    assert doors(store) == []


async def test_the_next_session_of_the_store_sweeps_the_doors_of_killed_ones(store: Store) -> None:
    async with program(store, "x") as running:
        running.kill()
    [left] = doors(store)
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        [door] = doors(store)
        assert door != left
        async with Session([note], store=store, door=True):
            assert door in doors(store), "that of a living session stays"


async def test_the_first_of_two_answers_at_once_counts(store: Store) -> None:
    async with Session([act], store=store, policy=ASKS, approver=never_answers.within(60), door=True) as session:
        counted: list[bool] = []

        async def answer(by: str) -> None:
            async with store.attach(session.id) as attached:
                asked = (await seen(attached, "approval_asked")).data
                hash = asked["arguments_hash"]
                counted.append(await attached.answer(asked["id"], Decision.approve(), arguments_hash=hash, by=by))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "act")
            await until(lambda: any(event.type == "approval_asked" for event in session.trace))
            tasks.start_soon(answer, "a")
            tasks.start_soon(answer, "b")
    assert sorted(counted) == [False, True]


async def test_an_attached_client_that_dies_holds_no_question(store: Store) -> None:
    held = HeldApprovals()
    async with Session([act], store=store, policy=ASKS, approver=held, door=True) as session:
        pending = session.begin("act")
        request = await pending.next()
        async with store.attach(session.id) as attached:
            await seen(attached, "approval_asked")
        assert pending.answer(request.id, Decision.approve())  # type: ignore[union-attr]
        assert (await pending.next()).ok


async def test_without_an_approver_a_door_asks_nobody(store: Store) -> None:
    async with Session([act], store=store, policy=ASKS, door=True) as session:
        assert (await session.call("act")).kind == "rejected"


async def test_a_door_needs_a_store() -> None:
    with pytest.raises(HandrailError, match="store"):
        Session([note], door=True)


async def test_a_session_without_a_door_can_be_watched_and_not_ended(store: Store) -> None:
    async with Session([act], store=store, policy=ASKS, approver=approve_all) as session:
        await session.call("act")
        async with store.attach(session.id) as attached:
            assert attached.state == "idle"
            assert (await seen(attached, "call_ended")).data["status"] == "ok"
            with pytest.raises(Unavailable, match="without a door"):
                await attached.stop()


async def test_what_nobody_takes_is_said(store: Store) -> None:
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        async with store.attach(session.id) as attached:
            with pytest.raises(Unavailable, match="takes no prompt"):
                await attached.prompt("hello")


async def test_a_path_of_200_characters_has_a_door(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    store = Store(deep / "sessions.db")
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        async with store.attach(session.id) as attached:
            assert not await attached.terminate("nothing")


async def raw(store: Store) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    [door] = doors(store)
    with short_path(door.parent, door.name) as path:
        client.connect(path)
    return client


@pytest.mark.parametrize("rubbish", [b"\xff\n", b"[]\n", b"{}\n", b'{"no": {}, "do": []}\n', b"x" * 100_000, b""])
async def test_rubbish_from_a_client_harms_nobody(store: Store, rubbish: bytes) -> None:
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        with await raw(store) as client:
            client.sendall(rubbish)
            await anyio.sleep(0.05)
            async with store.attach(session.id) as attached:
                assert not await attached.terminate("nothing")
        assert (await session.call("note")).ok


async def test_a_frame_that_never_ends_is_cut_off(store: Store) -> None:
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        client = await raw(store)
        client.setblocking(False)
        sent, refused = 0, False
        with anyio.fail_after(60):
            while sent < 4 * MAX_FRAME_BYTES and not refused:
                try:
                    sent += client.send(b"x" * 65_536)
                except BlockingIOError:
                    await anyio.sleep(0.001)
                except (BrokenPipeError, ConnectionResetError):
                    refused = True
        client.close()
        assert refused
        assert (await session.call("note")).ok


async def test_only_this_user_can_reach_a_door(store: Store) -> None:
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        [door] = doors(store)
        assert (door.stat().st_mode & 0o777, door.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_is_turned_away(store: Store) -> None:
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        [door] = doors(store)
        door.parent.chmod(0o711)
        door.chmod(0o666)
        program = [sys.executable, "-I", "-c", VISIT, str(door.parent), door.name]
        own = await anyio.run_process([*program, "0"])
        other = await anyio.run_process([*program, "65534"], check=False)
    assert b"hello" in own.stdout, "the control"
    assert (b"connected" in other.stdout, b"hello" in other.stdout) == (True, False)


async def test_watchers_that_read_nothing_slow_nobody(store: Store) -> None:
    async with Session([note], store=store, door=True) as session:
        await session.call("note")
        clients = [await raw(store) for _ in range(16)]
        with anyio.fail_after(60):
            for _ in range(50):
                await session.call_all([Call(f"c{_}-{n}", "note", {"text": f"{n}" * 100}) for n in range(20)])
        async with store.attach(session.id) as attached:
            assert not await attached.terminate("nothing")
        for client in clients:
            client.close()


async def test_a_follower_that_leaves_an_idle_session_is_forgotten(store: Store) -> None:
    async with Session([note]) as session:
        await session.call("note")

        async def follow(events: AsyncIterator[Event]) -> None:
            async for _ in events:
                pass

        for _ in range(20):
            with anyio.move_on_after(0.002):
                await follow(session.events())
        assert len(core_of(session).transcript._waiting) == 0


async def test_events_reach_the_store_although_nothing_flushes_them(store: Store) -> None:
    started, go_on = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        session.emit("warning", data={"message": "written while the body runs"})
        started.set()
        await go_on.wait()
        return ""

    async with Session([wait], store=store) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(session.call, "wait")
        await started.wait()
        other = Store(store.path)
        await until(lambda: any(event.type == "warning" for event in other.events(session.id)))
        go_on.set()


async def test_lines_are_the_stored_events_with_their_numbers(store: Store) -> None:
    async with Session([note], store=store) as session:
        for _ in range(3):
            await session.call("note")
        lines = [json.loads(line) for line in store.lines(session.id)]
        assert [Event(*line) for line in lines] == list(store.events(session.id))
        assert [json.loads(line)[0] for line in store.lines(session.id, 2, 3)] == [2, 3, 4]
        assert list(store.lines(session.id, 100)) == []


async def test_changed_rises_with_any_session_of_any_process(store: Store) -> None:
    async with Session([note], store=Store(store.path)) as session:
        before = store.changed()
        assert store.changed() == before, "the control"
        await session.call("note")
        after = store.changed()
        assert after > before
        assert store.summary(session.id).activity == "idle"
    assert store.changed() > after
    assert store.summary(session.id).activity == "ended"
    with pytest.raises(HandrailError, match="no session"):
        store.summary("another")


async def test_first_of_asks_all_and_takes_the_first_answer() -> None:
    def unavailable(request: Any) -> Decision:
        raise Unavailable("no terminal")

    policy = Policy(mode="ask")
    for approver, kind in [
        (first_of(never_answers.within(60), approve_all), None),
        (first_of(unavailable, approve_all), None),
        (first_of(unavailable, unavailable), "rejected"),
        (first_of(never_answers.within(0.01), never_answers.within(0.02)), "approval_timeout"),
    ]:
        async with Session([act], policy=policy, approver=approver) as session:
            assert (await session.call("act")).kind == kind
    with pytest.raises(HandrailError, match="no approver"):
        first_of()
