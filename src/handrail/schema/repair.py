"""Repair values by their schema, only where there is exactly one meaning; what fits already is never touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from handrail.schema import coerce
from handrail.schema.coerce import Option
from handrail.schema.consequential import is_consequential
from handrail.schema.parse import NotJson, canonical, parse
from handrail.schema.places import ROOT, Place, View, takes
from handrail.schema.syntax import SPELLINGS, Note, read_nearly
from handrail.schema.validate import Validator
from handrail.schema.words import BLANK, declared_keys, dotted, fold, show

MOST_STEPS: Final = 50_000
"""Values that are looked at; beyond it the call is refused."""
MOST_REPAIRS: Final = 1_000
WRAPPERS: Final = ("properties", "arguments", "parameters", "args", "input")
LOUD: Final = frozenset(
    {
        *SPELLINGS,
        "key respelled", "word for true or false", "number as text", "put into a list", "taken out of its list",
    }
)  # fmt: skip
"""Rules that the model is warned of."""
NO: Final = object()
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that preflight changed."""

    path: str
    rule: str
    before: Any
    after: Any
    changed_value: bool
    """Whether the value itself is another one, not only its spelling or wrapping."""
    consequential: bool = False
    """Whether it happened in a path, command, content, id or amount."""

    @property
    def loud(self) -> bool:
        """Whether the model is warned of it."""
        return self.rule in LOUD

    def __str__(self) -> str:
        where = f"`{self.path}`" if self.path else "the arguments"
        return f"{where} repaired ({self.rule}): {show(self.before)} → {show(self.after)}"


class GaveUp(Exception):
    """The value is too large to be repaired in bounded time."""


class Repairer:
    """One attempt to repair one call."""

    def __init__(self, validator: Validator, *, own: bool, text: str | None) -> None:
        self.validator = validator
        self.root = validator.schema
        self.own = own
        self.written = coerce.writer(text)
        self.repairs: list[Repair] = []
        self.steps = 0
        self.seen: Any = None
        """The arguments without their wrapping, values as they were sent."""

    def note(self, rule: str, path: Path, before: Any, after: Any, *, changed: bool) -> None:
        """Write a repair down; large values are shown, not kept."""
        if len(self.repairs) >= MOST_REPAIRS:
            raise GaveUp
        weighty = is_consequential(self.root, path)
        self.repairs.append(Repair(dotted(path), rule, _kept(before), _kept(after), changed, weighty))

    def take_notes(self, notes: list[Note], path: Path = ()) -> None:
        """Write down what was done to a text."""
        for note in notes:
            self.note(note.rule, (*path, *note.path), note.before, note.after, changed=note.changed_value)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Every declared key, folded."""
        return declared_keys(self.root)

    def whole(self, value: Any) -> Any:
        """Repaired arguments, or NO."""
        self.seen = value
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            self.note("taken out of its list", (), value, value[0], changed=False)
            value = value[0]
        if not isinstance(value, dict):
            return NO
        value = self.seen = self._unwrap(value)
        return value if self.validator.is_valid(value) else self.fix(ROOT, value, ())

    def _unwrap(self, value: dict[str, Any]) -> dict[str, Any]:
        declared = self.validator.view(ROOT).properties
        if len(value) != 1 or (name := next(iter(value))) not in WRAPPERS or name in declared:
            return value
        inner = value[name]
        if isinstance(inner, str):
            inner = _strictly(inner)
        if not isinstance(inner, dict) or not declared.keys() & inner.keys():
            return value
        self.note("wrapper taken off", (), {name: "…"}, "…", changed=False)
        return inner

    def fix(self, place: Place, value: Any, path: Path, *, in_list: bool = False, chosen: Place = ()) -> Any:
        """The value as it fits its place, or NO. `chosen` are the unions that were decided already."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise GaveUp
        if self.validator.fits(place, value):
            return value
        view = self.validator.view(place)
        mark = len(self.repairs)
        found = self._directly(place, view, value, path, in_list=in_list)
        if found is not NO and self.validator.fits(place, found):
            return found
        del self.repairs[mark:]
        for union, group in view.branches:
            if union not in chosen:
                return self._by_branch(place, group, value, path, in_list=in_list, chosen=(*chosen, union))
        return NO

    def _by_branch(self, place: Place, group: Place, value: Any, path: Path, *, in_list: bool, chosen: Place) -> Any:
        """Take a branch only when exactly one accepts, or when all that accept mean the same."""
        mark = len(self.repairs)
        accepted: dict[str, tuple[Any, list[Repair]]] = {}
        for branch in group:
            found = self.fix((branch,), value, path, in_list=in_list, chosen=chosen)
            made = self.repairs[mark:]
            del self.repairs[mark:]
            if found is not NO and self.validator.fits(place, found):
                accepted[canonical(found)] = (found, made)
        if len(accepted) != 1:
            return NO
        ((found, made),) = accepted.values()
        self.repairs.extend(made)
        return found

    def _directly(self, place: Place, view: View, value: Any, path: Path, *, in_list: bool) -> Any:
        kinds = view.kinds
        if isinstance(value, dict):
            return self._object(place, view, value, path) if kinds is None or "object" in kinds else NO
        if isinstance(value, list):
            if kinds is None or "array" in kinds:
                return self._list(view, value, path)
            return NO if in_list or len(value) != 1 else self._only(place, value, path)
        return self._scalar(place, view, value, path, in_list=in_list)

    def _object(self, place: Place, view: View, value: dict[str, Any], path: Path) -> Any:
        declared = view.properties
        value = self._respelled(view, declared, value, path)
        value = self._without_fillers(view, declared, value, path)
        if self.validator.fits(place, value):
            return value
        others = view.others
        found: dict[str, Any] = {}
        for name, held in value.items():
            inner = declared.get(name, others)
            found[name] = self.fix(inner, held, (*path, name)) if inner else held
            if found[name] is NO:
                return NO
        return found

    def _respelled(
        self, view: View, declared: Mapping[str, Place], value: dict[str, Any], path: Path
    ) -> dict[str, Any]:
        unknown = [name for name in value if name not in declared]
        if not unknown or view.patterned or view.others:
            return value
        meant: dict[str, list[str]] = {}
        for name in declared:
            meant.setdefault(fold(name), []).append(name)
        sent: dict[str, list[str]] = {}
        for name in unknown:
            sent.setdefault(fold(name), []).append(name)
        names: dict[str, str] = {}
        for key, written in sent.items():
            choices = meant.get(key, [])
            if len(choices) == 1 and len(written) == 1 and choices[0] not in value:
                names[written[0]] = choices[0]
                self.note("key respelled", (*path, choices[0]), written[0], choices[0], changed=False)
        return {names.get(name, name): held for name, held in value.items()} if names else value

    def _without_fillers(
        self, view: View, declared: Mapping[str, Place], value: dict[str, Any], path: Path
    ) -> dict[str, Any]:
        required = set(view.required)
        kept: dict[str, Any] = {}
        for name, held in value.items():
            inner = declared.get(name)
            if inner is None or name in required or not self._is_filler(inner, held):
                kept[name] = held
            else:
                rule = "null left out" if held is None else "blank left out"
                self.note(rule, (*path, name), held, None, changed=False)
        return kept

    def _is_filler(self, place: Place, held: Any) -> bool:
        if held is not None and not (isinstance(held, str) and not held.strip()):
            return False
        if self.validator.fits(place, held):
            return False
        if held is None:
            return True
        return self._is_choice(place) or (self.own and held == "" and not keeps_blank(self.validator.view(place)))

    def _is_choice(self, place: Place, depth: int = 0) -> bool:
        """Whether no text stands here but the members of an enum."""
        view = self.validator.view(place)
        if view.members is not None or not takes(self.root, place, "string"):
            return True
        return depth < 4 and any(
            all(self._is_choice((inner,), depth + 1) for inner in group) for _, group in view.branches
        )

    def _list(self, view: View, value: list[Any], path: Path) -> Any:
        found: list[Any] = []
        for at, held in enumerate(value):
            inner = view.item(at)
            fixed = self.fix(inner, held, (*path, at), in_list=True) if inner else held
            if fixed is NO:
                return NO
            found.append(fixed)
        return found

    def _only(self, place: Place, value: list[Any], path: Path) -> Any:
        mark = len(self.repairs)
        self.note("taken out of its list", path, value, value[0], changed=True)
        found = self.fix(place, value[0], path, in_list=True)
        if found is NO:
            del self.repairs[mark:]
        return found

    def _scalar(self, place: Place, view: View, value: Any, path: Path, *, in_list: bool) -> Any:
        top = len(path) == 1 and not in_list
        options = list(coerce.options(view, value, self.written))
        if isinstance(value, str):
            options += self._from_text(view, value)
        accepted: dict[str, tuple[Any, Option, list[Repair]]] = {}
        if top and coerce.may_be_listed(view, value):
            options.append(Option([value], "put into a list", changed=True))
        mark = len(self.repairs)
        for option in options:
            found = option.value
            if isinstance(found, list | dict):
                found = self.fix(place, found, path, in_list=in_list)
            made = self.repairs[mark:]
            del self.repairs[mark:]
            if found is not NO and self.validator.fits(place, found):
                accepted[canonical(found)] = (found, option, made)
        if len(accepted) != 1:
            return NO
        ((found, option, made),) = accepted.values()
        self.take_notes(option.notes, path)
        if option.rule:
            self.note(option.rule, path, value, found, changed=option.changed)
        self.repairs.extend(made)
        return found

    def _from_text(self, view: View, value: str) -> list[Option]:
        """A list or object that was sent as text."""
        kinds = view.kinds
        begins = value.lstrip(BLANK)[:1]
        wanted = {"{": "object", "[": "array", "(": "array", "`": "either"}.get(begins)
        if wanted is None or kinds is None or "string" in kinds or not kinds & {"object", "array"}:
            return []
        strict = _strictly(value)
        if isinstance(strict, list | dict):
            return [Option(strict, "JSON text read", changed=False)]
        try:
            found, notes = read_nearly(value, self.keys)
        except (NotJson, RecursionError):
            return []
        return [Option(found, "JSON text read", changed=False, notes=notes)]


def keeps_blank(view: View) -> bool:
    """Whether a blank string means something here: it says so, or the blank is one of its members."""
    return view.word("blank") == "keep" or "" in (view.members or ())


def _strictly(text: str) -> Any:
    try:
        return parse(text)
    except NotJson:
        return NO


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 500 else show(value, 500)
    return show(value, 500) if isinstance(value, dict | list) and len(canonical(value)) > 500 else value
