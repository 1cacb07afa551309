"""Arguments nested deeper than anybody reads are one refused call, in whatever form and to whatever depth they come."""

from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, Call, Store, Turn
from handrail.testing import ScriptedModel
from tests.agent.test_loop import paired

pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("depth", [200, *range(440, 500, 5), 990, 5_000, 100_000])
async def test_arguments_nested_too_deep_are_one_refused_call(depth: int, is_text: bool, tmp_path: Path) -> None:
    text = '{"a": ' + "[" * depth + "1" + "]" * depth + ', "b": 1}'
    bad = Call("1", "add", text if is_text else {"a": nested(depth), "b": 1})
    good = Call("2", "add", {"a": 1, "b": 2})
    with Store(tmp_path / "s.db") as store:
        async with Agent(ScriptedModel([Turn("", (bad, good), "tool_use"), "done"]), tools=[add], store=store) as agent:
            assert (await agent.run("go")).reason == "done"
            ((_, refused), (_, ran)) = paired(agent.messages)
            assert (refused.kind, ran.value) == ("invalid_args", 3)
        async with Agent.resume(ScriptedModel(["again"]), store, agent.session.id, tools=[add]) as resumed:
            assert resumed.messages == agent.messages
            assert (await resumed.run("go on")).text == "again"
