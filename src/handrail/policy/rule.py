"""A Rule: which calls a policy means, by tool, risk, effect or arguments, with examples that keep it honest."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, get_args

from handrail.contract.approval import Effect, Risk
from handrail.contract.driver import Feature
from handrail.contract.errors import HandrailError
from handrail.policy._shell import shell_matches
from handrail.policy.glob import check_glob, glob_matches, path_matches

FORM: Final = re.compile(r"(?P<tool>[A-Za-z0-9_*-]{1,64})(?:\((?P<inner>.*)\))?", re.DOTALL)
FIELD: Final = re.compile(r"(?P<field>[A-Za-z_][A-Za-z0-9_]*)=(?P<glob>.*)", re.DOTALL)
SHELL_TOOLS: Final = frozenset({"bash"})
SHELL_FIELDS: Final = frozenset({"command", "timeout", "idle_timeout", "background", "cwd"})
"""What may stand before `=` in a rule on a shell tool; anything else is part of the command."""
COMMAND_NAMES: Final = frozenset({"command", "cmd", "command_line"})
_PATHS: Final = "path file filename filepath dir directory folder cwd root source src destination dest dst target"
PATH_NAMES: Final = frozenset(_PATHS.split())
_LAST_WORD: Final = re.compile(r"([A-Z]?[a-z]+|[A-Z]+)$")


class ToolTraits(Protocol):
    """What a policy knows of a tool."""

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


@dataclass(frozen=True, slots=True)
class Rule:
    """`TOOL`, `TOOL(glob)` on its first required property, `TOOL(field=glob)`, `risk:high` or `effect:writes`.

    `match` and `no_match` are examples of what the glob stands against; one that comes out otherwise is refused here.
    """

    pattern: str
    match: tuple[str, ...] = ()
    no_match: tuple[str, ...] = ()
    kind: Literal["tool", "risk", "effect"] = field(init=False, repr=False)
    subject: str = field(init=False, repr=False)
    """The tool's name or glob, the risk, or the effect."""
    inner: str | None = field(init=False, repr=False)
    """What stands in the parentheses."""

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise HandrailError(f"a rule is text such as 'bash(git *)', not {type(self.pattern).__name__}")
        kind, subject, inner = _read(self.pattern)
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
            put(self, name, (examples,) if isinstance(examples, str) else tuple(examples))
            for example in getattr(self, name):
                if self._fits(example) is not wanted:
                    verb = "does not match" if wanted else "matches"
                    raise HandrailError(f"rule {self.pattern!r}: it {verb} its {name} example {example!r}")

    def is_about(self, tool: str, risk: str, effects: Collection[str]) -> bool:
        """Whether it may mean a call of this tool; with nothing in parentheses it means them all."""
        if self.kind == "tool":
            return glob_matches(self.subject, tool)
        return self.subject == risk if self.kind == "risk" else self.subject in effects

    def _fits(self, example: str) -> bool:
        """Whether an example, the bare value or `TOOL(value)`, is what the rule means."""
        if self.kind != "tool":
            return example == self.subject
        form = FORM.fullmatch(example)
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
    """Whether a glob without a tool beside it is meant for a path."""
    return glob.startswith((".", "/")) or ("/" in glob and "://" not in glob)


def is_path_name(name: str) -> bool:
    """Whether a property of this name holds a path: `path`, `file_path`, `outputDir`, `sources`."""
    last = _LAST_WORD.search(name)
    return last is not None and last[0].lower().removesuffix("s") in PATH_NAMES


def _read(pattern: str) -> tuple[Literal["tool", "risk", "effect"], str, str | None]:
    for kind, allowed in (("risk", get_args(Risk)), ("effect", get_args(Effect))):
        if pattern.startswith(f"{kind}:"):
            subject = pattern.removeprefix(f"{kind}:")
            if subject not in allowed:
                raise HandrailError(f"rule {pattern!r}: {kind} {subject!r} is none of {', '.join(allowed)}")
            return "risk" if kind == "risk" else "effect", subject, None
    form = FORM.fullmatch(pattern)
    if not form:
        raise HandrailError(
            f"rule {pattern!r} is none of TOOL, TOOL(glob), TOOL(field=glob), risk:RISK and effect:EFFECT"
        )
    return "tool", form["tool"], form["inner"]
