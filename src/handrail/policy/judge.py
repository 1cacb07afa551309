"""Judge a call by a policy: allow, ask or deny, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from handrail.contract.driver import Feature, Report
from handrail.policy._match import PathRoots, cover_together, matches
from handrail.policy.policy import Mode, RuleLists
from handrail.policy.rule import Rule, ToolTraits

if TYPE_CHECKING:
    from handrail.sandbox.sandbox import Sandbox
    from handrail.schema.repair import Repair

CONFINED_BY: Final[dict[str, frozenset[Feature]]] = {
    "reads": frozenset({"file_isolation"}),
    "writes": frozenset({"file_isolation"}),
    "executes": frozenset(
        {"file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges"}
    ),
}
"""Features that a sandbox must enforce so that an effect stays inside it. Other effects always leave it."""
HARMLESS: Final = frozenset({"reads"})
"""Effects that change nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A policy's verdict on one call."""

    action: Literal["allow", "ask", "deny"]
    reason: str = ""
    """Reason for asking or denying."""


ALLOWED: Final = Verdict("allow")
DOUBT: Final = Verdict("ask", "the arguments were repaired in a way that changed what they mean")


async def judge(
    mode: Mode,
    rules: RuleLists,
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    sandbox: "Sandbox | None",
    remembered: Sequence[Rule] = (),
) -> Verdict:
    """Judge a call: deny beats ask, ask beats allow, rules beat the mode. A remembered rule beats ask, never deny.

    Where it is unclear whether a rule applies, a person is asked; in mode open, only about deny and ask rules.
    """
    roots = PathRoots(tool, sandbox)
    unclear: list[Rule] = []

    async def first(
        among: Sequence[Rule], *, forbids: bool = False, doubts: bool = True, exact: bool = False
    ) -> Rule | None:
        for rule in among:
            applies = await matches(rule, tool, arguments, roots, forbids=forbids, exact=exact)
            if applies:
                return rule
            if applies is None and doubts:
                unclear.append(rule)
        return None

    if rules.deny and (rule := await first(rules.deny, forbids=True)):
        return Verdict("deny", f"the rule {rule.pattern!r} forbids it")
    if remembered and await first(remembered, doubts=False, exact=True):  # a person has seen this very value
        return ALLOWED
    if rules.ask and (rule := await first(rules.ask, forbids=True)):
        return Verdict("ask", f"the rule {rule.pattern!r} asks for approval")
    if not unclear and rules.allow:
        if cover_together(rules.allow, tool, arguments) or await first(rules.allow, doubts=mode != "open"):
            return ALLOWED
    return _unclear(unclear[0]) if unclear else by_mode(mode, tool, arguments, sandbox)


def _unclear(rule: Rule) -> Verdict:
    return Verdict(
        "ask",
        f"it is unclear whether the rule {rule.pattern!r} applies: a part of the line cannot be read, "
        "the path cannot be followed, or the value is filled in later",
    )


def by_mode(mode: Mode, tool: ToolTraits, arguments: Mapping[str, Any], sandbox: "Sandbox | None") -> Verdict:
    """The mode's verdict if no rule applies."""
    if mode == "open":
        return ALLOWED
    harmless = tool.effects <= HARMLESS or _only_reads(tool, arguments)  # type: ignore[operator]
    report = None if sandbox is None else sandbox.report
    if tool.risk == "safe" and harmless:
        if mode == "strict" and tool.effects and not _confines("reads", tool, report):
            return Verdict("ask", f"{tool.name} {_leaves(tool, report)}, and the policy is strict")
        return ALLOWED
    if tool.risk == "critical":
        return Verdict("ask", f"{tool.name} is critical")
    if mode in ("ask", "strict"):
        effects = ", ".join(sorted(tool.effects - HARMLESS))  # type: ignore[operator]
        return Verdict("ask", f"{tool.name} has {f'risk {tool.risk}' if harmless else f'effects: {effects}'}")
    if confined(tool, report):
        return ALLOWED
    return Verdict("ask", f"{tool.name} {_leaves(tool, report)}")


def _only_reads(tool: ToolTraits, arguments: Mapping[str, Any]) -> bool:
    """Whether a property has a value with which, by its schema, the tool changes nothing."""
    properties = tool.parameters.get("properties", {})
    return any(
        arguments[name] in properties[name].get("only_reads", ())
        for name in arguments.keys() & properties.keys()
        if isinstance(properties[name], Mapping)
    )


def confined(tool: ToolTraits, report: Report | None) -> bool:
    """Whether everything this tool does stays inside the sandbox."""
    return bool(tool.effects) and all(_confines(effect, tool, report) for effect in tool.effects)


def _confines(effect: str, tool: ToolTraits, report: Report | None) -> bool:
    """Whether one effect of this tool stays inside the sandbox. A tool without `needs` runs outside of it."""
    walls = CONFINED_BY.get(effect)
    return report is not None and bool(tool.needs) and walls is not None and walls <= report.features


def _leaves(tool: ToolTraits, report: Report | None) -> str:
    if not tool.effects:
        return f"has risk {tool.risk} and does not declare its effects"
    effects = ", ".join(sorted(tool.effects))
    if report is None or not tool.needs:
        return f"({effects}) is not confined by a sandbox"
    missing = sorted(set().union(*(CONFINED_BY.get(effect, frozenset()) for effect in tool.effects)) - report.features)
    if missing:
        return f"({effects}) is not confined here: the {report.driver} sandbox does not enforce {', '.join(missing)}"
    return f"({effects}) leaves the sandbox"


def doubtful(tool: ToolTraits, repairs: "Sequence[Repair]") -> "list[Repair]":
    """The repairs that changed a value by a guess. A tool with effects does not run on them unasked."""
    if tool.effects <= HARMLESS:  # type: ignore[operator]
        return []
    return [repair for repair in repairs if repair.doubtful]
