"""Walk arguments along their schema and repair unambiguous mistakes; a fitting value is never touched."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from handrail.schema import _aliases as aliases
from handrail.schema import _keys as keys
from handrail.schema import repair as scalars
from handrail.schema._nearly_json import Note, read_nearly
from handrail.schema.describe import dotted, show
from handrail.schema.navigate import ROOT, Location, Spec, only_members, takes
from handrail.schema.parse import BLANK, NotJson, canonical, count_values, parse
from handrail.schema.repair import LOUD, Option, Repair
from handrail.schema.validate import Validator

MAX_STEPS_COUNT: Final = 50_000
"""Number of values that are visited; a larger call is refused. Slower work than a visit counts as several."""
STEPS_OF_BRANCH: Final = 10
"""Cost of trying one branch of a union, in visits."""
VALUES_PER_STEP: Final = 64
"""Number of inner values whose check takes as long as a visit."""
MAX_REPAIRS_COUNT: Final = 1_000
NO: Final = object()
Path = tuple[str | int, ...]


class GaveUp(Exception):
    """The value is too large to be repaired in bounded time."""


class Consequences:
    """The fields that are consequential by the schema; each path is looked up once."""

    def __init__(self, spec: Callable[[Location], Spec]) -> None:
        self._spec = spec
        self._known: dict[Path, tuple[Location, bool]] = {(): (ROOT, True)}

    def matters(self, path: Path) -> bool:
        """True unless the schema says false for the field or the one around it; branches that disagree mean true."""
        return self._look(path)[1]

    def _look(self, path: Path) -> tuple[Location, bool]:
        result = self._known.get(path)
        if result is None:
            location, answer = self._look(path[:-1])
            location = self._inside(location, path[-1])
            schemas = self._spec(location).schemas
            answers = [schema["consequential"] is not False for _, schema in schemas if "consequential" in schema]
            result = self._known[path] = (location, any(answers) if answers else answer)
        return result

    def _inside(self, location: Location, step: str | int) -> Location:
        """The location of a field, in every branch of the value around it."""
        result: list[str] = []
        waiting, seen = [location], set(location)
        while waiting:
            here = self._spec(waiting.pop())
            result += here.item(step) if isinstance(step, int) else here.properties.get(step, here.others)
            more = tuple(inner for _, group in here.branches for inner in group if inner not in seen)
            seen.update(more)
            waiting += [more] if more else []
        return tuple(dict.fromkeys(result))


class Repairer:
    """One attempt to repair one call."""

    def __init__(self, validator: Validator, *, own: bool, text: str | None) -> None:
        self.validator = validator
        self.root = validator.schema
        self.own = own
        self.text = text
        self.written = scalars.writer(text)
        self.consequences = Consequences(validator.spec)
        self.repairs: list[Repair] = []
        self.steps = 0
        self._texts: dict[str, list[Option]] = {}
        """Texts that were read as JSON, which every branch of a union would read again."""
        self.seen: Any = None
        """The arguments without their wrapper, with values as they were sent."""

    def note(self, rule: str, path: Path, before: Any, after: Any, *, changed: bool) -> None:
        """Record a repair; large values are abbreviated."""
        if len(self.repairs) >= MAX_REPAIRS_COUNT:
            raise GaveUp
        weighty = not changed or rule not in LOUD or self.consequences.matters(path)
        self.repairs.append(Repair(dotted(path), rule, _kept(before), _kept(after), changed, weighty))

    def take_notes(self, notes: list[Note], path: Path = ()) -> None:
        """Record the notes of a text that was read as nearly JSON."""
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
        inner = keys.unwrapped(self.validator, self.validator.spec(ROOT), value)
        if inner is not None:
            self.unwrap(value, ())
            value = inner
        self.seen = value
        return value if self.validator.is_valid(value) else self.fix(ROOT, value, ())

    def _is_whole(self, value: Any) -> bool:
        """Whether an object in a list is the arguments, not a key-value pair."""
        spec = self.validator.spec(ROOT)
        return isinstance(value, dict) and (
            not value
            or keys.holds_declared(self.validator, spec, value)
            or keys.unwrapped(self.validator, spec, value) is not None
        )

    def unwrap(self, value: dict[str, Any], path: Path) -> None:
        """Record a wrapper; the model is warned if the schema would let it pass or if it is not the outermost."""
        quiet = not path and not self.validator.spec(ROOT).silent
        rule = "wrapper taken off" if quiet else "undeclared wrapper taken off"
        self.note(rule, path, {next(iter(value)): "…"}, "…", changed=False)

    def fix(self, location: Location, value: Any, path: Path, *, in_list: bool = False, chosen: Location = ()) -> Any:
        """The value repaired to fit its location, or NO. `chosen` lists the unions that are already resolved."""
        self.spend(1, value)
        if self.validator.fits(location, value):
            return value
        spec = self.validator.spec(location)
        mark = len(self.repairs)
        result = self._directly(location, spec, value, path, in_list=in_list)
        if result is NO or not self.validator.fits(location, result):
            del self.repairs[mark:]
            unions = [(union, group) for union, group in spec.branches if union not in chosen]
            if not unions:
                return NO
            union, group = unions[0]
            result = self._by_branch(location, group, value, path, in_list=in_list, chosen=(*chosen, union))
        if result is not NO and self._is_decided_by_spelling(spec, value, path, self.repairs[mark:]):
            del self.repairs[mark:]
            return NO
        return result

    def spend(self, steps: int, value: Any, times: int = 1) -> None:
        """Count the cost of checking a value so many times, beside these steps. Raises GaveUp if it is too much."""
        self.steps += steps
        if isinstance(value, dict | list | str):
            self.steps += times * (count_values(value, MAX_STEPS_COUNT * VALUES_PER_STEP) // VALUES_PER_STEP)
        if self.steps > MAX_STEPS_COUNT:
            raise GaveUp

    def _is_decided_by_spelling(self, spec: Spec, value: Any, path: Path, made: list[Repair]) -> bool:
        """Whether a `oneOf` of several objects fits a single branch only because a key was respelled."""
        if not isinstance(value, dict) or not any(repair.rule == "key respelled" for repair in made):
            return False
        here = {dotted((*path, name)) for name in keys.known(self.validator, spec)}
        if not any(repair.rule == "key respelled" and repair.path in here for repair in made):
            return False
        return any(self.branch_of(group, value) is None for group in self.alternatives(spec))

    def alternatives(self, spec: Spec) -> list[Location]:
        """The branches of each `oneOf` that chooses between objects."""
        groups = [group for union, group in spec.branches if union.endswith("/oneOf")]
        return [group for group in groups if sum(takes(self.root, (inner,), "object") for inner in group) > 1]

    def branch_of(self, group: Location, value: Any) -> str | None:
        """The one branch that accepts a value as it is."""
        accepting = [inner for inner in group if self.validator.fits((inner,), value)]
        return accepting[0] if len(accepting) == 1 else None

    def _by_branch(
        self, location: Location, group: Location, value: Any, path: Path, *, in_list: bool, chosen: Location
    ) -> Any:
        """Take a branch only if exactly one accepts, or if all that accept give the same value."""
        mark = len(self.repairs)
        accepted: dict[str, tuple[Any, list[Repair]]] = {}
        for branch in group:
            self.spend(STEPS_OF_BRANCH, None)
            result = self.fix((branch,), value, path, in_list=in_list, chosen=chosen)
            made = self.repairs[mark:]
            del self.repairs[mark:]
            if result is not NO and self.validator.fits(location, result):
                accepted[canonical(result)] = (result, made)
        if len(accepted) != 1:
            return NO
        ((result, made),) = accepted.values()
        self.repairs.extend(made)
        return result

    def _directly(self, location: Location, spec: Spec, value: Any, path: Path, *, in_list: bool) -> Any:
        kinds = spec.kinds
        top = len(path) == 1 and not in_list
        if isinstance(value, dict):
            if kinds is None or "object" in kinds:
                return self._object(location, spec, value, path)
            return self._one_object(spec, value, path) if top and kinds == frozenset(("array",)) else NO
        if isinstance(value, list):
            if kinds is None or "array" in kinds:
                return self._list(spec, value, path)
            return NO if in_list or len(value) != 1 else self._only(location, spec, value, path)
        return self._scalar(location, spec, value, path, in_list=in_list)

    def _object(self, location: Location, spec: Spec, value: dict[str, Any], path: Path) -> Any:
        declared = spec.properties
        unwrapped = keys.unwrapped(self.validator, spec, value) if path else None
        if unwrapped is not None:
            self.unwrap(value, path)
            value = unwrapped
        value = self.respelled(spec, value, path)
        value = self._without_fillers(spec, declared, value, path)
        if self.validator.fits(location, value):
            return value
        others = spec.others
        result: dict[str, Any] = {}
        for name, item in value.items():
            inner = declared.get(name, others)
            result[name] = self.fix(inner, item, (*path, name)) if inner else item
            if result[name] is NO:
                return NO
        return result

    def respelled(self, spec: Spec, value: dict[str, Any], path: Path) -> dict[str, Any]:
        """The same object with its keys spelled as declared; the model is not told of aliases."""
        for alias, meant in aliases.single(spec, value).items():
            self.note("alias", (*path, meant), alias, meant, changed=False)
        value = aliases.by_own_names(spec, value)
        names = keys.respelled(self.validator, spec, value)
        for written, meant in names.items():
            self.note("key respelled", (*path, meant), written, meant, changed=False)
        return {names.get(name, name): item for name, item in value.items()} if names else value

    def _without_fillers(
        self, spec: Spec, declared: Mapping[str, Location], value: dict[str, Any], path: Path
    ) -> dict[str, Any]:
        required = set(spec.required)
        kept: dict[str, Any] = {}
        for name, item in value.items():
            inner = declared.get(name)
            if inner is None or name in required or not self._is_filler(inner, item, spec.get("blank")):
                kept[name] = item
            else:
                rule = "null left out" if item is None else "blank left out"
                self.note(rule, (*path, name), item, None, changed=False)
        return kept

    def _is_filler(self, location: Location, value: Any, around: Any) -> bool:
        if value is not None and not is_blank(value):
            return False
        if self.validator.fits(location, value):
            return False
        if value is None or not takes(self.root, location, "string") or only_members(self.root, location):
            return True
        return leaves_out_blanks(self.validator.spec(location), value, around, own=self.own)

    def _list(self, spec: Spec, value: list[Any], path: Path) -> Any:
        result: list[Any] = []
        for at, item in enumerate(value):
            inner = spec.item(at)
            fixed = self.fix(inner, item, (*path, at), in_list=True) if inner else item
            if fixed is NO:
                return NO
            result.append(fixed)
        return result

    def _only(self, location: Location, spec: Spec, value: list[Any], path: Path) -> Any:
        """The only item of a list where one value is wanted, unless it may be a key-value pair of the object wanted."""
        if isinstance(value[0], dict) and not keys.holds_declared(self.validator, spec, value[0]):
            return NO  # a key-value pair, or one of several: nothing tells
        mark = len(self.repairs)
        self.note("taken out of its list", path, value, value[0], changed=True)
        result = self.fix(location, value[0], path, in_list=True)
        if result is NO:
            del self.repairs[mark:]
        return result

    def _one_object(self, spec: Spec, value: dict[str, Any], path: Path) -> Any:
        """A list of one, for an object that was sent without its list."""
        location = spec.item(0)
        items = self.validator.spec(location)
        plain = items.properties or not any(isinstance(item, dict | list) for item in value.values())
        if items.kinds != frozenset(("object",)) or not plain or not self._may_be_one(items, value):
            return NO
        self.note("put into a list", path, value, [value], changed=True)
        result = self.fix(location, value, (*path, 0), in_list=True)
        return NO if result is NO else [result]

    def _may_be_one(self, spec: Spec, value: dict[str, Any]) -> bool:
        """Whether an object is one item: it has a declared key or, if none are declared, is not a key-value pair."""
        if keys.known(self.validator, spec):
            return keys.holds_declared(self.validator, spec, value)
        return not keys.may_be_pair(value)

    def _scalar(self, location: Location, spec: Spec, value: Any, path: Path, *, in_list: bool) -> Any:
        top = len(path) == 1 and not in_list
        options = list(scalars.options(spec, value, self.written))
        if isinstance(value, str):
            options += self._from_text(spec, value)
        accepted: dict[str, tuple[Any, Option, list[Repair]]] = {}
        if top:
            options += scalars.listed(spec, self.validator.spec(spec.item(0)), str(path[0]), value)
        mark = len(self.repairs)
        for option in options:
            result = option.value
            if isinstance(result, list | dict):
                result = self.fix(location, result, path, in_list=in_list)
            made = self.repairs[mark:]
            del self.repairs[mark:]
            if result is not NO and self.validator.fits(location, result):
                accepted[canonical(result)] = (result, option, made)
        if len(accepted) != 1:
            return NO
        ((result, option, made),) = accepted.values()
        self.take_notes(option.notes, path)
        if option.rule:
            self.note(option.rule, path, value, result, changed=option.changed)
        self.repairs.extend(made)
        return result

    def _from_text(self, spec: Spec, value: str) -> list[Option]:
        """A list or object that was sent as text."""
        kinds = spec.kinds
        begins = value.lstrip(BLANK)[:1]
        wanted = {"{": "object", "[": "array", "(": "array", "`": "either"}.get(begins)
        if wanted is None or kinds is None or "string" in kinds or not kinds & {"object", "array"}:
            return []
        if value not in self._texts:
            self._texts[value] = self._read_text(value)
        return self._texts[value]

    def _read_text(self, text: str) -> list[Option]:
        strict = _strictly(text)
        if isinstance(strict, list | dict):
            return [Option(strict, "JSON text read", changed=False)]
        try:
            result, notes = read_nearly(text, self.keys)
        except (NotJson, RecursionError):
            return []
        return [Option(result, "JSON text read", changed=False, notes=notes)]


def is_blank(value: Any) -> bool:
    """Whether a value is a text that is empty or only white space."""
    return isinstance(value, str) and (not value or value.isspace())


def leaves_out_blanks(spec: Spec, value: str, around: Any, *, own: bool) -> bool:
    """Whether a blank optional text means absent: its schema says so, or its default is null or empty.

    `around` is what the object that holds it says of its texts.
    """
    meaning = spec.get("blank")
    if meaning in ("keep", "absent") or value in (spec.members or ()):
        return bool(meaning == "absent")
    if around in ("keep", "absent"):
        return bool(around == "absent")
    return bool(own and spec.has("default") and spec.get("default") in (None, ""))


def _strictly(text: str) -> Any:
    try:
        return parse(text)
    except NotJson:
        return NO


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 500 else show(value, 500)
    return show(value, 500) if isinstance(value, dict | list) and len(canonical(value)) > 500 else value
