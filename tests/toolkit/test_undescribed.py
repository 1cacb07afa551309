"""A tool without a docstring warns once, at the line that makes it."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from handrail import Session, Tool, Toolbox, tool

HERE = __file__


def test_a_tool_without_a_docstring_warns_at_its_own_line() -> None:
    with pytest.warns(UserWarning, match="tool bare has no description.*write a docstring") as caught:

        @tool
        def bare(a: int) -> int:
            return a

    (warned,) = caught
    assert warned.filename == HERE
    assert Path(HERE).read_text().splitlines()[warned.lineno - 1].strip() == "@tool"


def test_the_decorator_with_options_and_plain_functions_warn_at_the_users_line_too() -> None:
    def in_a_list(a: int) -> int:
        return a

    def in_a_session(a: int) -> int:
        return a

    def with_options(a: int) -> int:
        return a

    with pytest.warns(UserWarning, match="has no description") as caught:
        _ = tool(risk="high")(with_options), Toolbox([in_a_list]), Session([in_a_session])
    assert [warned.filename for warned in caught] == [HERE] * 3


def test_one_function_warns_once_however_often_it_is_made_a_tool() -> None:
    def often(a: int) -> int:
        return a

    with pytest.warns(UserWarning, match="tool often has no description") as caught:
        _ = [Session([often]) for _ in range(3)]
    assert len(caught) == 1


def test_a_described_tool_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @tool
        def documented(a: int) -> int:
            """Give it back."""
            return a

        tool(name="short", description="Give it back.")(lambda: None)
        Tool("by_hand", {"type": "object"}, lambda context, arguments: None)


def test_the_process_of_an_isolated_tool_does_not_warn_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from handrail import Session, run_sync, tool\n@tool(isolate=True)\ndef f() -> int:\n    return 42\n"
        "async def main():\n    async with Session([f]) as s:\n        print((await s.call('f')).value)\n"
        "if __name__ == '__main__':\n    run_sync(main)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "42\n"
    assert done.stderr.count("has no description") == 1
