"""The example in every bounce of a built-in tool is a call that preflight lets through as it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail import Failure, Success, ToolFailed, tool
from handrail.schema.prepare import Prepared, prepare
from handrail.toolkit.tool import Tool
from handrail.tools.builtin import builtin_tools
from tests.schema.generate import anything, instances
from tests.tools.world import world

EVERY = {each.name: each for each in builtin_tools("all")}
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def preflight(arguments: Any, tool: Tool) -> Prepared | Failure:
    return prepare(arguments, tool.checks, own=tool.own, convert=tool.convert, tool=tool.name)


def check(answer: Prepared | Failure, tool: Tool, *, required: bool) -> None:
    """The example of a bounce comes back unchanged; `required`: there must be one."""
    if isinstance(answer, Prepared):
        return
    assert answer.data is not None
    example = answer.data.get("example")
    if example is None:
        assert not required, answer.message
        return
    again = preflight(example, tool)
    assert isinstance(again, Prepared), (example, again)
    assert again.arguments is example
    assert again.repairs == again.warnings == ()


def test_an_example_that_is_refused_would_be_found() -> None:
    for example in ({"path": "a"}, {"path": "a", "old_string": "b", "new_string": "c"}):
        with pytest.raises(AssertionError):
            check(Failure("invalid_args", "", data={"example": example}), EVERY["edit"], required=True)


WRONG: list[Any] = ["", "nonsense", "[]", {"zzz": 1}, {"path": 1.5, "zzz": []}, {"action": "kill"}, {"old": "x"}]


@pytest.mark.parametrize("sent", WRONG, ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_every_tool_shows_an_example_that_passes(name: str, sent: Any) -> None:
    check(preflight(sent, EVERY[name]), EVERY[name], required=True)


@pytest.mark.parametrize("name", EVERY)
@QUICK
@given(data=st.data())
def test_an_example_passes_whatever_was_sent(name: str, data: st.DataObject) -> None:
    each = EVERY[name]
    declared = each.parameters["properties"]
    value = data.draw(instances(each.parameters))
    for key in data.draw(st.sets(st.sampled_from([*declared, "zzz"]), max_size=3)):
        if data.draw(st.booleans()):
            value.pop(key, None)
        else:
            value[key] = data.draw(anything)
    check(preflight(value, each), each, required=False)


TOGETHER: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("edit", {"path": "a"}, "old", {"path": "a", "old": "text", "new": "example"}),
    ("edit", {"path": "a", "old": "x"}, "new", {"path": "a", "old": "x", "new": "text"}),
    ("edit", {"path": "a", "old": "x", "new": "x"}, "new", {"path": "a", "old": "x", "new": "text"}),
    (
        "edit",
        {"path": "a", "old": "x", "edits": [{"old": "b", "new": "c"}]},
        "old",
        {"path": "a", "edits": [{"old": "b", "new": "c"}]},
    ),
    (
        "edit",
        {"path": "a", "edits": [{"old": "b", "new": "b"}]},
        "edits[0].new",
        {"path": "a", "edits": [{"old": "b", "new": "text"}]},
    ),
    ("share_artifact", {}, "path", {"path": "text"}),
    ("share_artifact", {"path": " "}, "path", {"path": "text"}),
    ("share_artifact", {"content": "x"}, "filename", {"content": "x", "filename": "text"}),
    ("share_artifact", {"path": "x", "filename": "a/b"}, "filename", {"path": "x", "filename": "text"}),
    ("task", {}, "prompt", {"prompt": "text"}),
    ("process", {"action": "kill"}, "job", {"action": "kill", "job": "text"}),
    ("process", {"action": "send", "job": "1"}, "text", {"action": "send", "job": "1", "text": "text"}),
    ("complete", {"summary": "Done."}, "summary", {"summary": "text"}),
    ("bash", {"command": "ls", "input": True}, "input", {"command": "ls", "input": False}),
]


@pytest.mark.parametrize(("name", "sent", "field", "example"), TOGETHER, ids=str)
def test_arguments_that_do_not_go_together_are_refused_before_anybody_is_asked(
    name: str, sent: dict[str, Any], field: str, example: dict[str, Any]
) -> None:
    answer = preflight(sent, EVERY[name])
    assert isinstance(answer, Failure)
    assert answer.field == field
    assert answer.data is not None
    assert answer.data["example"] == example
    assert json.dumps(example) in answer.message


def in_order(arguments: Mapping[str, Any]) -> None:
    if arguments["low"] > arguments["high"]:
        raise ToolFailed(Failure("invalid_args", "low is above high.", field="low", expected="at most high"))
    if arguments["low"] < 0:
        raise ValueError("nothing is below zero")


@tool(validate=in_order, effects=["writes"])
def between(low: int, high: int) -> int:
    """Choose a number."""
    return (low + high) // 2


@pytest.mark.parametrize(
    ("sent", "field", "said"),
    [
        ({"low": 3, "high": 2}, "low", "low is above high; received 3."),
        ({"low": -3, "high": 2}, None, "nothing is below zero; received"),
    ],
)
def test_a_tool_refuses_what_its_schema_cannot_say(sent: Any, field: str | None, said: str) -> None:
    assert isinstance(preflight({"low": 1, "high": 2}, between), Prepared)
    answer = preflight(sent, between)
    assert isinstance(answer, Failure)
    assert (answer.kind, answer.field) == ("invalid_args", field)
    assert said in answer.message
    check(answer, between, required=False)


BY_ALIASES: list[tuple[str, dict[str, Any]]] = [
    ("write", {"file_path": "a.txt", "content": "one two\n"}),
    ("read", {"file_path": "a.txt"}),
    ("edit", {"file_path": "a.txt", "old_string": "one", "new_string": "1"}),
    ("edit", {"path": "a.txt", "edits": {"old_string": "two", "new_string": "2"}}),
    ("edit", {"path": "a.txt", "edits": {"old": "2", "new": "two"}}),
    ("share_artifact", {"file_path": "a.txt"}),
    ("bash", {"cmd": "cat a.txt"}),
]


@pytest.mark.anyio
async def test_the_names_that_other_systems_use_work_and_nobody_is_asked(tmp_path: Path) -> None:
    async with world("host", tmp_path) as place:
        results = [await place.call(name, **sent) for name, sent in BY_ALIASES]
    assert all(isinstance(result, Success) for result in results), results
    assert results[-1].value["stdout"] == "1 two\n"
    told = [bool(result.warnings) for result in results]
    assert told == [False, False, False, True, True, False, False]  # an edit that was put into a list is told
