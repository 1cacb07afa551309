"""A Policy: what a session may do without asking."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from handrail.contract.errors import HandrailError
from handrail.misuse import close_names, explains_misuse, refuse
from handrail.policy.rule import Rule, ToolTraits

Mode = Literal["contained", "ask", "strict", "open"]
Scripts = Literal["each", "whole"]


@explains_misuse
@dataclass(frozen=True, slots=True)
class Policy:
    """Rules beat the mode; deny beats ask, ask beats allow. Where nobody can be asked, asking means denying.

    contained   runs what the sandbox confines; asks before anything that leaves it or is critical
    ask         also asks before everything that writes, executes or is above safe
    strict      also asks before a safe tool reads what no sandbox confines
    open        never asks

    Example:
        ```python
        policy = Policy(mode="ask", allow=["bash(git status)"], deny=["bash(rm *)"])
        async with open_sandbox("host", allow_weaker=True) as sandbox:
            async with Session(builtin_tools(), sandbox=sandbox, policy=policy, approver=deny_all) as session:
                print((await session.call("bash", {"command": "rm -rf ."})).kind)
                print((await session.call("bash", {"command": "ls"})).kind)
        #> rejected
        #> user_denied
        ```
    """

    allow: Sequence[str | Rule] = ()
    ask: Sequence[str | Rule] = ()
    deny: Sequence[str | Rule] = ()
    mode: Mode = "contained"
    scripts: Scripts = "each"
    """Whether each call of a script asks by itself, or one approval covers the whole script and the tools it names."""
    rules: "RuleLists" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise HandrailError(f"policy mode {self.mode!r} is not one of {', '.join(get_args(Mode))}")
        if self.scripts not in get_args(Scripts):
            raise HandrailError(f"policy scripts {self.scripts!r} is not one of {', '.join(get_args(Scripts))}")
        rules = RuleLists(_parse("allow", self.allow), _parse("ask", self.ask), _parse("deny", self.deny))
        object.__setattr__(self, "rules", rules)


@dataclass(frozen=True, slots=True)
class RuleLists:
    """The rules of a policy, parsed and checked."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.allow or self.ask or self.deny)

    def __iter__(self) -> Iterator[Rule]:
        yield from (*self.allow, *self.ask, *self.deny)

    def about(self, tool: ToolTraits) -> "RuleLists":
        """The rules that may apply to a call of this tool."""
        allow, ask, deny = (
            tuple(rule for rule in rules if rule.is_about(tool)) for rules in (self.allow, self.ask, self.deny)
        )
        return RuleLists(allow, ask, deny)


def _parse(name: str, given: Iterable[str | Rule]) -> tuple[Rule, ...]:
    if isinstance(given, str) and given in get_args(Mode):
        refuse(f"Policy.{name}", given, f"Policy(mode={given!r}), or {name}=[…] with rules such as 'bash(git *)'")
    if isinstance(given, str | Rule):
        raise HandrailError(f"Policy.{name} is a list of rules; write {name}=[{given!r}]")
    if not isinstance(given, Iterable):
        refuse(f"Policy.{name}", given, f"a list of rules: {name}=['bash(git *)']")
    return tuple(rule if isinstance(rule, Rule) else Rule(rule) for rule in given)


def check_tool_names(rules: RuleLists, known: Collection[str], *, warn: Callable[[str], object] | None = None) -> None:
    """Raise HandrailError for a rule about a tool that does not exist, or call `warn` with the message instead.

    A misspelt deny would otherwise forbid nothing. A name with `*` may be meant for tools that are added later.
    """
    for rule in rules:
        if rule.kind != "tool" or "*" in rule.subject or rule.subject in known:
            continue
        near = close_names(rule.subject, sorted(known))
        advice = f"did you mean {near[0]!r}?" if near else f"the tools are {', '.join(sorted(known))}."
        message = (
            f"rule {rule.pattern!r}: there is no tool {rule.subject!r}; {advice} "
            f"For a tool that is added later, write a pattern such as {rule.subject + '*'!r}."
        )
        if warn is None:
            raise HandrailError(message)
        warn(message)
