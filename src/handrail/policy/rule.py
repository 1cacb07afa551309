"""A Rule: which calls a policy is about, by tool, risk, effect or arguments, with examples that are checked."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, get_args

from handrail.contract.approval import Effect, Risk
from handrail.contract.driver import Feature
from handrail.contract.errors import HandrailError
from handrail.misuse import explains_misuse, refuse, shown
from handrail.policy._shell import shell_matches
from handrail.schema.globs import check_glob, glob_matches, path_matches

PATTERN: Final = re.compile(r"(?P<tool>[A-Za-z0-9_*-]{1,64})(?:\((?P<inner>.*)\))?", re.DOTALL)
FIELD: Final = re.compile(r"(?P<field>[A-Za-z_][A-Za-z0-9_]*)=(?P<glob>.*)", re.DOTALL)
SHELL_TOOLS: Final = frozenset({"bash"})
SHELL_FIELDS: Final = frozenset({"command", "timeout", "idle_timeout", "background", "cwd"})
"""Properties that a rule on a shell tool may name before `=`; anything else there is part of the command."""
COMMAND_NAMES: Final = frozenset({"command", "cmd", "command_line"})
_PATHS: Final = "path file filename filepath dir directory folder cwd root source src destination dest dst target"
PATH_NAMES: Final = frozenset(_PATHS.split())
_LAST_WORD: Final = re.compile(r"([A-Z]?[a-z]+|[A-Z]+)$")


class ToolTraits(Protocol):
    """The part of a tool that a policy reads."""

    @property
    def name(self) -> str: ...
    @property
    def risk(self) -> Risk: ...
    @property
    def effects(self) -> Collection[Effect]: ...
    @property
    def needs(self) -> Collection[Feature]: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


@explains_misuse
@dataclass(frozen=True, slots=True)
class Rule:
    """`TOOL`, `TOOL(glob)` on its first required property, `TOOL(field=glob)`, `risk:high` or `effect:writes`.

    `match` and `no_match` are example values; creating the rule fails if one of them comes out otherwise.

    Example:
        ```python
        rule = Rule("bash(git *)", match=["git status"], no_match=["rm x"])
        print(Policy(allow=[rule]).allow[0].pattern)
        #> bash(git *)
        ```
    """

    pattern: str
    match: tuple[str, ...] = ()
    no_match: tuple[str, ...] = ()
    kind: Literal["tool", "risk", "effect"] = field(init=False, repr=False)
    subject: str = field(init=False, repr=False)
    """The tool's name or glob, the risk, or the effect."""
    inner: str | None = field(init=False, repr=False)
    """The text in the parentheses."""

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            name = getattr(self.pattern, "name", None)
            write = repr(name) if isinstance(name, str) else "its pattern"
            raise HandrailError(f"a rule is a string such as 'bash(git *)', not {shown(self.pattern)}; write {write}")
        kind, subject, inner = _parse(self.pattern)
        try:
            check_glob(inner or "")
        except ValueError as error:
            raise HandrailError(f"rule {self.pattern!r}: {error}") from None
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "subject", subject)
        put(self, "inner", inner)
        for name, wanted in (("match", True), ("no_match", False)):
            examples = getattr(self, name)
            if not isinstance(examples, Iterable):
                refuse(f"Rule.{name}", examples, f"a list of examples: {name}=['git status']")
            put(self, name, (examples,) if isinstance(examples, str) else tuple(examples))
            for example in getattr(self, name):
                if self._covers(example) is not wanted:
                    verb = "does not match" if wanted else "matches"
                    raise HandrailError(f"rule {self.pattern!r} {verb} its {name} example {example!r}")

    def is_about(self, tool: ToolTraits) -> bool:
        """Whether the rule may apply to a call of this tool; without parentheses it applies to every call."""
        if self.kind == "tool":
            return glob_matches(self.subject, tool.name)
        return self.subject == tool.risk if self.kind == "risk" else self.subject in tool.effects

    def _covers(self, example: str) -> bool:
        """Whether the rule applies to an example, which is a bare value or `TOOL(value)`."""
        if self.kind != "tool":
            return example == self.subject
        form = PATTERN.fullmatch(example)
        if form and glob_matches(self.subject, form["tool"]) and (form["inner"] is not None or self.inner is None):
            example = form["inner"] or ""
        elif self.inner is None:
            return glob_matches(self.subject, example)
        if self.inner is None:
            return True
        named = FIELD.fullmatch(self.inner)
        if named and self.subject in SHELL_TOOLS and named["field"] not in SHELL_FIELDS:
            named = None
        field, glob = (named["field"], named["glob"]) if named else ("", self.inner)
        example = example.removeprefix(f"{field}=") if named else example
        if field in COMMAND_NAMES or (not named and self.subject in SHELL_TOOLS):
            return shell_matches(glob, example) is True
        if is_path_name(field) or looks_like_path(glob):
            return path_matches(glob, example, "/")
        return glob_matches(glob, example)


def looks_like_path(glob: str) -> bool:
    """Whether a glob is meant for a path, as far as the glob alone tells."""
    return glob.startswith((".", "/")) or ("/" in glob and "://" not in glob)


@lru_cache(maxsize=1024)
def is_path_name(name: str) -> bool:
    """Whether a property of this name holds a path: `path`, `file_path`, `outputDir`, `sources`."""
    last = _LAST_WORD.search(name)
    return last is not None and last[0].lower().removesuffix("s") in PATH_NAMES


def _parse(pattern: str) -> tuple[Literal["tool", "risk", "effect"], str, str | None]:
    for kind, allowed in (("risk", get_args(Risk)), ("effect", get_args(Effect))):
        if pattern.startswith(f"{kind}:"):
            subject = pattern.removeprefix(f"{kind}:")
            if subject not in allowed:
                raise HandrailError(f"rule {pattern!r}: {kind} {subject!r} is not one of {', '.join(allowed)}")
            return "risk" if kind == "risk" else "effect", subject, None
    form = PATTERN.fullmatch(pattern)
    if not form:
        raise HandrailError(
            f"rule {pattern!r} is not of the form TOOL, TOOL(glob), TOOL(field=glob), risk:RISK or effect:EFFECT"
        )
    return "tool", form["tool"], form["inner"]
