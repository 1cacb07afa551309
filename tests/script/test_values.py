"""What a script is given of its tools' answers, and what of them the transcript keeps."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handrail import Budget, Caps, Context, Failure, Image, ToolFailed, tool
from handrail.contract.limits import CALL_DEPTH
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


async def test_a_tool_that_calls_another_is_answered_as_it_is_outside_of_scripts(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("words " * 2000)
    async with opened("jail", tmp_path, [first_words]) as session:
        direct = await session.call("first_words", {"path": "large"})
        result = await session.call("script", {"code": "tools.first_words(path='large')"})
    assert direct.ok
    assert result.ok, result
    assert result.value["result"] == direct.value == "words"


async def test_the_calls_that_a_tool_makes_are_not_the_scripts(tmp_path: Path) -> None:
    code = "[tools.many_globs(times=5), tools.many_globs(times=5)]"
    async with opened("jail", tmp_path, [many_globs], budget=Budget(script_calls=2)) as session:
        result = await session.call("script", {"code": code})
        refused = await session.call("script", {"code": f"tools.glob(pattern='*')\n{code}"})
    assert result.ok, result
    assert result.value["result"] == [5, 5]
    assert "This script has made all its 2 calls" in refused.message, "the control"


@tool
async def script_again(context: Context) -> Any:
    """Call a script from inside a script."""
    return await context.use("script", {"code": "tools.script_again()"})


async def test_a_tool_cannot_call_a_script_for_a_script(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, [script_again]) as session:
        result = await session.call("script", {"code": "tools.script_again()"})
        made = [event for event in session.trace if event.type == "call_started"]
    assert "script cannot be called from script" in result.message
    assert len(made) < CALL_DEPTH


@tool
def length(text: str) -> int:
    """How long it is."""
    return len(text)


PRINTED = """
ran = tools.bash(command="seq 1 200000; seq 1 2000 >&2")
def used(ref):
    try:
        return tools.length(text=ref)
    except ToolError as error:
        return str(error)
[ran["stdout"].incomplete, used(ran["stdout"]), ran["stderr"].incomplete, used(ran["stderr"])]
"""


async def test_a_script_is_told_that_output_beyond_the_spool_is_incomplete_and_cannot_pass_it_on(
    tmp_path: Path,
) -> None:
    async with opened("jail", tmp_path, [length], caps=Caps(spool=256 << 10)) as session:
        result = await session.call("script", {"code": PRINTED})
    assert result.ok, result
    cut, refused, whole, used = result.value["result"]
    assert (cut, whole) == (True, False)
    assert used == len("".join(f"{n}\n" for n in range(1, 2_001))), "the control: its other stream is whole"
    assert "incomplete" in refused


@tool
async def cut_rows(context: Context) -> Any:
    """An artifact of JSON that lacks a part."""
    rows = json.dumps([{"text": "x" * 9_000}, 5])
    return await context.artifacts.put(rows, media_type="application/json", incomplete=True)


async def test_a_part_of_what_is_incomplete_is_incomplete(tmp_path: Path) -> None:
    code = 'rows = tools.cut_rows()\n[repr(rows), rows[0].incomplete, rows[0]["text"].incomplete, rows[1]]'
    async with opened("jail", tmp_path, [cut_rows]) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    shown, inner, deeper, number = result.value["result"]
    assert "incomplete" in shown
    assert (inner, deeper, number) == (True, True, 5)


@tool
def picture_with(size: int) -> dict[str, Any]:
    """A picture, and texts beside it."""
    return {"image": Image(PNG), "texts": [{"text": "MARKER" * size}, "short"], "number": 1}


async def test_a_large_text_beside_a_picture_is_a_reference_and_in_no_event(tmp_path: Path) -> None:
    code = """
found = tools.picture_with(size=SIZE)
texts = found["texts"]
text = (texts.get(0) if isinstance(texts, Ref) else texts[0])["text"]
[text.kind, text.size, text.read(0, 6), found["image"]["size"], found["number"]]
"""
    for size in (1_000, 1_000_000):
        async with opened("jail", tmp_path, [picture_with]) as session:
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


async def test_what_a_failed_call_tells_is_cut_in_the_transcript_as_for_a_model(tmp_path: Path) -> None:
    code = "try:\n    tools.fails_with_much()\nexcept ToolError as error:\n    told = str(error)\nlen(told) > 10_000"
    async with opened("jail", tmp_path, [fails_with_much]) as session:
        direct = await session.call("fails_with_much", {})
        result = await session.call("script", {"code": code})
        sizes = [len(json.dumps(event.data)) for event in session.trace if event.type == "call_ended"]
    assert not direct.ok
    assert result.value["result"] is True
    assert sizes[1] < sizes[0] * 1.1, "the same as when a model calls it"


async def test_a_long_error_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    @tool
    def fails_at_length() -> None:
        """Fail, with a long message."""
        raise ToolFailed(Failure("execution_error", f"BEGIN{'x' * 40_000}END"))

    async with opened("jail", tmp_path, [fails_at_length]) as session:
        result = await session.call("script", {"code": "x = 1\ntools.fails_at_length()"})
    assert isinstance(result, Failure)
    assert 'File "<script>", line 2' in result.message
    assert "ToolError: execution_error: BEGINxxx" in result.message
    assert "xxxEND" in result.message
    assert len(result.message) < 9_000


@tool
def numbers(count: int) -> list[int]:
    """So many numbers."""
    return list(range(count))


@tool
def echo(value: Any) -> Any:
    """The value itself."""
    return value


IN_REFS = """
numbers = tools.numbers(count=1_500)
names = tools.echo(value=[f"item{n}" for n in range(3_000)])
named = tools.echo(value={"alpha": "x" * 3_000, "beta": "y" * 3_000})
text = tools.echo(value="one\\ntwo three\\n" * 1_000)
again = tools.echo(value=text)
return {
    "numbers": [5 in numbers, 1_500 in numbers, "5" in numbers],
    "names": ["item5" in names, "tem5" in names, 5 in names],
    "named": ["alpha" in named, "xxx" in named, 5 in named],
    "text": ["two" in text, "one\\ntwo" in text, "four" in text],
    "same": [text == again, text != again, text == numbers, text == "one", len({text, again})],
}
"""


async def test_in_and_equal_mean_for_a_reference_what_they_mean_for_its_value(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, [numbers, echo]) as session:
        result = await session.call("script", {"code": IN_REFS})
    assert result.ok, result
    assert result.value["result"] == {
        "numbers": [True, False, False],
        "names": [True, False, False],
        "named": [True, False, False],
        "text": [True, True, False],
        "same": [True, False, False, False, 1],
    }


async def test_a_reference_may_be_passed_on_twice_and_again(tmp_path: Path) -> None:
    code = """
first = tools.echo(value="text " * 2_000)
both = tools.echo(value=[first, {"again": first}])
both = [both[0], both[1]["again"]]
[each.read(0, 4) for each in both] + [each.size for each in both] + [tools.echo(value=both[1]).size]
"""
    async with opened("jail", tmp_path, [echo]) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert result.value["result"] == ["text", "text", 10_000, 10_000, 10_000]


async def test_pictures_get_names_of_their_own_whatever_the_call_is_called(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(PNG)
    (tmp_path / "media").mkdir()
    code = "[tools.read(path='shot.png')['path'] for _ in range(2)]"
    paths: list[str] = []
    for session_id in ("one", "two"):
        for call_id in ("call", "x" * 300, "a b\n|c:/../é"):
            async with opened("jail", tmp_path, id=session_id) as session:
                result = await session.call("script", {"code": code}, id=call_id)
            assert result.ok, result
            assert [file["path"] for file in result.value["media"]] == sorted(result.value["result"])
            paths += result.value["result"]
    assert len(set(paths)) == 12, "none takes the place of another"
    for path in paths:
        assert (tmp_path / path).read_bytes() == PNG
        assert path.isascii()
        assert " " not in path


async def test_the_answer_tells_which_of_the_finished_calls_failed(tmp_path: Path) -> None:
    code = """
tools.glob(pattern="*")
try:
    tools.read(path="no")
except ToolError:
    pass
getattr(tools, "no_such")()
"""
    async with opened("jail", tmp_path) as session:
        result = await session.call("script", {"code": code})
    assert isinstance(result, Failure)
    said = (
        "3 calls were finished, and are not made again by themselves: glob, read (not_found), no_such (tool_not_found)."
    )
    assert said in result.message


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
JSON = st.recursive(
    LEAVES, lambda held: st.lists(held, max_size=3) | st.dictionaries(st.text(max_size=5), held), max_leaves=8
)
DEEP = json.loads("[" * 50 + "1" + "]" * 50)


@settings(max_examples=10, deadline=None)
@example(values=[DEEP, {"$ref": {"ref": "x"}}, -0.0, 1e22, 2**64])
@given(values=st.lists(JSON, min_size=1, max_size=8))
def test_every_json_value_reaches_a_script_and_comes_back_as_it_was(
    values: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def main() -> None:
        async with opened("jail", tmp_path_factory.mktemp("work"), [echo]) as session:
            result = await session.call("script", {"code": f"[tools.echo(value=each) for each in {values!r}]"})
        assert result.ok, result
        assert json.dumps(result.value["result"]) == json.dumps(values)

    anyio.run(main)


async def test_a_result_of_nearly_200_levels_comes_back_as_it_was(tmp_path: Path) -> None:
    code = "made = '\\ud800'\nfor _ in range(198): made = [made]\nmade"
    async with opened("jail", tmp_path, []) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    made, levels = result.value["result"], 0
    while isinstance(made, list):
        made, levels = made[0], levels + 1
    assert (levels, made) == (198, "?"), "half a pair of surrogates is replaced in every answer"


@tool
async def letters(count: int) -> str:
    """So many letters."""
    return "x" * count


@pytest.mark.parametrize("most", [4_096, 100, 0, None])
async def test_a_budget_says_how_large_a_value_a_script_is_given(tmp_path: Path, most: int | None) -> None:
    code = "[n for n in (100, 101, 4096, 4097) if isinstance(tools.letters(count=n), str)]"
    budget = Budget() if most == 4_096 else Budget(script_inline_bytes=most)
    async with opened("jail", tmp_path, [letters], budget=budget) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    wanted = [n for n in (100, 101, 4096, 4097) if most is None or n <= most]
    assert result.value["result"] == wanted
