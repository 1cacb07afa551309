"""Judge a call by a policy: allow, ask or deny, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from handrail.contract.driver import Feature, Report
from handrail.policy.match import Place, matches
from handrail.policy.policy import Lists, Mode, Policy
from handrail.policy.rule import Rule, ToolTraits

if TYPE_CHECKING:
    from handrail.schema.repair import Repair

CONFINES: Final[dict[str, frozenset[Feature]]] = {
    "reads": frozenset({"file_isolation"}),
    "writes": frozenset({"file_isolation"}),
    "executes": frozenset(
        {"file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges"}
    ),
}
"""What a sandbox must enforce so that an effect stays inside it. Other effects never do."""
HARMLESS: Final = frozenset({"reads"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says why somebody is asked, or why it is denied."""

    action: Literal["allow", "ask", "deny"]
    reason: str = ""


ALLOWED: Final = Verdict("allow")
DOUBT: Final = Verdict("ask", "the arguments were repaired in a way that changed what they mean")


def doubtful(tool: ToolTraits, repairs: "Sequence[Repair]") -> "list[Repair]":
    """The repairs that changed a value by a guess, on a tool with effects: it is not run on them as it is."""
    if tool.effects <= HARMLESS:  # type: ignore[operator]
        return []
    return [repair for repair in repairs if repair.doubtful]


def confined(tool: ToolTraits, report: Report | None) -> bool:
    """Whether everything this tool does stays inside the sandbox."""
    if report is None or not tool.needs or not tool.effects or set(tool.effects) - CONFINES.keys():
        return False
    return all(CONFINES[effect] <= report.features for effect in tool.effects)


def by_mode(mode: Mode, tool: ToolTraits, report: Report | None) -> Verdict:
    """What the mode says where no rule speaks."""
    if mode == "open":
        return ALLOWED
    harmless = tool.effects <= HARMLESS  # type: ignore[operator]
    if tool.risk == "safe" and harmless:
        return ALLOWED
    if tool.risk == "critical":
        return Verdict("ask", f"{tool.name} is critical")
    if mode == "strict" and tool.risk != "safe":
        return Verdict("ask", f"{tool.name} has risk {tool.risk}, and the policy is strict")
    if mode == "ask":
        what = f"has risk {tool.risk}" if harmless else f"does this: {', '.join(sorted(tool.effects - HARMLESS))}"  # type: ignore[operator]
        return Verdict("ask", f"{tool.name} {what}")
    if confined(tool, report):
        return ALLOWED
    return Verdict("ask", f"{tool.name} {_leaves(tool, report)}")


def _leaves(tool: ToolTraits, report: Report | None) -> str:
    if not tool.effects:
        return f"has risk {tool.risk} and does not say what it does"
    effects = ", ".join(sorted(tool.effects))
    if report is None or not tool.needs:
        return f"({effects}) is not confined by a sandbox"
    missing = sorted(set().union(*(CONFINES.get(effect, frozenset()) for effect in tool.effects)) - report.features)
    if missing:
        return f"({effects}) is not confined here: the {report.driver} sandbox does not enforce {', '.join(missing)}"
    return f"({effects}) leaves the sandbox"


async def judge(
    policy: Policy,
    remembered: Sequence[Rule],
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    places: Iterable[Place],
    report: Report | None,
    about: Lists | None = None,
) -> Verdict:
    """Deny beats ask, ask beats allow, and all of them beat the mode; what a person remembered beats ask.

    Where it cannot be told whether a rule means the call, a person is asked; in mode open, only about deny and ask.
    `about` are those of the policy's rules that are about this tool, where they are known.
    """
    rules, mode = policy.rules if about is None else about, policy.mode
    unclear: list[Rule] = []

    async def first(
        among: Sequence[Rule], *, forbids: bool = False, doubts: bool = True, exact: bool = False
    ) -> Rule | None:
        for rule in among:
            found = await matches(rule, tool, arguments, places, forbids=forbids, exact=exact)
            if found:
                return rule
            if found is None and doubts:
                unclear.append(rule)
        return None

    if rule := await first(rules.deny, forbids=True):
        return Verdict("deny", f"the rule {rule.pattern!r} forbids it")
    if await first(remembered, doubts=False, exact=True):  # a person saw this very value
        return ALLOWED
    if rule := await first(rules.ask, forbids=True):
        return Verdict("ask", f"the rule {rule.pattern!r} asks")
    if not unclear and await first(rules.allow, doubts=mode != "open"):
        return ALLOWED
    return _unclear(unclear[0]) if unclear else by_mode(mode, tool, report)


def _unclear(rule: Rule) -> Verdict:
    return Verdict(
        "ask",
        f"whether the rule {rule.pattern!r} means it cannot be told: the line is more than one simple command, "
        "the path cannot be followed, or the value is filled in later",
    )
