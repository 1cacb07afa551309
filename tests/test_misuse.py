"""A name that is not known is compared with those that are, as difflib does, in a fraction of its time."""

import difflib
from time import perf_counter

import anyio
import pytest

from handrail import Budget, Session, Tool
from handrail.agent.steering import TaskState, steer_to_listed_paths
from handrail.misuse import close_names

NAMES = [
    "read", "write", "edit", "bash", "grep", "glob", "process", "run_code", "script", "task", "todo", "ask_user",
    "search_tools", "share_artifact", "read_artifact", "complete", "browser_click", "browser_type", "browser_open",
    "github_create_issue", "github_list_issues", "github_get_issue", "weather_today", "weather_tomorrow",
]  # fmt: skip
SLIPS = {
    "raed": "read", "read_file": "read", "writes": "write", "edti": "edit", "run_coed": "run_code", "scripts": "script",
    "askuser": "ask_user", "search_tool": "search_tools", "share_artefact": "share_artifact",
    "browserclick": "browser_click", "github_create_isue": "github_create_issue", "weather_todya": "weather_today",
}  # fmt: skip


@pytest.mark.parametrize("slip", SLIPS)
def test_the_name_that_was_meant_is_found(slip: str) -> None:
    assert close_names(slip, NAMES, count=3)[0] == SLIPS[slip]


@pytest.mark.parametrize("slip", [*SLIPS, "tool_search", "github_issue_create", "artifact", "browser", "run"])
def test_the_best_match_is_that_of_difflib(slip: str) -> None:
    assert close_names(slip, NAMES) == difflib.get_close_matches(slip, NAMES, n=1)


@pytest.mark.parametrize("other", ["", "zzzzzz", "x" * 500, "read" * 100_000])
def test_a_name_like_none_of_them_is_not_matched(other: str) -> None:
    assert close_names(other, NAMES) == []


def test_names_are_compared_in_a_fraction_of_the_time_of_difflib() -> None:
    known = [f"service_{n % 20}_find_record_{n}" for n in range(400)]
    slips = [f"service_{n}_find_recrods" for n in range(20)]
    took = []
    for find in (lambda name: close_names(name, known), lambda name: difflib.get_close_matches(name, known)):
        began = perf_counter()
        assert all(find(slip) for slip in slips)
        took.append(perf_counter() - began)
    assert 3 * took[0] < took[1]


def test_the_advice_after_a_missing_path_takes_a_fraction_of_the_time_of_difflib() -> None:
    listed = tuple(f"src/package_{n % 50}/module_{n}.py" for n in range(2_000))
    state = TaskState("not_found", "src/package_7/modul_57.py", listed)
    took = []
    for _ in range(3):  # the machine may be busy with something else once
        began = perf_counter()
        advice = steer_to_listed_paths(state)
        took.append(perf_counter() - began)
    ours = min(took)
    began = perf_counter()
    difflib.get_close_matches(state.path, listed, n=1, cutoff=0.0)
    assert 3 * ours < perf_counter() - began
    assert advice is not None
    assert "src/package_7/module_57.py" in advice


def test_calls_of_unknown_names_leave_nothing_behind_in_the_session() -> None:
    async def tools_known() -> set[Tool]:
        async with Session([], budget=Budget(calls=None, refusals=None)) as session:
            for n in range(20):
                assert (await session.call(f"unknown_{n}")).kind == "tool_not_found"
            return {session.toolbox.find(f"unknown_{n}") for n in range(20)}

    assert len(anyio.run(tools_known)) == 1
