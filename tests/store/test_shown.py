"""What a caller, an approver, a Pending, a reader or a person is shown is in the store first."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from handrail import Agent, ApprovalRequest, Decision, Event, Message, Session, Store, TextDelta, Turn
from handrail.store.stored import StoredSession
from handrail.testing import ScriptedModel
from tests.store.shown_program import ASKS, ID, KINDS, add
from tests.store.test_store import hold

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
SHOWS = sorted(KINDS.keys() - {"raw"})


def kill(root: Path, store: str, most: int, *kinds: str) -> list[Path]:
    """Kill programs of each kind after up to so many of the things that they are shown. Returns their directories."""
    root.mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "tests.store.shown_program", str(root), store, str(most), *kinds], cwd=ROOT, check=True
    )
    killed = sorted(each for each in root.iterdir() if not each.name.endswith("-0"))
    assert killed, "nothing was shown"
    return killed


def audit(directory: Path) -> None:
    """Fail unless the store has everything that was shown."""
    store = Store(directory / "sessions.db")
    shown = [json.loads(line) for line in (directory / "shown").read_text().splitlines()]
    assert [each.id for each in store.sessions()] == [ID], "the session is not listed"
    events = list(store.events(ID))
    for what, *facts in shown:
        CHECKS[what](events, *facts)


def _same(events: list[Event], seq: int, type: str, call_id: str | None, data: Any) -> None:
    assert len(events) > seq, f"event {seq}, {type}, was shown and is not stored"
    assert [events[seq].type, events[seq].call_id, events[seq].data] == [type, call_id, data]


def _all_same(events: list[Event], shown: Iterable[list[Any]]) -> None:
    for each in shown:
        _same(events, *each)


def _result(events: list[Event], shown: Any) -> None:
    ends = [event.data["result"] for event in events if event.type == "call_ended"]
    assert shown in [end["result"] if end["ok"] else end["message"] for end in ends]


def _outcome(events: list[Event], reason: str, text: str) -> None:
    assert [reason, text] in [
        [event.data["reason"], event.data["text"]] for event in events if event.type == "run_ended"
    ]


def _request(events: list[Event], id: str, text: str) -> None:
    assert [id, text] in [[event.data["id"], event.data["text"]] for event in events if event.type == "approval_asked"]


def _begun(events: list[Event], id: str) -> None:
    assert id in [event.call_id for event in events if event.type == "call_started"]


def _told(events: list[Event], texts: list[str]) -> None:
    stored = json.dumps([event.data for event in events if event.type not in ("text", "session_started")])
    assert all(json.dumps(text) in stored for text in texts)


def _usage(events: list[Event], tokens: int) -> None:
    assert sum(event.data["usage"]["input_tokens"] for event in events if event.type == "model_answered") >= tokens


def _resumed(events: list[Event], id: str) -> None:
    types = [event.type for event in events]
    before = types[: types.index("session_resumed")]
    assert before.count("call_started") == before.count("call_ended") == before.count("run_ended") == 1


CHECKS = {
    "event": _same, "events": _all_same, "result": _result, "outcome": _outcome,
    "begun": _begun, "request": _request, "told": _told, "usage": _usage, "resumed": _resumed,
}  # fmt: skip


def lost(directories: Iterable[Path]) -> list[str]:
    """The trials whose store lacks something, and what."""
    found = []
    for directory in directories:
        try:
            audit(directory)
        except (AssertionError, ValueError) as error:
            found.append(f"{directory.name}: {error}")
    return found


def test_a_program_killed_after_it_was_shown_something_has_it_in_its_store(tmp_path: Path) -> None:
    assert lost(kill(tmp_path, "store", 4, *SHOWS)) == []


def test_the_audit_finds_a_store_that_writes_late_after_each_thing_shown(tmp_path: Path) -> None:
    killed = kill(tmp_path, "late", 2, *SHOWS)
    assert len(lost(killed)) == len(killed)


def test_the_audit_finds_a_program_that_shows_events_before_they_are_stored(tmp_path: Path) -> None:
    assert lost(kill(tmp_path, "store", 4, "raw"))


async def test_the_list_has_a_running_session_from_its_first_event(tmp_path: Path) -> None:
    """Also one that makes no calls, and while its first answer is awaited."""
    listed: list[list[tuple[str, str, str]]] = []

    def look() -> None:
        with Store(tmp_path / "sessions.db") as other:
            listed.append([(each.id, each.state, each.title) for each in other.sessions()])

    def answer(messages: Sequence[Message]) -> str:
        look()
        return "answer"

    with Store(tmp_path / "sessions.db") as store:
        async with Session(store=store, id=ID) as session:
            look()
            await Agent(ScriptedModel([answer]), session=session).run("hello")
        async with Session(store=store, id="t") as session:
            session.emit("warning", data={"message": "the first"})
            look()
    assert listed[:2] == [[], [(ID, "running", "hello")]]
    assert sorted(listed[2]) == [(ID, "done", "hello"), ("t", "running", "")]


async def test_an_outcome_says_that_the_store_lacks_it_until_the_store_has_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "sessions.db")
    async with Session(store=store, id=ID) as session:
        agent = Agent(ScriptedModel(["one", "two", "three"]), session=session)
        assert (await agent.run("first")).store_error == ""
        other = hold(store.path)
        outcome = await agent.run("second")
        assert (outcome.reason, outcome.text) == ("done", "two")
        assert "locked" in outcome.store_error
        assert outcome.store_error == session.store_error
        other.close()
        assert (await agent.run("third")).store_error == session.store_error == ""
    assert list(store.events(ID)) == list(session.trace)


async def test_nobody_is_asked_about_a_call_that_cannot_be_stored(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision.approve()

    store = Store(tmp_path / "sessions.db")
    async with Session([add], store=store, policy=ASKS, approver=approve) as session:
        assert (await session.call("add", {"a": 1, "b": 1})).ok
        other = hold(store.path)
        refused = await session.call("add", {"a": 1, "b": 2})
        assert (refused.kind, refused.data) == ("unavailable", {"started": False})
        assert len(asked) == 1
        other.close()
        assert (await session.call("add", {"a": 1, "b": 3})).ok
    settled = [event.data["decision"] for event in session.trace if event.type == "approval_settled"]
    assert settled == ["approve", "unavailable", "approve"]


async def test_readers_get_events_in_order_while_the_store_cannot_be_written(tmp_path: Path) -> None:
    seen: list[int] = []
    store = Store(tmp_path / "sessions.db")
    async with Session([add], store=store, readers=[lambda event: seen.append(event.seq)]) as session:
        await session.call("add", {"a": 1, "b": 1})
        other = hold(store.path)
        await session.call("add", {"a": 1, "b": 2})
        other.close()
    assert seen == [event.seq for event in session.trace]
    assert [event for event in session.trace if event.type == "warning"], "the store was never locked"


@pytest.mark.parametrize("way", ["reader", "stream"])
async def test_pieces_of_an_answer_that_come_together_are_stored_by_one_write(tmp_path: Path, way: str) -> None:
    class Streams:
        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[TextDelta | Turn]:
            for number in range(100):
                if number % 20 == 0:
                    await anyio.lowlevel.checkpoint()
                yield TextDelta(f"{number} ")
            yield Turn("all")

    written: list[int] = []

    class Counted(Store):
        def claim(self, id: str, *, exists: bool = False) -> StoredSession:
            stored = super().claim(id, exists=exists)
            append = stored.append
            stored.append = lambda events, changed=(): (written.append(len(events)), append(events, changed))[1]  # type: ignore[method-assign]
            return stored

    seen: list[str] = []
    readers = [lambda event: seen.append(event.type)] if way == "reader" else []
    async with Session(store=Counted(tmp_path / "sessions.db"), readers=readers) as session:
        agent = Agent(Streams(), session=session)
        if way == "reader":
            await agent.run("go")
        else:
            seen += [event.type async for event in agent.stream("go")]
    assert seen.count("text") == 100
    assert max(written) >= 20
    assert len(written) < 30


@pytest.mark.long
def test_five_hundred_kills_lose_nothing_that_was_shown(tmp_path: Path) -> None:
    kills = 0
    while kills < 500:
        killed = kill(tmp_path / str(kills), "store", 1_000, *SHOWS)
        assert lost(killed) == []
        kills += len(killed)
