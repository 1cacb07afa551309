"""What a person lets run from now on is exactly what was shown: laws of the rule that is suggested."""

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handrail import Budget, Decision, Policy, Session, Tool, tool
from tests.gates.asked import saying

pytestmark = pytest.mark.anyio
LOOSE = Budget(calls=None, refusals=None)
ASK = Policy(mode="ask")


@tool(effects=["writes"])
async def save(path: str, content: str = "", mode: int = 0) -> str:
    return "ran"


@tool(effects=["writes"])
async def take(word: str, other: str = "") -> str:
    return "ran"


@tool(effects=["executes"])
async def bash(command: str, cwd: str = ".") -> str:
    return "ran"


@tool(effects=["writes"])
async def put(key: str = "", value: str = "") -> str:
    """With nothing that is required."""
    return "ran"


DASHED = Tool(
    "dashed",
    {"type": "object", "properties": {"the-word": {"type": "string"}, "other": {"type": "string"}}},
    lambda context, arguments: "ran",
    effects=["writes"],
)
TOOLS: dict[str, tuple[Any, str, str]] = {
    "save": (save, "path", "content"),
    "take": (take, "word", "other"),
    "bash": (bash, "command", "cwd"),
    "put": (put, "value", "key"),
    "dashed": (DASHED, "the-word", "other"),
}
pieces = st.sampled_from(
    [*"ab=/.*?[]()!-~ '\"$;|\\é", "path=", "content=", "word=", "other=", "command=", "cwd=", "value=", "key=",
     "the-word=", "..", "/etc", "x", "1", "null", '["a"]'],
)  # fmt: skip
values = st.lists(pieces, min_size=1, max_size=6).map("".join)


async def runs(policy: Policy, remembered: list[Any], name: str, arguments: dict[str, Any]) -> bool:
    """Whether a call runs where nobody can be asked."""
    async with Session([TOOLS[name][0]], policy=policy, budget=LOOSE) as session:
        session.shared.remembered.extend(remembered)
        return (await session.call(name, arguments)).ok


async def suggested(name: str, arguments: dict[str, Any]) -> tuple[str, list[Any]]:
    """The rule that is shown, and what the session keeps when a person says: remember."""
    person = saying(Decision.remember())
    async with Session([TOOLS[name][0]], policy=ASK, approver=person, budget=LOOSE) as session:
        await session.call(name, arguments)
        assert person.asked
        return person.asked[0].suggested_rule, list(session.shared.remembered)


LAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", TOOLS)
@LAWS
@given(value=values, more=pieces.map(lambda piece: piece[:1]))
@example(value="path=x", more="x")
@example(value="content=x", more="x")
@example(value="src/", more="x")
@example(value="/", more="a")
@example(value="git status", more=" ")
@example(value="a", more="/")
async def test_a_suggested_rule_means_this_value_alone(name: str, value: str, more: str) -> None:
    _, field, other = TOOLS[name]
    rule, kept = await suggested(name, {field: value})
    if not rule:
        assert not kept
        return
    assert await runs(ASK, kept, name, {field: value}), "the call as it is"
    assert await runs(Policy(allow=[rule], mode="ask"), [], name, {field: value}), "the same, saved in a policy"
    changed = [{field: value + more}, {field: "another", other: value}, {other: value}]
    if "=" in value:
        changed.append({field: value.partition("=")[2]})
    for arguments in changed:
        assert not await runs(ASK, kept, name, arguments), (rule, arguments)
    assert not await runs(Policy(allow=[rule], mode="ask"), [], name, {field: f"{value}x"}), (rule, "in a policy")


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("save", {"path": "path=x"}, "save(path=path=x)"),
        ("save", {"path": "notes.md"}, "save(notes.md)"),
        ("save", {"path": "src/"}, ""),
        ("take", {"word": "src/"}, "take(src/)"),
        ("bash", {"command": "git status"}, "bash(git status)"),
        ("bash", {"command": "cwd=/etc"}, "bash(command=cwd=/etc)"),
        ("put", {"value": "x"}, "put(value=x)"),
        ("put", {}, ""),
        ("dashed", {"the-word": "a"}, "dashed(a)"),
        ("dashed", {"the-word": "other=a"}, ""),
    ],
)
async def test_the_rule_is_the_shortest_that_says_so(name: str, arguments: dict[str, Any], rule: str) -> None:
    assert (await suggested(name, arguments))[0] == rule


async def test_a_link_that_leads_elsewhere_is_asked_about_each_time(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").write_text("")
    (tmp_path / "link").symlink_to("own")
    assert (await suggested("save", {"path": "link"}))[0] == ""
    assert (await suggested("save", {"path": "own"}))[0] == "save(own)"
