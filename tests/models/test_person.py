"""A person types the calls, one line each."""

from collections.abc import Callable

import pytest

from handrail import Agent, Message, ModelFailed, tool
from handrail.models import open_model
from tests.models.asking import ask

pytestmark = pytest.mark.anyio


def typing(*lines: str | None) -> tuple[Callable[[str], str | None], list[str]]:
    shown: list[str] = []
    left = list(lines)

    def ask_line(text: str) -> str | None:
        shown.append(text)
        return left.pop(0)

    return ask_line, shown


@pytest.mark.parametrize(
    "line",
    [
        "add a=2 b=3",
        'add {"a": 2, "b": 3}',
        "add(a=2, b=3)",
        '{"name": "add", "arguments": {"a": 2, "b": 3}}',
        "add  b='3' a=2",
    ],
)
async def test_a_call_is_typed_in_any_of_these_ways(line: str) -> None:
    got = []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        got.append((a, b))
        return a + b

    ask_line, shown = typing(line, "It is five.")
    outcome = await Agent(open_model("person", ask_line=ask_line), tools=[add]).run("What is two and three?")
    assert (outcome.reason, outcome.text, got) == ("done", "It is five.", [(2, 3)])
    assert "What is two and three?" in shown[0]
    assert '"result":5' in shown[1]
    assert "What is two and three?" not in shown[1], "what was shown is not shown again"


async def test_a_mistake_is_explained_and_asked_again() -> None:
    ask_line, shown = typing("lok {}", "look a b", "", "Well.")
    assert (await ask(open_model("person", ask_line=ask_line), Message("user", "Go."))).text == "Well."
    assert "no tool 'lok'; there are look" in shown[1]
    assert "key=value" in shown[2]
    assert "Type a call" in shown[3]


@pytest.mark.parametrize("left", [None, EOFError])
async def test_a_person_who_leaves_ends_the_run(left: type[Exception] | None) -> None:
    def ask_line(text: str) -> str | None:
        if left:
            raise left
        return None

    with pytest.raises(ModelFailed, match="has left"):
        await ask(open_model("person", ask_line=ask_line), Message("user", "Go."))


async def test_a_tool_without_arguments_is_called_by_its_name() -> None:
    ask_line, _ = typing("look")
    turn = await ask(open_model("person", ask_line=ask_line), Message("user", "Go."))
    assert [(call.name, call.arguments) for call in turn.calls] == [("look", "{}")]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(Exception, match="ask_line"):
        open_model("person", ask=input)


async def test_a_person_of_a_long_conversation_sees_what_is_new_and_writes_no_summary() -> None:
    shown: list[str] = []

    def line(text: str) -> str:
        shown.append(text)
        return "dump" if len(shown) <= 80 else "That is all."

    @tool
    def dump() -> str:
        """Print something large."""
        return f"dump {len(shown)}: " + "a word or two. " * 100

    person = open_model("person", ask_line=line)
    person.window = 4_000  # type: ignore[attr-defined]
    agent = Agent(person, tools=[dump], steer=None, rounds=100)
    outcome = await agent.run("Dump it.")
    assert (outcome.reason, outcome.text) == ("done", "That is all.")
    assert [event.data["by"] for event in agent.session.trace if event.type == "summarised"][:1] == ["lines"]
    for number, text in enumerate(shown[1:], 1):
        assert text.count("dump") == text.count(f'"dump {number}:') + text.count('"tool":"dump"') == 2, text[:300]
