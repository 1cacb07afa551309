"""Tools by name, in one stable order; names that clash are refused, saying which two."""

import json
import os
import subprocess
import sys
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Agent, Context, HandrailError, Session, Tool, Toolbox, tool
from handrail.contract.errors import NameConflict
from handrail.testing import ScriptedModel
from handrail.toolkit.toolbox import RESERVED

OBJECT = {"type": "object"}


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def other(n: int) -> int:
    return n


class Weather:
    """An object that is a tool by its shape alone."""

    name = "weather"
    parameters: ClassVar = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    description = "The weather of a city."
    risk = "high"
    effects = ("reaches_out",)
    callable_from = ("user",)
    timeout = 5

    async def __call__(self, context: Context, arguments: Any) -> str:
        return f"rain in {arguments['city']}"


def named(name: str, **options: Any) -> Tool:
    return Tool(name, OBJECT, lambda context, arguments: name, **options)


names = st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), unique=True, max_size=12)


@given(names.filter(lambda given: not RESERVED & set(given)), st.randoms())
def test_whatever_order_tools_come_in_they_are_listed_in_one(given_names: list[str], random: Any) -> None:
    shuffled = list(given_names)
    random.shuffle(shuffled)
    box = Toolbox(map(named, shuffled))
    assert box.names() == sorted(given_names) == [each.name for each in box] == [each.name for each in box.all()]
    assert len(box) == len(given_names)
    assert all(name in box and box.get(name) is box.find(name) for name in given_names)
    assert json.dumps(box.schemas("openai")) == json.dumps(Toolbox(map(named, given_names)).schemas("openai"))


def test_two_tools_of_one_name_are_refused_saying_which_two() -> None:
    with pytest.raises(NameConflict, match=r"two tools are called 'add': .*\.add and .*\.other"):
        Toolbox([add, tool(name="add")(other)])
    for make in (
        lambda: Session([add, add]),
        lambda: Agent(ScriptedModel([]), tools=[add, add]),
        lambda: Toolbox([add]).add(add),
    ):
        with pytest.raises(NameConflict, match="'add'"):
            make()
    assert len(Toolbox([add, other])) == 2  # the control


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_name_is_refused(name: str) -> None:
    assert name in {"task", "script", "search_tools", "ask_user", "complete"}
    with pytest.raises(NameConflict, match=f"'{name}' is reserved"):
        Session([named(name)])


def test_replace_is_explicit_and_counts_as_a_change() -> None:
    box = Toolbox([add])
    changes = box.changes
    made = box.replace(tool(name="add")(other))
    assert (box.get("add"), len(box), box.changes) == (made, 1, changes + 1)
    with pytest.raises(HandrailError, match="no tool 'other' to replace"):
        box.replace(other)


def test_functions_tools_and_objects_of_the_right_shape_are_accepted_and_nothing_else_is() -> None:
    box = Toolbox([add, named("by_hand"), Weather()])
    weather = box.find("weather")
    assert (weather.description, weather.risk, weather.timeout) == ("The weather of a city.", "high", 5)
    assert (weather.effects, weather.callable_from, weather.runs) == ({"reaches_out"}, {"user"}, "async")
    wrong: list[Any] = [5, "add", None, Weather, int, {"name": "x"}]
    for each in wrong:
        with pytest.raises(HandrailError, match=r"no tool|not a tool"):
            Toolbox([each])


def test_tools_are_found_by_risk_and_by_effect() -> None:
    box = Toolbox([named("a", risk="high", effects=["writes", "reads"]), named("b", effects=["reads"]), named("c")])
    assert [each.name for each in box.by_risk("high")] == ["a"]
    assert [each.name for each in box.by_risk("safe")] == ["b", "c"]
    assert [each.name for each in box.by_effect("reads")] == ["a", "b"]
    assert box.by_effect("spends") == []


def test_deferred_tools_are_apart_and_one_schema_can_be_had_alone() -> None:
    box = Toolbox([named("late", deferred=True), add])
    assert [each["name"] for each in box.schemas("mcp")] == ["add"]
    assert [each["name"] for each in box.deferred_schemas("mcp")] == ["late"]
    assert box.schema_for("add", "anthropic")["input_schema"]["required"] == ["a"]
    assert box.schema_for("late") == {"name": "late", "inputSchema": OBJECT}
    with pytest.raises(HandrailError, match=r"no tool 'none'; there are add, late"):
        box.schema_for("none")
    with pytest.raises(HandrailError, match="no provider 'acme'"):
        box.schemas("acme")


@pytest.mark.anyio
async def test_the_unknown_tool_is_a_tool_that_says_so_and_names_its_neighbours() -> None:
    assert Toolbox([add]).get("ad") is None
    async with Session([add, other]) as session:
        for arguments in ("{}", "no JSON", {"a": 1}):
            result = await session.call("ad", arguments)
            assert not result.ok
            assert result.kind == "tool_not_found"
            assert "Did you mean add?" in result.message
            assert "add, other" in result.message
        assert "Did you mean" not in (await session.call("quite_different")).message
        long = await session.call("x" * 100_000)
    assert len(long.message) < 300
    assert "ad" not in Toolbox([add])


PROGRAM = """
import hashlib, json
from handrail import Toolbox
from tests.toolkit.test_toolbox import Weather, add, named, other
box = Toolbox([other, Weather(), add, *map(named, "zyxwv")])
text = json.dumps([box.schemas(name) for name in ("openai", "openai-responses", "anthropic", "gemini", "mcp")])
print(hashlib.sha256(text.encode()).hexdigest(), hash("x"))
"""


def test_exports_are_the_same_bytes_in_two_processes_with_different_hash_seeds() -> None:
    said = []
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        said.append(ran.stdout.split())
    assert said[0][0] == said[1][0]
    assert said[0][1] != said[1][1]  # the control: the seeds did differ
