"""What a script is given of its tools' answers, and what of them the transcript keeps."""

from pathlib import Path
from typing import Any

import pytest

from handrail import Budget, Context, tool
from handrail.contract.limits import CALL_DEPTH
from handrail.tools.script import EngineName
from tests.tools.test_script import opened

pytestmark = pytest.mark.anyio


@tool
async def first_words(path: str, context: Context) -> str:
    """The beginning of a file, by another tool."""
    read = await context.use("read", {"path": path})
    assert read.ok
    return str(read.value["text"][:5])


@tool
async def many_globs(times: int, context: Context) -> int:
    """Call another tool so many times."""
    return sum([(await context.use("glob", {"pattern": "*"})).ok for _ in range(times)])


async def test_a_tool_that_calls_another_is_answered_as_it_is_outside_of_scripts(
    engine: EngineName, tmp_path: Path
) -> None:
    (tmp_path / "large").write_text("words " * 2000)
    async with opened("jail", tmp_path, [first_words], engine=engine) as session:
        direct = await session.call("first_words", {"path": "large"})
        result = await session.call("script", {"code": "tools.first_words(path='large')"})
    assert direct.ok
    assert result.ok, result
    assert result.value["result"] == direct.value == "words"


async def test_the_calls_that_a_tool_makes_are_not_the_scripts(engine: EngineName, tmp_path: Path) -> None:
    code = "[tools.many_globs(times=5), tools.many_globs(times=5)]"
    async with opened("jail", tmp_path, [many_globs], engine=engine, budget=Budget(script_calls=2)) as session:
        result = await session.call("script", {"code": code})
        refused = await session.call("script", {"code": f"tools.glob(pattern='*')\n{code}"})
    assert result.ok, result
    assert result.value["result"] == [5, 5]
    assert "This script has made all its 2 calls" in refused.message, "the control"


@tool
async def script_again(context: Context) -> Any:
    """Call a script from inside a script."""
    return await context.use("script", {"code": "tools.script_again()"})


async def test_a_tool_cannot_call_a_script_for_a_script(engine: EngineName, tmp_path: Path) -> None:
    async with opened("jail", tmp_path, [script_again], engine=engine) as session:
        result = await session.call("script", {"code": "tools.script_again()"})
        made = [event for event in session.trace if event.type == "call_started"]
    assert "script cannot be called from script" in result.message
    assert len(made) < CALL_DEPTH
