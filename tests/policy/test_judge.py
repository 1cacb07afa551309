"""The table of docs/policy.md, cell by cell, through the only door: what runs, what asks, what is refused."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from handrail import ApprovalRequest, Decision, Policy, Result, Sandbox, Session, Tool
from handrail.cli._settings import STRICTEST_LAST
from handrail.contract.approval import Effect, Risk
from handrail.contract.driver import Feature, Guarantee, Report
from handrail.policy.policy import Mode
from handrail.testing import MemoryDriver

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[2] / "docs" / "policy.md"
MODES: tuple[Mode, ...] = ("contained", "ask", "strict", "open")
EFFECTS = ("nothing", "reads", "writes", "executes", "reaches_out", "spends")
RISKS: tuple[Risk, ...] = ("safe", "high", "critical")
SANDBOXES = ("enforced", "weaker", "none")
WALLS: tuple[Feature, ...] = (
    "file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges",
)  # fmt: skip

# mode, effect: what a safe, a high and a critical tool does in an enforced sandbox, in a weaker one, and without one
TABLE = """
    contained  nothing      runs runs runs   asks asks asks   asks asks asks
    contained  reads        runs runs runs   runs asks asks   asks asks asks
    contained  writes       runs asks asks   runs asks asks   asks asks asks
    contained  executes     runs asks asks   runs asks asks   asks asks asks
    contained  reaches_out  asks asks asks   asks asks asks   asks asks asks
    contained  spends       asks asks asks   asks asks asks   asks asks asks
    ask        nothing      runs runs runs   asks asks asks   asks asks asks
    ask        reads        runs runs runs   asks asks asks   asks asks asks
    ask        writes       asks asks asks   asks asks asks   asks asks asks
    ask        executes     asks asks asks   asks asks asks   asks asks asks
    ask        reaches_out  asks asks asks   asks asks asks   asks asks asks
    ask        spends       asks asks asks   asks asks asks   asks asks asks
    strict     nothing      runs runs runs   asks asks asks   asks asks asks
    strict     reads        runs asks asks   asks asks asks   asks asks asks
    strict     writes       asks asks asks   asks asks asks   asks asks asks
    strict     executes     asks asks asks   asks asks asks   asks asks asks
    strict     reaches_out  asks asks asks   asks asks asks   asks asks asks
    strict     spends       asks asks asks   asks asks asks   asks asks asks
    open       nothing      runs runs runs   runs runs runs   runs runs runs
    open       reads        runs runs runs   runs runs runs   runs runs runs
    open       writes       runs runs runs   runs runs runs   runs runs runs
    open       executes     runs runs runs   runs runs runs   runs runs runs
    open       reaches_out  runs runs runs   runs runs runs   runs runs runs
    open       spends       runs runs runs   runs runs runs   runs runs runs
"""
# what comes of it where the approver says yes, says no, and where there is none: the failure, or None for a run
OUTCOME: dict[tuple[str, str], str | None] = {
    ("runs", "yes"): None, ("runs", "no"): None, ("runs", "absent"): None,
    ("asks", "yes"): None, ("asks", "no"): "user_denied", ("asks", "absent"): "rejected",
}  # fmt: skip


def cells() -> dict[tuple[str, str, str, str], str]:
    """By mode, effect, risk and sandbox."""
    found: dict[tuple[str, str, str, str], str] = {}
    for line in TABLE.strip().splitlines():
        mode, effect, *row = line.split()
        for (risk, sandbox), word in zip(product(RISKS, SANDBOXES), row, strict=True):
            found[mode, effect, risk, sandbox] = word
    return found


class Person:
    """Says what it was told to say, and counts how often it was asked."""

    def __init__(self, says: str) -> None:
        self.says = says
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return Decision.approve() if self.says == "yes" else Decision.deny("not today")


def a_tool(*effects: Effect, risk: Risk = "safe", name: str = "acts", sandboxed: bool = True) -> tuple[Tool, list[Any]]:
    """A tool, and the list of the arguments with which its body ran."""
    ran: list[Any] = []

    async def body(context: Any, arguments: Any) -> str:
        ran.append(dict(arguments))
        return "ran"

    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
    needs: list[Feature] = ["files"] if sandboxed else []
    return Tool(name, parameters, body, risk=risk, effects=effects, needs=needs), ran


def a_sandbox(*walls: Feature) -> Sandbox:
    """Over a driver that reports exactly these walls as enforced."""
    standing = [Guarantee(wall, "enforced" if wall in walls else "advisory") for wall in WALLS]
    return Sandbox(MemoryDriver(), report=Report("chosen", (Guarantee("files", "enforced"), *standing), network="none"))


def test_the_table_here_is_the_table_of_the_page() -> None:
    rows = [line.split() for line in TABLE.strip().splitlines()]
    shown = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [row for row in shown if row[0] in MODES] == rows
    assert set(cells()) == set(product(MODES, EFFECTS, RISKS, SANDBOXES))
    assert len(cells()) * 3 == 648


def test_a_stricter_mode_asks_wherever_a_looser_one_does() -> None:
    found = cells()
    for looser, stricter in pairwise(STRICTEST_LAST):
        cell_pairs = [(found[looser, *rest], found[stricter, *rest]) for rest in product(EFFECTS, RISKS, SANDBOXES)]
        assert ("asks", "runs") not in cell_pairs, (looser, stricter)
        assert ("runs", "asks") in cell_pairs, (looser, stricter)


@pytest.mark.parametrize(("mode", "effect"), [(m, e) for m in MODES for e in EFFECTS])
async def test_every_cell_of_the_table_holds_through_the_only_door(mode: Any, effect: Any) -> None:
    for risk, kind, says in product(RISKS, SANDBOXES, ("yes", "no", "absent")):
        expected = cells()[mode, effect, risk, kind]
        person = Person(says)
        made, ran = a_tool(*([] if effect == "nothing" else [effect]), risk=risk, sandboxed=kind != "none")
        sandbox = None if kind == "none" else a_sandbox(*(WALLS if kind == "enforced" else ()))
        approver = None if says == "absent" else person
        async with Session([made], sandbox=sandbox, policy=Policy(mode=mode), approver=approver) as session:
            result = await session.call("acts")
        cell = (mode, effect, risk, kind, says)
        failure = OUTCOME[expected, says]
        assert (None if result.ok else result.kind) == failure, cell
        assert len(ran) == (1 if failure is None else 0), cell
        assert len(person.asked) == (1 if expected == "asks" and says != "absent" else 0), cell


# what must be enforced before a tool with this effect runs unasked in mode contained; the others never do
NEEDED: dict[Effect, set[Feature]] = {
    "reads": {"file_isolation"},
    "writes": {"file_isolation"},
    "executes": {"file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges"},
}


@pytest.mark.parametrize(("effect", "missing"), [(effect, wall) for effect in NEEDED for wall in WALLS])
async def test_one_missing_wall_is_enough_to_ask_where_the_effect_needs_it(effect: Effect, missing: Feature) -> None:
    needed = missing in NEEDED[effect]
    for walls, asked in ((WALLS, 0), ([wall for wall in WALLS if wall != missing], int(needed))):
        made, ran = a_tool(effect, risk="high")
        person = Person("yes")
        async with Session([made], sandbox=a_sandbox(*walls), approver=person) as session:
            await session.call("acts")
        assert (len(person.asked), len(ran)) == (asked, 1)
    assert all(missing in request.reason for request in person.asked)


async def test_a_tool_outside_of_the_sandbox_is_confined_by_none_and_several_effects_ask_for_the_strictest() -> None:
    for effects, sandboxed, asked in (
        (["writes"], True, 0), (["writes"], False, 1),
        (["reads", "writes"], True, 0), (["writes", "reaches_out"], True, 1),
    ):  # fmt: skip
        made, _ = a_tool(*effects, risk="high", sandboxed=sandboxed)  # type: ignore[arg-type]
        person = Person("yes")
        async with Session([made], sandbox=a_sandbox(*WALLS), approver=person) as session:
            assert (await session.call("acts")).ok
        assert len(person.asked) == asked, (effects, sandboxed)


async def call(
    policy: Policy, *effects: Effect, risk: Risk = "safe", person: Person | None = None, path: str
) -> Result:
    made, _ = a_tool(*effects, risk=risk, sandboxed=False)
    async with Session([made], policy=policy, approver=person) as session:
        return await session.call("acts", {"path": path})


async def test_deny_beats_ask_beats_allow_and_all_beat_the_mode() -> None:
    every = ("acts", "acts(path=*)", "act*", "*", "effect:writes", "risk:critical")
    for rule in every:
        for mode in MODES:
            person = Person("yes")
            denied = Policy(allow=every, ask=every, deny=[rule], mode=mode)
            result = await call(denied, "writes", risk="critical", person=person, path="x")
            assert not result.ok
            assert result.kind == "rejected"
            assert repr(rule) in result.message
            assert person.asked == []
            asked = await call(
                Policy(allow=every, ask=[rule], mode=mode), "writes", risk="critical", person=person, path="x"
            )
            assert asked.ok
            assert len(person.asked) == 1
            allowed = await call(Policy(allow=[rule], mode=mode), "writes", risk="critical", path="x")
            assert allowed.ok  # without anybody to ask


async def test_a_rule_about_something_else_leaves_it_to_the_mode() -> None:
    others = ["write", "acts(path=./elsewhere/**)", "effect:spends", "risk:safe"]
    kinds: dict[Mode, str | None] = {"contained": "rejected", "open": None}
    for mode, kind in kinds.items():
        result = await call(Policy(allow=others, ask=others, deny=others, mode=mode), "writes", risk="high", path="x")
        assert (None if result.ok else result.kind) == kind
    assert (await call(Policy(deny=["effect:spends"]), "reads", path="x")).ok


async def test_what_would_be_asked_is_refused_where_nobody_answers_and_the_reason_is_told() -> None:
    result = await call(Policy(ask=["acts(path=./a)"]), path="a")
    assert not result.ok
    assert result.kind == "rejected"
    assert "'acts(path=./a)' asks" in result.message
    assert "has no approver" in result.message


async def test_a_tool_may_say_who_calls_it() -> None:
    made = Tool("acts", {"type": "object"}, lambda context, arguments: 1, callable_from=["user"])
    async with Session([made], policy=Policy(mode="open")) as session:
        result = await session.call("acts")
        assert not result.ok
        assert result.kind == "rejected"
        assert (await session.call("acts", origin="user")).ok


READING = {"type": "string", "enum": ["look", "break"], "only_reads": ["look"]}


@pytest.mark.parametrize(("risk", "mode", "word"), [("safe", "ask", "runs"), ("high", "ask", "asks")])
async def test_a_value_with_which_a_tool_only_reads_is_judged_as_reading(risk: Risk, mode: Mode, word: str) -> None:
    parameters = {"type": "object", "properties": {"action": READING}}
    tool = Tool("job", parameters, lambda context, arguments: "done", risk=risk, effects=["executes"])
    for action, expected in {"look": word, "break": "asks", None: "asks"}.items():
        person = Person("yes")
        async with Session([tool], policy=Policy(mode=mode), approver=person) as session:
            assert (await session.call("job", {"action": action} if action else {})).ok
        assert ("asks" if person.asked else "runs") == expected, action
