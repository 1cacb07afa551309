"""Stores that earlier versions wrote are opened by this one: listed, exported, resumed and forked as they were."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from handrail import Agent, Session, Store, Success
from handrail.gates.permit import approvals_of
from handrail.session.session import core_of
from handrail.testing import ScriptedModel
from tests.store.make_golden import GOLDEN, PICTURE, add, as_json, options

pytestmark = pytest.mark.anyio
FORMATS = sorted(GOLDEN.glob("format-*"))


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(params=FORMATS, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A copy; the store itself must stay as it is."""
    home: Path = request.param
    before = contents(home)
    shutil.copytree(home, tmp_path / "copy")
    yield tmp_path / "copy"
    assert contents(home) == before


def test_there_is_a_golden_store() -> None:
    assert FORMATS


def test_it_is_listed(golden: Path) -> None:
    store = Store(golden / "sessions.db")
    found = {each.id: each for each in store.sessions()}
    assert {id: each.state for id, each in found.items()} == {"golden": "done", "interrupted": "interrupted"}
    summary = found["golden"]
    assert (summary.title, summary.calls, summary.model) == ("Add and note. Please.", 6, "ScriptedModel")
    assert summary.usage.input_tokens == 10


@pytest.mark.parametrize("id", ["golden", "interrupted"])
def test_its_export_is_the_one_that_was_written_then(golden: Path, id: str, tmp_path: Path) -> None:
    lines = (golden / f"{id}.jsonl").read_text(encoding="ascii").splitlines()
    assert list(Store(golden / "sessions.db").export(id)) == lines
    other = Store(tmp_path / "other.db")
    assert list(other.export(other.load(lines))) == [re.sub(r',"rule":"note[^"]*"', "", line) for line in lines]


async def test_it_is_resumed_with_the_same_messages_memory_and_rules(golden: Path) -> None:
    store = Store(golden / "sessions.db")
    agent = Agent.resume(ScriptedModel(["Third."]), store, "golden", system="Be brief.", **options())
    told = (golden / "messages.json").read_text(encoding="ascii").rstrip("\n")
    assert as_json(agent.messages) == told
    assert "Image" in told
    async with agent.session as session:
        assert core_of(session).memory("note", lasts=True)["texts"] == ["é 1", "two"]
        assert [rule.pattern for rule in approvals_of(core_of(session).shared).remembered] == ["note(é 1)", "note(two)"]
        (ref,) = {each["ref"] for event in session.trace for each in event.data.get("images", ()) if "ref" in each}
        assert await session.artifacts.read(ref) == PICTURE
        assert (await agent.run("More.")).text == "Third."
    assert as_json(agent.messages[: len(json.loads(told))]) == told


async def test_what_was_interrupted_then_is_ended_now(golden: Path) -> None:
    async with Session.resume(Store(golden / "sessions.db"), "interrupted", tools=[add]) as session:
        ends = [event.data["kind"] for event in session.trace if event.type == "call_ended"]
        assert ends == ["unknown_outcome"]
        assert await session.call("add", {"a": 1, "b": 2}) == Success(3)


async def test_it_is_forked_at_every_event(golden: Path) -> None:
    store = Store(golden / "sessions.db")
    events = list(store.events("golden"))
    for at in range(len(events)):
        id = store.fork("golden", at)
        assert list(store.events(id))[1 : at + 1] == events[1 : at + 1]
        async with Session.resume(store, id, **options()) as session:
            assert (await session.call("add", {"a": 1, "b": 2})).ok
        store.remove(id)
