"""What a script is given of its tools' answers, and what of them the transcript keeps."""

import json
from pathlib import Path
from typing import Any

import pytest

from handrail import Budget, Context, Failure, Image, ToolFailed, tool
from handrail.contract.limits import CALL_DEPTH
from handrail.tools.script import EngineName
from tests.tools.test_script import PNG, opened

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


@tool
def picture_with(size: int) -> dict[str, Any]:
    """A picture, and texts beside it."""
    return {"image": Image(PNG), "texts": [{"text": "MARKER" * size}, "short"], "number": 1}


async def test_a_large_text_beside_a_picture_is_a_reference_and_in_no_event(engine: EngineName, tmp_path: Path) -> None:
    code = """
found = tools.picture_with(size=SIZE)
texts = found["texts"]
text = (texts.get(0) if isinstance(texts, Ref) else texts[0])["text"]
[text.kind, text.size, text.read(0, 6), found["image"]["size"], found["number"]]
"""
    for size in (1_000, 1_000_000):
        async with opened("jail", tmp_path, [picture_with], engine=engine) as session:
            result = await session.call("script", {"code": code.replace("SIZE", str(size))})
            everything = "".join(json.dumps(event.data) for event in session.trace)
            ended = next(event for event in session.trace if event.type == "call_ended")
        assert result.ok, result
        assert result.value["result"] == ["text", size * 6, "MARKER", len(PNG), 1]
        assert "MARKERMARKER" not in everything
        assert [image["path"] for image in ended.data["images"]] == [["image"]], "the picture is kept"
        assert result.value["media"][0]["image"] == Image(PNG)


@tool
def picture_among(count: int) -> list[Any]:
    """A picture beside texts that are small, but many."""
    return [Image(PNG), *["x" * 4000] * count]


async def test_an_answer_that_does_not_fit_beside_its_picture_is_a_tool_error(tmp_path: Path) -> None:
    code = """
try:
    tools.picture_among(count=1_100)
except ToolError as error:
    told = [error.kind, error.message]
[told, len(tools.picture_among(count=3))]
"""
    async with opened("jail", tmp_path, [picture_among]) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    (kind, message), count = result.value["result"]
    assert (kind, count) == ("execution_error", 4)
    assert "4,194,304" in message


@tool
def fails_with_much() -> None:
    """Fail, with much to tell."""
    raise ToolFailed(Failure("execution_error", "MESSAGE" * 100_000, data={"output": "MARKER" * 1_000_000}))


async def test_what_a_failed_call_tells_is_cut_in_the_transcript_as_for_a_model(
    engine: EngineName, tmp_path: Path
) -> None:
    code = "try:\n    tools.fails_with_much()\nexcept ToolError as error:\n    told = str(error)\nlen(told) > 10_000"
    async with opened("jail", tmp_path, [fails_with_much], engine=engine) as session:
        direct = await session.call("fails_with_much", {})
        result = await session.call("script", {"code": code})
        sizes = [len(json.dumps(event.data)) for event in session.trace if event.type == "call_ended"]
    assert not direct.ok
    assert result.value["result"] is True
    assert sizes[1] < sizes[0] * 1.1, "the same as when a model calls it"
