"""How much a script may make, send and return, and what it is told above that."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Budget, tool
from tests.tools.test_script import opened, result_of, trouble
from tests.tools.world import World, in_time

pytestmark = pytest.mark.anyio


async def test_fifty_files_under_media_come_back_and_the_rest_is_counted(real: World) -> None:
    await real.put("media/old", "x")
    code = "import os\nfor n in range(53): open(f'media/{n:02}', 'w').write('x')"
    value = await real.value("script", code=code)
    assert [file["path"] for file in value["media"]] == [f"media/{n:02}" for n in range(50)]
    assert value["media_left_out"] == 3


async def test_what_an_interpreter_says_of_media_is_looked_up(real: World) -> None:
    await real.put("secret.png", b"\x89PNG\r\n\x1a\n" + bytes(60))
    await real.put("media/own", "x")
    code = """
import os
os.symlink("../secret.png", "media/link.png")
c = tools._channel
c.end({"value": 1, "media": ["secret.png", "media/../secret.png", "media/link.png", "media/none", 5, "media/own"]})
"""
    value = await real.value("script", code=code)
    assert value["media"] == [{"path": "media/own", "size": 1}]


async def test_parts_of_json_above_64_mib_are_refused_and_its_bytes_can_be_read(tmp_path: Path) -> None:
    @tool
    def large(mib: int) -> list[str]:
        """A list as large as this."""
        return ["x" * (mib << 20)]

    code = """
over = tools.large(mib=64)
try:
    over.get(0)
except ToolError as error:
    told = str(error)
[told, over.read(0, 5), tools.large(mib=1).get(0).size]
"""
    async with opened("jail", tmp_path, [large]) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    told, begin, size = result.value["result"]
    assert told.startswith("invalid_args: ")
    assert "use .read() or .lines()" in told
    assert (begin, size) == ('["xxx', 1 << 20)


async def test_a_result_above_4_mib_says_to_write_a_file(real: World) -> None:
    failure = await trouble(real, "'x' * (5 << 20)")
    assert failure.kind == "execution_error"
    assert "write it to a file" in failure.message
    assert len(await result_of(real, "'x' * (3 << 20)")) > 0


async def test_arguments_above_4_mib_are_refused_where_they_are_given(real: World) -> None:
    code = "try:\n    tools.write(path='a', content='x' * (5 << 20))\nexcept ToolError as error:\n    told = str(error)"
    told = await result_of(real, f"{code}\ntold")
    assert told.startswith("invalid_args: "), told
    assert "4,194,304" in told
    assert "a" not in await real.files()


async def test_a_number_of_more_than_4000_digits_is_no_value(real: World) -> None:
    failure = await trouble(real, "[1, 10 ** 4000]")
    assert failure.kind == "execution_error"
    assert "the result[1] is a number of more than 4,000 digits; use str" in failure.message
    code = "try:\n    tools.todo(items=[10 ** 4000])\nexcept ToolError as error:\n    told = str(error)\ntold"
    told = await result_of(real, code)
    assert told.startswith("invalid_args: ")
    assert "items[0] is a number of more than 4,000 digits" in told
    assert await result_of(real, "10 ** 3900") == 10**3900


NEWER: list[tuple[tuple[int, int], str]] = [
    ((3, 12), "type Names = list[str]"),
    ((3, 13), "class Box[T = int]: pass"),
    ((3, 14), "t'a template'"),
    ((9, 0), "x = 1 <=> 2"),
]


async def test_syntax_that_this_python_does_not_know_is_refused_before_anything_runs(real: World) -> None:
    code = next(code for version, code in NEWER if sys.version_info < version)
    failure = await trouble(real, f"tools.write(path='made', content='')\n{code}")
    assert failure.kind == "invalid_args"
    assert "line 2" in failure.message
    assert "made" not in await real.files()


YIELDS = [
    "x = 1\nyield x",
    "x = 1\nyield x\nreturn 5",
    "x = 1\ny = [(yield from x)]",
    "if True:\n    yield 1\n    return",
]


async def test_a_yield_that_belongs_to_no_function_is_refused(real: World) -> None:
    for code in YIELDS:
        failure = await trouble(real, code)
        assert failure.kind == "invalid_args", code
        assert "line 2: 'yield" in failure.message, (code, failure)
    inner = "def f():\n    yield 1\n    return\nreturn list(f())"
    assert await result_of(real, inner) == [1]


async def test_256_requests_of_a_script_wait_at_once_and_the_rest_is_read_later(tmp_path: Path) -> None:
    running, most, go = 0, 0, anyio.Event()

    @tool(lane="none")
    async def hold() -> int:
        """Wait."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return 1

    code = """
channel = tools._channel
replies = [channel.ask({"call": "hold", "arguments": {}}) for n in range(300)]
sum(channel.answer(reply) for reply in replies)
"""
    results: list[Any] = []
    async with opened("jail", tmp_path, [hold], budget=Budget(script_calls=None)) as session:

        async def run() -> None:
            results.append(await session.call("script", {"code": code}))

        with in_time():
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                while running < 256:  # noqa: ASYNC110 - the calls of a script have no event
                    await anyio.sleep(0.02)
                await anyio.sleep(0.2)
                go.set()
    assert results[0].ok, results
    assert (results[0].value["result"], most) == (300, 256)


async def test_the_description_promises_no_number_that_a_budget_may_change_and_the_refusal_says_it(
    tmp_path: Path,
) -> None:
    code = "for _ in range(3): tools.todo(items=[])"
    async with opened("host", tmp_path, budget=Budget(script_calls=2)) as session:
        described = {each["name"]: each["description"] for each in session.schemas("mcp")}["script"].partition(
            "The tools:"
        )[0]
        refused = await session.call("script", {"code": code})
    assert "a refusal says the limit" in described
    assert "50" not in described
    assert "300" not in described
    assert "2 calls" in refused.message, refused
