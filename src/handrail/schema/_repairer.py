"""Repair values by their schema, only where there is exactly one meaning; what fits already is never touched."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from handrail.schema import _keys as keys
from handrail.schema import repair as scalars
from handrail.schema._nearly_json import Note, read_nearly
from handrail.schema.describe import dotted, show
from handrail.schema.navigate import ROOT, Place, View, only_members, takes
from handrail.schema.parse import BLANK, NotJson, canonical, parse
from handrail.schema.repair import LOUD, Option, Repair
from handrail.schema.validate import Validator

MOST_STEPS: Final = 50_000
"""Values that are looked at; beyond it the call is refused."""
MOST_REPAIRS: Final = 1_000
NO: Final = object()
Path = tuple[str | int, ...]


class GaveUp(Exception):
    """The value is too large to be repaired in bounded time."""


class Consequences:
    """What a schema says of its fields; each path is looked up once."""

    def __init__(self, view: Callable[[Place], View]) -> None:
        self._view = view
        self._known: dict[Path, tuple[Place, bool]] = {(): (ROOT, True)}

    def matters(self, path: Path) -> bool:
        """What is said of the field, else of the one around it, else yes; branches that disagree mean yes."""
        return self._look(path)[1]

    def _look(self, path: Path) -> tuple[Place, bool]:
        found = self._known.get(path)
        if found is None:
            place, answer = self._look(path[:-1])
            place = self._inside(place, path[-1])
            schemas = self._view(place).schemas
            said = [schema["consequential"] is not False for _, schema in schemas if "consequential" in schema]
            found = self._known[path] = (place, any(said) if said else answer)
        return found

    def _inside(self, place: Place, step: str | int) -> Place:
        """The places of a field in every branch of the one around it."""
        found: list[str] = []
        waiting, seen = [place], set(place)
        while waiting:
            here = self._view(waiting.pop())
            found += here.item(step) if isinstance(step, int) else here.properties.get(step, here.others)
            more = tuple(inner for _, group in here.branches for inner in group if inner not in seen)
            seen.update(more)
            waiting += [more] if more else []
        return tuple(dict.fromkeys(found))


class Repairer:
    """One attempt to repair one call."""

    def __init__(self, validator: Validator, *, own: bool, text: str | None) -> None:
        self.validator = validator
        self.root = validator.schema
        self.own = own
        self.text = text
        self.written = scalars.writer(text)
        self.consequences = Consequences(validator.view)
        self.repairs: list[Repair] = []
        self.steps = 0
        self.seen: Any = None
        """The arguments without their wrapping, values as they were sent."""

    def note(self, rule: str, path: Path, before: Any, after: Any, *, changed: bool) -> None:
        """Write a repair down; large values are shown, not kept."""
        if len(self.repairs) >= MOST_REPAIRS:
            raise GaveUp
        weighty = not changed or rule not in LOUD or self.consequences.matters(path)
        self.repairs.append(Repair(dotted(path), rule, _kept(before), _kept(after), changed, weighty))

    def take_notes(self, notes: list[Note], path: Path = ()) -> None:
        """Write down what was done to a text."""
        for note in notes:
            self.note(note.rule, (*path, *note.path), note.before, note.after, changed=note.changed_value)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Every declared key, folded."""
        return keys.declared_keys(self.root)

    def whole(self, value: Any) -> Any:
        """Repaired arguments, or NO."""
        self.seen = value
        if isinstance(value, list) and len(value) == 1 and self._is_whole(value[0]):
            self.note("taken out of its list", (), value, value[0], changed=False)
            value = value[0]
        if not isinstance(value, dict):
            return NO
        inner = keys.unwrapped(self.validator, self.validator.view(ROOT), value)
        if inner is not None:
            self.unwrap(value, ())
            value = inner
        self.seen = value
        return value if self.validator.is_valid(value) else self.fix(ROOT, value, ())

    def _is_whole(self, value: Any) -> bool:
        """Whether an object in a list is the arguments, and not one pair of key and value."""
        view = self.validator.view(ROOT)
        return isinstance(value, dict) and (
            not value
            or keys.holds_declared(self.validator, view, value)
            or keys.unwrapped(self.validator, view, value) is not None
        )

    def unwrap(self, value: dict[str, Any], path: Path) -> None:
        """Note a wrapper; one that the schema lets pass, or that is not around the whole, is a warning."""
        quiet = not path and not self.validator.view(ROOT).silent
        rule = "wrapper taken off" if quiet else "undeclared wrapper taken off"
        self.note(rule, path, {next(iter(value)): "…"}, "…", changed=False)

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
        if found is NO or not self.validator.fits(place, found):
            del self.repairs[mark:]
            unions = [(union, group) for union, group in view.branches if union not in chosen]
            if not unions:
                return NO
            union, group = unions[0]
            found = self._by_branch(place, group, value, path, in_list=in_list, chosen=(*chosen, union))
        if found is not NO and self._is_decided_by_spelling(view, value, path, self.repairs[mark:]):
            del self.repairs[mark:]
            return NO
        return found

    def _is_decided_by_spelling(self, view: View, value: Any, path: Path, made: list[Repair]) -> bool:
        """Whether a `oneOf` of several objects has its one branch only because a key was respelled."""
        if not isinstance(value, dict) or not any(repair.rule == "key respelled" for repair in made):
            return False
        here = {dotted((*path, name)) for name in keys.known(self.validator, view)}
        if not any(repair.rule == "key respelled" and repair.path in here for repair in made):
            return False
        return any(self.branch_of(group, value) is None for group in self.alternatives(view))

    def alternatives(self, view: View) -> list[Place]:
        """The branches of each `oneOf` that chooses between objects."""
        groups = [group for union, group in view.branches if union.endswith("/oneOf")]
        return [group for group in groups if sum(takes(self.root, (inner,), "object") for inner in group) > 1]

    def branch_of(self, group: Place, value: Any) -> str | None:
        """The one branch that accepts a value as it is."""
        accepting = [inner for inner in group if self.validator.fits((inner,), value)]
        return accepting[0] if len(accepting) == 1 else None

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
        top = len(path) == 1 and not in_list
        if isinstance(value, dict):
            if kinds is None or "object" in kinds:
                return self._object(place, view, value, path)
            return self._one_object(view, value, path) if top and kinds == frozenset(("array",)) else NO
        if isinstance(value, list):
            if kinds is None or "array" in kinds:
                return self._list(view, value, path)
            return NO if in_list or len(value) != 1 else self._only(place, view, value, path)
        return self._scalar(place, view, value, path, in_list=in_list)

    def _object(self, place: Place, view: View, value: dict[str, Any], path: Path) -> Any:
        declared = view.properties
        unwrapped = keys.unwrapped(self.validator, view, value) if path else None
        if unwrapped is not None:
            self.unwrap(value, path)
            value = unwrapped
        value = self.respelled(view, value, path)
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

    def respelled(self, view: View, value: dict[str, Any], path: Path) -> dict[str, Any]:
        """The same object with its keys as they are declared."""
        names = keys.respelled(self.validator, view, value)
        for written, meant in names.items():
            self.note("key respelled", (*path, meant), written, meant, changed=False)
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
        if held is not None and not is_blank(held):
            return False
        if self.validator.fits(place, held):
            return False
        if held is None or not takes(self.root, place, "string") or only_members(self.root, place):
            return True
        return leaves_out_blanks(self.validator.view(place), held, own=self.own)

    def _list(self, view: View, value: list[Any], path: Path) -> Any:
        found: list[Any] = []
        for at, held in enumerate(value):
            inner = view.item(at)
            fixed = self.fix(inner, held, (*path, at), in_list=True) if inner else held
            if fixed is NO:
                return NO
            found.append(fixed)
        return found

    def _only(self, place: Place, view: View, value: list[Any], path: Path) -> Any:
        """What is alone in its list, unless it may be a pair of key and value for an object of many."""
        if isinstance(value[0], dict) and not self._may_be_one(view, value[0]):
            return NO
        mark = len(self.repairs)
        self.note("taken out of its list", path, value, value[0], changed=True)
        found = self.fix(place, value[0], path, in_list=True)
        if found is NO:
            del self.repairs[mark:]
        return found

    def _one_object(self, view: View, value: dict[str, Any], path: Path) -> Any:
        """A list of one object that was sent without its list."""
        place = view.item(0)
        items = self.validator.view(place)
        plain = items.properties or not any(isinstance(held, dict | list) for held in value.values())
        if items.kinds != frozenset(("object",)) or not plain or not self._may_be_one(items, value):
            return NO
        self.note("put into a list", path, value, [value], changed=True)
        found = self.fix(place, value, (*path, 0), in_list=True)
        return NO if found is NO else [found]

    def _may_be_one(self, view: View, value: dict[str, Any]) -> bool:
        """Whether an object is one of its kind: it has a declared key, or where none is declared, it is no pair."""
        if keys.known(self.validator, view):
            return keys.holds_declared(self.validator, view, value)
        return not keys.may_be_pair(value)

    def _scalar(self, place: Place, view: View, value: Any, path: Path, *, in_list: bool) -> Any:
        top = len(path) == 1 and not in_list
        options = list(scalars.options(view, value, self.written))
        if isinstance(value, str):
            options += self._from_text(view, value)
        accepted: dict[str, tuple[Any, Option, list[Repair]]] = {}
        if top:
            options += scalars.listed(view, self.validator.view(view.item(0)), str(path[0]), value)
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


def is_blank(value: Any) -> bool:
    """Whether a value is a text of nothing but white space."""
    return isinstance(value, str) and (not value or value.isspace())


def leaves_out_blanks(view: View, held: str, *, own: bool) -> bool:
    """Whether a blank in optional text means that it is absent: the schema says so, or its default is null or empty."""
    said = view.word("blank")
    if said in ("keep", "absent") or held in (view.members or ()):
        return bool(said == "absent")
    return bool(own and view.says("default") and view.word("default") in (None, ""))


def _strictly(text: str) -> Any:
    try:
        return parse(text)
    except NotJson:
        return NO


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 500 else show(value, 500)
    return show(value, 500) if isinstance(value, dict | list) and len(canonical(value)) > 500 else value
