"""After each round the loop knows what the task has come to, and can tell the model so."""

from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, Call, Sandbox, Store, TaskState, builtin_tools
from handrail.testing import MemoryDriver, ScriptedModel, Turn
from tests.journeys.evidence import events_of

pytestmark = pytest.mark.anyio


def reading(path: str, **more: Any) -> Turn:
    return Turn("", (Call("1", "read", {"path": path, **more}),))


def agent_of(lines: list[Any], **options: Any) -> Agent:
    files = {"/workspace/src/main.py": b"print()\n", "/workspace/src/maths.py": b"pi = 3\n", "/workspace/readme": b""}
    sandbox = Sandbox(MemoryDriver(files))
    return Agent(ScriptedModel(lines), tools=builtin_tools("read_only"), sandbox=sandbox, **options)


async def test_the_state_tells_listings_files_and_what_was_not_found_apart() -> None:
    seen: list[TaskState] = []
    glob = Turn("", (Call("1", "glob", '{"pattern": "nothing*"}'),))
    lines = [reading("src"), reading("src", limit=1), reading("src/main.py"), reading("src/man.py"), glob, "done"]
    await agent_of(lines, steer=seen.append).run("go")
    assert [state.last for state in seen] == [
        "full_listing", "partial_listing", "file", "not_found", "empty_listing"
    ]  # fmt: skip
    assert seen[0].listed == ("src/main.py", "src/maths.py")
    assert (seen[3].path, seen[3].listed) == ("src/man.py", ("src/main.py",))


async def test_after_a_path_was_not_found_the_model_is_told_one_of_the_last_listing() -> None:
    agent = agent_of([reading("src"), reading("main.py"), reading("main.py"), "done"])
    await agent.run("go")
    (told,) = events_of(agent.session, "steered")  # once: the same advice twice helps nobody
    assert told.data["why"] == "state"
    assert "main.py was not found. The last listing has src/main.py" in told.data["text"]
    assert [message.text for message in agent.messages if message.role == "tool"] == ["", told.data["text"], ""]


async def test_the_path_of_the_state_is_the_results_own_and_else_the_one_that_was_called_with() -> None:
    async def home() -> dict[str, Any]:
        """List a directory."""
        entries = [{"name": "notes", "path": "/srv/data/notes", "type": "file"}]
        return {"kind": "listing", "path": "/srv/data", "entries": entries, "entry_count": 1, "truncated": False}

    def calling(name: str, **arguments: Any) -> Turn:
        return Turn("", (Call("1", name, arguments),))

    seen: list[TaskState] = []
    lines = [calling("home"), calling("home", path="~"), calling("read", file_path="src/man.py"), "done"]
    agent = agent_of(lines, steer=seen.append)
    agent.session.toolbox.add(home)
    await agent.run("go")
    assert [(state.last, state.path) for state in seen] == [
        ("full_listing", "/srv/data"), ("other", "~"), ("not_found", "src/man.py"),
    ]  # fmt: skip
    assert seen[0].listed == ("/srv/data/notes",)


async def test_without_a_listing_or_a_function_nothing_is_told() -> None:
    for agent in (agent_of([reading("x"), "done"]), agent_of([reading("src"), reading("x"), "done"], steer=None)):
        await agent.run("go")
        assert not events_of(agent.session, "steered")


async def test_a_function_of_ones_own_steers_and_one_that_raises_is_a_warning() -> None:
    def steer(state: TaskState) -> str | None:
        if state.last == "file":
            raise ValueError("a bug of mine")
        return f"You saw a {state.last}."

    agent = agent_of([reading("src"), reading("src/main.py"), "done"], steer=steer)
    assert (await agent.run("go")).reason == "done"
    assert (agent.messages[2].role, agent.messages[2].text) == ("tool", "You saw a full_listing.")
    (warning,) = events_of(agent.session, "warning")
    assert "a bug of mine" in warning.data["message"]


async def test_the_state_is_the_same_after_a_resume(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        first = agent_of([reading("src"), "listed"], store=store)
        async with first:
            await first.run("list")
        again = ScriptedModel([reading("man.py"), "done"])
        options: Any = {"tools": builtin_tools("read_only"), "sandbox": Sandbox(MemoryDriver())}
        async with Agent.resume(again, store, first.session.id, **options) as resumed:
            await resumed.run("read")
            assert resumed.messages[: len(first.messages)] == first.messages
    (told,) = events_of(resumed.session, "steered")
    assert "src/main.py" in told.data["text"]


@pytest.mark.parametrize("told", [5, ["a"], {"a": 1}, b"x", True])
async def test_what_steer_returns_is_a_text_or_nothing(told: Any) -> None:
    script = [Turn("", (Call("c", "nothing", {}),)), "done", "again"]

    async def nothing() -> None:
        """Do nothing."""

    agent = Agent(ScriptedModel(script), tools=[nothing], steer=lambda state: told)
    assert (await agent.run("go")).text == "done"
    (warning,) = [event.data["message"] for event in agent.session.trace if event.type == "warning"]
    assert "steer" in warning
    assert "text" in warning
    assert (await agent.run("go on")).text == "again"
