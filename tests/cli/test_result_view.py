"""A result is drawn by its kind, in few lines unless all of them are asked for."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from handrail.cli._result_view import MAX_LINES_COUNT, MAX_OUTPUT_LINES_COUNT, tree, view_of


def drawn(result: Any, *, full: bool = False, width: int = 40) -> tuple[list[str], int]:
    """The lines that a terminal of this width shows of a result, and how many are left out."""
    return drawn_envelope({"ok": True, "result": result}, full=full, width=width)


def drawn_envelope(envelope: dict[str, Any], *, full: bool = False, width: int = 40) -> tuple[list[str], int]:
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    view = view_of(envelope, full=full)
    for part in view.drawn(2, full=full):
        console.print(part)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()], view.hidden  # type: ignore[attr-defined]


def test_a_difference_shows_its_first_lines_without_the_names_of_its_files() -> None:
    diff = "--- a\n+++ a\n@@ -1 +1,30 @@\n-old\n" + "".join(f"+new {number}\n" for number in range(30))
    lines, hidden = drawn({"path": "a", "diff": diff})
    assert lines[:3] == ["  @@ -1 +1,30 @@", "  -old", "  +new 0"]
    assert (len(lines), hidden) == (MAX_LINES_COUNT, 32 - MAX_LINES_COUNT)
    assert len(drawn({"diff": diff}, full=True)[0]) == 32


def test_a_command_shows_its_last_lines() -> None:
    printed = "".join(f"{number}\n" for number in range(30))
    lines, hidden = drawn({"exit_code": 1, "stdout": printed, "stderr": "error\n"})
    assert lines[-2:] == ["  29", "  error"]
    assert (len(lines), hidden) == (MAX_OUTPUT_LINES_COUNT, 31 - MAX_OUTPUT_LINES_COUNT)


def test_paths_are_a_tree_in_which_each_directory_stands_once() -> None:
    assert tree(["a/b.py", "a/c/d.py", "e"]) == ["├ a/", "│ ├ b.py", "│ └ c/", "│   └ d.py", "└ e"]
    entries = [{"name": "src", "type": "directory"}, {"name": "f", "type": "file"}]
    assert drawn({"kind": "listing", "entries": entries})[0] == ["  ├ src/", "  └ f"]


def test_a_text_is_markdown_unless_it_is_of_another_kind_of_file() -> None:
    assert drawn("- **one**")[0] == ["   • one"]
    assert drawn({"kind": "file", "path": "a.md", "text": "- one"})[0] == ["   • one"]
    assert drawn({"kind": "file", "path": "a.py", "text": "- one"})[0] == ["  - one"]


@pytest.mark.parametrize(
    "result", ["x " * 50_000, {"other": "x" * 50_000}, {"kind": "file", "path": "a", "text": "x" * 9_999}]
)
def test_one_long_line_does_not_fill_the_screen(result: Any) -> None:
    assert len(drawn(result)[0]) < 100


def test_lines_are_cut_at_the_width_and_a_failure_is_whole() -> None:
    assert drawn({"kind": "file", "path": "a", "text": "x" * 100})[0] == ["  " + "x" * 37 + "…"]
    lines, _ = drawn_envelope({"ok": False, "message": "one two three four five six seven eight nine ten"})
    assert " ".join(" ".join(lines).split()) == "one two three four five six seven eight nine ten"


def test_nothing_in_a_result_moves_the_cursor() -> None:
    for result in (
        "\x1b[2Jhi",
        {"exit_code": 0, "stdout": "\x1b[2Jhi", "stderr": ""},
        {"diff": "+\x1b[2Jhi"},
        ["\x1b[2Jhi"],
    ):
        assert "\x1b[2J" not in "".join(drawn(result)[0]), result
