"""What a session may do without asking, and how much of it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Final, Literal, get_args

from handrail.contract.errors import HandrailError
from handrail.policy.rule import Rule

Mode = Literal["contained", "ask", "strict", "open"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules beat the mode; deny beats ask, ask beats allow. Where nobody can be asked, what would be asked is denied.

    contained   what the sandbox confines runs; what leaves it, and what is critical, asks
    ask         also asks before everything that writes, executes or is above safe
    strict      asks before everything above safe, and before whatever leaves the sandbox
    open        asks nothing
    """

    allow: Sequence[str | Rule] = ()
    ask: Sequence[str | Rule] = ()
    deny: Sequence[str | Rule] = ()
    mode: Mode = "contained"
    rules: "Lists" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise HandrailError(f"policy mode {self.mode!r} is none of {', '.join(get_args(Mode))}")
        lists = Lists(_rules("allow", self.allow), _rules("ask", self.ask), _rules("deny", self.deny))
        object.__setattr__(self, "rules", lists)


@dataclass(frozen=True, slots=True)
class Lists:
    """A policy's rules, read and checked."""

    allow: tuple[Rule, ...]
    ask: tuple[Rule, ...]
    deny: tuple[Rule, ...]

    def __bool__(self) -> bool:
        return bool(self.allow or self.ask or self.deny)

    def about(self, tool: str, risk: str, effects: Collection[str]) -> "Lists":
        """Those that may mean a call of this tool."""
        allow, ask, deny = (
            tuple(rule for rule in rules if rule.is_about(tool, risk, effects))
            for rules in (self.allow, self.ask, self.deny)
        )
        return Lists(allow, ask, deny)


NO_RULES: Final = Lists((), (), ())


def _rules(name: str, given: Iterable[str | Rule]) -> tuple[Rule, ...]:
    if isinstance(given, str | Rule):
        raise HandrailError(f"Policy.{name} is a list of rules; write {name}=[{given!r}]")
    return tuple(rule if isinstance(rule, Rule) else Rule(rule) for rule in given)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run, that is of one user turn. None means no limit."""

    calls: int | None = 500
    refusals: int | None = 50
    """Calls that were answered without running: they do not spend `calls`."""
    seconds: float | None = None
    """Unpaused seconds since the run began: waiting for a person does not count."""
    script_calls: int | None = 50
    script_seconds: float | None = 300

    def __post_init__(self) -> None:
        for name in ("calls", "refusals", "seconds", "script_calls", "script_seconds"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or isnan(value) or value < 0):
                raise HandrailError(f"Budget.{name} is {value!r}; give a number from 0 up, or None for no limit")
