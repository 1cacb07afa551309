"""What users write is typed: both checkers follow the public surface, and both object to what is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import Event
from tests.consumer import shop

ROOT = Path(__file__).resolve().parents[1]
CHECKERS = {
    "mypy": ["-m", "mypy", "--config-file", "tests/consumer/pyproject.toml"],
    "pyright": ["-m", "basedpyright", "-p", "tests/consumer", "--pythonpath", sys.executable],
}
MISUSED = """
from typing import assert_type

from handrail import Context, Result, Session, Tool, tool

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

@tool(timeout=5)
async def later(context: Context[str]) -> str:
    return context.state.upper()

sum_: int = add(1, 2)
text: str = add(1, 2)  # wrong
add("1")  # wrong
add(1, c=2)  # wrong
tool(risk="none")  # wrong
tool(riks="high")  # wrong
Tool("t", {}, lambda context, arguments: 1, timeout="5")  # wrong

def state(context: Context[int]) -> int:
    context.state.upper()  # wrong
    return context.state

def read(result: Result) -> str:
    result.mesage  # wrong
    return result.value if result.ok else result.message

async def call(session: Session) -> None:
    await session.call("add", inside="x")  # wrong
    assert_type(await session.call("add"), Result)
"""


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_objects_to_what_is_wrong_and_to_nothing_else(checker: str, tmp_path: Path) -> None:
    (tmp_path / "misused.py").write_text(MISUSED)
    argv = [sys.executable, *CHECKERS[checker], str(tmp_path / "misused.py")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    wrong = {number for number, line in enumerate(MISUSED.splitlines(), 1) if line.endswith("# wrong")}
    assert {int(line) for line in re.findall(r"misused\.py:(\d+)[:\d]*[: -]+error", done.stdout)} == wrong, done.stdout


@pytest.mark.anyio
async def test_the_program_of_a_user_runs() -> None:
    seen: list[Event] = []
    assert await shop.main(seen) == [
        "2 of pears",
        "user_denied: The user did not allow order: That is too much.",
        "not_found: There is no plums.",
        "1.5",
        "timeout: too long",
        "It is 3.",
        "kept",
        "order {'item': 'pears', 'count': 2}",
        "look {'item': 'plums'}",
        "price {'item': 'pears'}",
    ]
    assert [event.type for event in seen[:2]] == ["session_started", "call_started"]
