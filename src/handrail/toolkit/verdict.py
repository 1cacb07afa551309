"""Judge a call by a policy: allow, ask or deny, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from handrail.contract.driver import Feature, Report
from handrail.toolkit.matching import Place, matches
from handrail.toolkit.policy import Mode, Policy
from handrail.toolkit.rule import Rule
from handrail.toolkit.tool import Tool

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
UNCLEAR: Final = Verdict("ask", "a rule is about this command, and the line is more than one simple command")


def confined(tool: Tool, report: Report | None) -> bool:
    """Whether everything this tool does stays inside the sandbox."""
    if report is None or not tool.needs or not tool.effects <= CONFINES.keys():  # type: ignore[operator]
        return False
    return all(CONFINES[effect] <= report.features for effect in tool.effects)


def by_mode(mode: Mode, tool: Tool, report: Report | None) -> Verdict:
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


def _leaves(tool: Tool, report: Report | None) -> str:
    effects = ", ".join(sorted(tool.effects)) or f"risk {tool.risk}"
    if report is None or not tool.needs:
        return f"({effects}) is not confined by a sandbox"
    missing = sorted(set().union(*(CONFINES.get(effect, frozenset()) for effect in tool.effects)) - report.features)
    if missing:
        return f"({effects}) is not confined here: the {report.driver} sandbox does not enforce {', '.join(missing)}"
    return f"({effects}) leaves the sandbox"


async def judge(
    policy: Policy,
    remembered: Sequence[Rule],
    tool: Tool,
    arguments: Mapping[str, Any],
    place: Place,
    report: Report | None,
) -> Verdict:
    """Deny beats ask, ask beats allow, and all of them beat the mode; what a person remembered beats ask."""

    unclear = False

    async def first(rules: Sequence[Rule], *, forbids: bool) -> Rule | None:
        nonlocal unclear
        for rule in rules:
            found = await matches(rule, tool, arguments, place, forbids=forbids)
            if found:
                return rule
            unclear |= found is None
        return None

    if rule := await first(policy.rules.deny, forbids=True):
        return Verdict("deny", f"the rule {rule.pattern!r} forbids it")
    if not unclear and await first(remembered, forbids=False):
        return ALLOWED
    if rule := await first(policy.rules.ask, forbids=True):
        return Verdict("ask", f"the rule {rule.pattern!r} asks")
    if not unclear and await first(policy.rules.allow, forbids=False):
        return ALLOWED
    return UNCLEAR if unclear else by_mode(policy.mode, tool, report)
