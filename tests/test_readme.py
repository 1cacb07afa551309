"""The README's code is as short as it says, and what it says of the order of calls holds."""

import pytest

from handrail import Call, Session, builtin_tools, open_sandbox
from tests.test_house import blocks, read

TITLES = [
    "Install",
    "Ten lines",
    "What is guaranteed, and where",
    "Inside your framework",
    "What does not hold",
    "How the calls of one turn are ordered",
    "The demo",
]


def block(beginning: str) -> str:
    """The one program of the README that begins like this."""
    (found,) = [text for text in blocks("README.md", "python") if text.startswith(beginning)]
    return found


def test_a_newcomer_reads_what_it_is_then_how_to_install_it_and_the_transcript_last() -> None:
    text = read("README.md")
    found = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert found[: len(TITLES)] == TITLES
    assert "keep\nit, and replace the layer that touches the world" in text.partition("\n## ")[0]


def test_ten_lines_are_ten() -> None:
    lines = [line for line in block("from handrail").splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) == 10


@pytest.mark.parametrize("beginning", ["from typing", "from anthropic"])
def test_a_whole_agent_is_about_fifteen_lines(beginning: str) -> None:
    lines = [line for line in block(beginning).splitlines() if line.strip()]
    assert len(lines) <= 15


# The order of one turn


@pytest.mark.anyio
async def test_a_turn_of_built_in_calls_is_run_in_the_order_that_the_readme_says() -> None:
    calls = [
        Call("1", "bash", {"command": "sleep 0.3; echo one > notes"}),
        Call("2", "read", {"path": "notes"}),
        Call("3", "write", {"path": "nowhere"}),
        Call("4", "bash", {"command": "exit 3"}),
        Call("5", "bash", {"command": "sleep 0.3; echo two > notes"}),
        Call("6", "read", {"path": "notes"}),
        Call("7", "read", {"path": "notes"}),
    ]
    async with open_sandbox() as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        results = await session.call_all(calls)
    assert results[2].kind == "invalid_args"
    assert results[3].value["exit_code"] == 3
    assert [results[number].value["text"] for number in (1, 5, 6)] == ["one\n", "two\n", "two\n"]
