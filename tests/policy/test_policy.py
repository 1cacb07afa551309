"""A policy is checked when it is created, and its rules' tools when a session is."""

import pytest

from handrail import HandrailError, Policy, Session, builtin_tools, tool
from handrail.policy.policy import check_tool_names


@tool
def publish(path: str) -> str:
    return path


def test_a_list_of_rules_is_a_list() -> None:
    with pytest.raises(HandrailError, match=r"Policy.deny is a list"):
        Policy(deny="bash")


def test_a_mode_is_one_of_four() -> None:
    with pytest.raises(HandrailError, match="'closed' is not one of contained, ask, strict, open"):
        Policy(mode="closed")  # type: ignore[arg-type]


@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [("wirte", "write"), ("wirte(./src/**)", "write"), ("Bash", "bash"), ("publsh(path=a)", "publish")],
)
def test_a_rule_about_a_misspelt_tool_is_an_error_that_names_the_nearest(
    action: str, pattern: str, nearest: str
) -> None:
    with pytest.raises(HandrailError) as refused:
        Session([publish], policy=Policy(**{action: [pattern]}))  # type: ignore[arg-type]
    assert f"rule {pattern!r}" in str(refused.value)
    assert f"did you mean {nearest!r}?" in str(refused.value)


def test_where_no_name_is_near_the_tools_are_listed() -> None:
    with pytest.raises(HandrailError, match=r"the tools are .*\bpublish\b") as refused:
        Session([publish], policy=Policy(deny=["quux"]))
    assert "'quux*'" in str(refused.value), "how to write a rule for a tool that is added later"


@pytest.mark.parametrize(
    "pattern",
    [
        "publish",
        "publish(path=./a)",
        "wirte*",
        "mcp_*(x)",
        "*",
        "risk:high",
        "effect:writes",
        "task",
        "script",
        "search_tools",
    ]
    + [each.name for each in builtin_tools("all")],
)
def test_a_tool_of_the_session_a_built_in_a_pattern_a_risk_and_an_effect_are_known(pattern: str) -> None:
    Session([publish], policy=Policy(deny=[pattern]))


def test_a_check_that_warns_tells_every_unknown_name_and_raises_nothing() -> None:
    messages: list[str] = []
    check_tool_names(
        Policy(allow=["wirte"], ask=["write"], deny=["raed(x)"]).rules, {"read", "write"}, warn=messages.append
    )
    assert ["'write'" in messages[0], "'read'" in messages[1], len(messages)] == [True, True, 2]
