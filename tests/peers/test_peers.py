"""Backends of other frameworks meet the kit, and the page about them tells what it found."""

from functools import partial
from pathlib import Path
from typing import get_args

import anyio
import pytest

from handrail.contract.driver import Feature
from handrail.testing.conformance import CHECKS
from tests.documents import ROOT
from tests.peers import __main__ as command
from tests.peers.meet import met, opener_of
from tests.peers.page import cell
from tests.peers.peers import OURS, PEERS

PAGE = ROOT / "docs" / "peers.md"


def table(page: Path) -> list[str]:
    return [line for line in page.read_text().splitlines() if line.startswith("| ")]


def meet(name: str, only: list[str]) -> dict[str, tuple[str, str]]:
    """By check: what became of it, and why."""
    opener, named = opener_of(name)
    found = anyio.run(partial(met, opener, named, only))
    return {check: (end, why) for rows in found.values() for check, end, why in rows}


def test_a_backend_that_runs_commands_to_their_end_is_tried_and_what_it_cannot_express_is_not_counted() -> None:
    found = meet(
        "pydantic-ai",
        [
            "what is written is read byte by byte",
            "exit code 3 is returned",
            "KILL ends a child",
            "a command that has a file open keeps the old content",
            "stdout is given while the command runs",
            "every byte value goes in and comes out",
            "a mode that is given is set",
            "a sandbox feeds a text and closes it",
            "a file cannot grow beyond the limit",
        ],
    )
    ends = {check: end for check, (end, _) in found.items()}
    assert ends == {
        "what is written is read byte by byte": "kept",
        "exit code 3 is returned": "kept",
        "KILL ends a child": "kept",
        "a command that has a file open keeps the old content": "broken",  # it writes in place
        "stdout is given while the command runs": "lacks",
        "every byte value goes in and comes out": "lacks",
        "a mode that is given is set": "lacks",
        "a sandbox feeds a text and closes it": "lacks",
        "a file cannot grow beyond the limit": "lacks",
    }
    assert found["a mode that is given is set"][1] == "it does not tell the mode of a file"


def test_what_a_backend_is_said_to_lack_are_checks_that_exist() -> None:
    _, named = opener_of("pydantic-ai")
    assert named
    assert set(named) <= {check.name for check in CHECKS}


def test_the_page_has_a_row_for_each_promise_and_a_column_for_each_peer() -> None:
    head, *rows = (line.split(" | ") for line in table(PAGE))
    assert [name.strip("| ") for name in head[1 + len(OURS) :]] == list(PEERS)
    assert {row[0].strip("| ") for row in rows} == set(get_args(Feature))
    assert all(len(row) == len(head) for row in rows)


def test_a_cell_counts_what_could_be_tried() -> None:
    assert cell([("a", "kept", ""), ("b", "broken", "x"), ("c", "lacks", "y"), ("d", "untried", "z")]) == "1 / 2"
    assert cell([("c", "lacks", "y")]) == "–"


@pytest.mark.long
def test_the_table_on_the_page_is_what_the_command_writes(tmp_path: Path) -> None:
    command.main([], tmp_path / "peers.md")
    assert table(tmp_path / "peers.md") == table(PAGE)
