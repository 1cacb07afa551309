"""Find out what is wrong with a value and say it in plain words, with bounded work for any value."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from handrail.schema._aliases import by_own_names, clashing
from handrail.schema.describe import describe, dotted, near, shorten, show
from handrail.schema.navigate import ROOT, Location, Spec, escape, kind_of, spec_at, takes
from handrail.schema.parse import count_values

MAX_PROBLEMS_COUNT: Final = 50
MAX_STEPS_COUNT: Final = 5_000
"""Number of values that are examined; problems inside further values are not reported."""
VALUES_PER_STEP: Final = 64
"""Number of inner values whose check takes as long as examining one value."""
MAX_HOPS_COUNT: Final = 8
"""Depth of nested branches that are examined."""
MAX_FORMS_COUNT: Final = 4
"""Number of branches of a union that one message describes."""
Path = tuple[str | int, ...]
Convert = Callable[[Mapping[str, Any]], dict[str, Any]]
Fits = Callable[[Location, Any], bool]
Subject = Literal["arguments", "result", "text"]
"""Subject of a schema: a tool's arguments, a tool's answer, or a text that holds JSON."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the arguments."""

    path: str
    """Dotted, such as `items[0].name`; empty for the arguments as a whole."""
    message: str
    expected: str
    received: str


class NotConvertible(Exception):
    """Arguments that fit the schema but that the function's own types refuse."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


def explain(root: Mapping[str, Any], fits: Fits, value: Any, of: Subject = "arguments") -> list[Problem]:
    """Every problem, at most MAX_PROBLEMS_COUNT: missing, wrong and unknown fields."""
    result: dict[Problem, None] = {}
    for problem in _Explainer(root, fits, of).at(ROOT, value, ()):
        result[problem] = None
        if len(result) >= MAX_PROBLEMS_COUNT:
            break
    return list(result)


def meant(root: Mapping[str, Any], group: Location, value: Any) -> str | None:
    """The branch of a union that a value means: by its type, its tag, or most of its keys."""
    possible = [inner for inner in group if takes(root, (inner,), kind_of(value))]
    if len(possible) < 2 or not isinstance(value, Mapping):
        return possible[0] if len(possible) == 1 else None
    tag = tag_of(root, possible)
    if tag is not None and tag[0] in value:
        return next((inner for inner, members in tag[1].items() if value[tag[0]] in members), None)
    ranked: dict[str, tuple[int, int]] = {}
    for inner in possible:
        spec = spec_at(root, (inner,))
        known = sum(name in value for name in spec.properties)
        ranked[inner] = (known, -sum(name not in value for name in spec.required))
    best = max(ranked.values())
    result = [inner for inner, rank in ranked.items() if rank == best]
    return result[0] if len(result) == 1 and best[0] else None


def tag_of(root: Mapping[str, Any], group: Sequence[str]) -> tuple[str, dict[str, list[Any]]] | None:
    """The property whose constants tell the branches apart, and the constants of each branch."""
    locations = {inner: spec_at(root, (inner,)).properties for inner in group}
    for name in next(iter(locations.values()), {}):
        members = {inner: spec_at(root, result[name]).members for inner, result in locations.items() if name in result}
        listed = {inner: values for inner, values in members.items() if values}
        all_members = [repr(member) for values in listed.values() for member in values]
        if len(listed) == len(group) and len(set(all_members)) == len(all_members):
            return name, listed
    return None


def conditions(spec: Spec, fits: Fits, value: Any) -> Location:
    """The schemas that apply because of a value's content: `then`, `else` and `dependentSchemas`."""
    result: list[str] = []
    for pointer, schema in spec.schemas:
        if "if" in schema:
            branch = "then" if fits((f"{pointer}/if",), value) else "else"
            result += [f"{pointer}/{branch}"] if branch in schema else []
        inner = schema.get("dependentSchemas")
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            result += [f"{pointer}/dependentSchemas/{escape(name)}" for name in inner if name in value]
    return tuple(result)


def companions(spec: Spec, value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each key that is missing although another key requires it, and that other key."""
    for _, schema in spec.schemas:
        for keyword in ("dependentRequired", "dependencies"):
            needs = schema.get(keyword)
            for name, needed in needs.items() if isinstance(needs, Mapping) else ():
                if name in value and isinstance(needed, list):
                    yield from ((missing, name) for missing in needed if missing not in value)


class _Explainer:
    def __init__(self, root: Mapping[str, Any], fits: Fits, of: Subject) -> None:
        self.of = of
        self.sent = "the tool returned" if of == "result" else "you sent"
        self.root = root
        self.fits = fits
        self.steps = 0
        self.in_form = False
        """Whether the branches of a union are being described, which is done one level deep."""

    def at(self, location: Location, value: Any, path: Path, decided: Location = ()) -> Iterator[Problem]:
        """The problems of a value. `decided` lists the unions and conditions that the location includes already."""
        if self.fits(location, value):
            return
        spec = spec_at(self.root, location)
        if isinstance(value, dict) and spec.aliases and self.of == "arguments":
            sent, value = value, by_own_names(spec, value)
            if value is not sent and self.fits(location, value):
                return
        inner: list[Iterator[Problem]] = []
        self.steps += 1
        if self._right_kind(spec, value) and self.steps < MAX_STEPS_COUNT:
            inner = [
                self._object(spec, value, path),
                self._list(spec, value, path),
                self._conditions(location, spec, value, path, decided),
                self._unions(location, spec, value, path, decided),
            ]
        some = False
        for problems in inner:
            for problem in problems:
                some = True
                yield problem
        if not some:
            yield self._whole(location, spec, value, path)

    def _right_kind(self, spec: Spec, value: Any) -> bool:
        kinds = spec.kinds
        return kinds is None or kind_of(value) in kinds

    def _object(self, spec: Spec, value: Any, path: Path) -> Iterator[Problem]:
        if not isinstance(value, dict):
            return
        declared, twice = spec.properties, clashing(spec, value)
        for alias, name in twice.items():
            where, message = dotted((*path, alias)), f"is another name of `{name}`, which was sent twice"
            yield Problem(where, f"`{where}` {message}", "one of them", show(value[alias]))
        for name in spec.required:
            if name not in value and name not in twice.values():
                yield self._missing(declared.get(name, ()), (*path, name))
        for name, beside in companions(spec, value):
            yield self._missing(
                declared.get(name, ()), (*path, name), f", because `{dotted((*path, beside))}` is there"
            )
        others = spec.others
        for name, item in value.items():
            inner = declared.get(name, others)
            if inner:
                yield from self.at(inner, item, (*path, name))
        if spec.closed and not spec.patterned:
            known = {name: item for name, item in value.items() if name not in twice}
            yield from self._unknown(list(declared), known, path)

    def _missing(self, location: Location, path: Path, why: str = "") -> Problem:
        where, wanted = dotted(path), self._wanted(location)
        return Problem(where, f"`{where}` is missing: {wanted}{why}", self._expected(location), "nothing")

    def _unknown(self, declared: list[str], value: Mapping[str, Any], path: Path) -> Iterator[Problem]:
        wanted = f"only {shorten(', '.join(declared), 150)}" if declared else "no keys at all"
        missing = [name for name in declared if name not in value]
        known = set(declared)
        for name in value:
            if name not in known:
                where, near_by = dotted((*path, shorten(name))), near(name, missing)
                sent = f": {self.sent} `{shorten(name)}`, the schema has `{near_by}`"
                yield Problem(
                    where,
                    f"`{where}` is not known{sent if near_by else f'; the schema has {wanted}'}",
                    wanted,
                    show(value[name]),
                )

    def _list(self, spec: Spec, value: Any, path: Path) -> Iterator[Problem]:
        if isinstance(value, list | tuple):
            for at, item in enumerate(value):
                if inner := spec.item(at):
                    yield from self.at(inner, item, (*path, at))

    def _conditions(
        self, location: Location, spec: Spec, value: Any, path: Path, decided: Location
    ) -> Iterator[Problem]:
        for pointer in conditions(spec, self.fits, value):
            if pointer not in decided and not self.fits((pointer,), value):
                yield from self.at((*location, pointer), value, path, (*decided, pointer))

    def _unions(self, location: Location, spec: Spec, value: Any, path: Path, decided: Location) -> Iterator[Problem]:
        if not isinstance(value, dict | list) or len(decided) > MAX_HOPS_COUNT:
            return
        for union, group in spec.branches:
            self.steps += len(group) * (1 + count_values(value, MAX_STEPS_COUNT * VALUES_PER_STEP) // VALUES_PER_STEP)
            if self.steps > MAX_STEPS_COUNT:
                return
            fitting = [inner for inner in group if self.fits((inner,), value)]
            if union in decided or len(fitting) == 1 or (fitting and union.endswith("/anyOf")):
                continue
            if fitting:
                forms = "; ".join(map(self._form, fitting[:MAX_FORMS_COUNT]))
                message = (
                    f"{_subject(path, self.of)} fits {len(fitting)} forms at once, but must fit exactly one: {forms}"
                )
                yield Problem(dotted(path), message, "a value that fits only one of them", show(value))
            elif any(takes(self.root, (inner,), kind_of(value)) for inner in group):
                yield from self._no_branch(location, group, value, path, (*decided, union))

    def _no_branch(
        self, location: Location, group: Location, value: Any, path: Path, decided: Location
    ) -> Iterator[Problem]:
        """Examine the branch that is meant; if unclear, say what tells the branches apart or what is wrong in each."""
        possible = [inner for inner in group if takes(self.root, (inner,), kind_of(value))]
        tag = tag_of(self.root, possible) if isinstance(value, dict) and len(possible) > 1 else None
        if tag is not None and value.get(tag[0]) not in [member for values in tag[1].values() for member in values]:
            yield self._untagged(tag[0], [member for values in tag[1].values() for member in values], value, path)
        elif (inner := meant(self.root, group, value)) is not None:
            yield from self.at((*location, inner), value, path, decided)
        else:
            forms = "; ".join(
                self._lacking(location, inner, value, path, decided) for inner in possible[:MAX_FORMS_COUNT]
            )
            message = f"{_subject(path, self.of)} fits none of {len(possible)} forms: {forms}"
            yield Problem(dotted(path), message, " or ".join(map(self._form, possible)), show(value))

    def _lacking(self, location: Location, inner: str, value: Any, path: Path, decided: Location) -> str:
        """A branch, and the first thing in the value that does not fit it."""
        if self.in_form:
            return self._form(inner)
        self.in_form = True
        first = next(self.at((*location, inner), value, path, decided), None)
        self.in_form = False
        return self._form(inner) + (f" ({first.message})" if first else "")

    def _untagged(self, name: str, members: list[Any], value: Mapping[str, Any], path: Path) -> Problem:
        where, wanted = dotted((*path, name)), describe({"enum": members}, self.root)
        if name not in value:
            return Problem(where, f"`{where}` is missing: {wanted}", wanted, "nothing")
        near_by = near(value[name], members)
        hint = f": {self.sent} {show(value[name])}, the schema has {show(near_by)}" if near_by else ""
        return Problem(where, f"`{where}` must be {wanted}{hint}", wanted, show(value[name]))

    def _form(self, pointer: str) -> str:
        words, required = describe({"$ref": pointer}, self.root), spec_at(self.root, (pointer,)).required
        return f"one with {', '.join(required[:8])}" if words == "any value" and required else words

    def _whole(self, location: Location, spec: Spec, value: Any, path: Path) -> Problem:
        where, wanted = dotted(path), self._wanted(location)
        members = list(spec.members or ())
        for _, group in spec.branches:
            members += [member for inner in group for member in spec_at(self.root, (inner,)).members or ()]
        near_by = near(value, members)
        hint = f": {self.sent} {show(value)}, the schema has {show(near_by)}" if near_by else ""
        expected = self._expected(location)
        if wanted == "any value" or (isinstance(value, dict) and takes(self.root, location, "object")):
            words = "" if wanted == "any value" else f": {wanted}"
            message = f"{_subject(path, self.of)} has fields that do not fit together{words}"
            return Problem(where, message, expected, show(value))
        must = "not be empty" if self._is_only_empty(location, value) else f"be {wanted}"
        return Problem(where, f"{_subject(path, self.of)} must {must}{hint}", expected, show(value))

    def _is_only_empty(self, location: Location, value: Any) -> bool:
        """Whether a text, list or object is of the right type but must hold something."""
        least = {"string": "minLength", "array": "minItems", "object": "minProperties"}.get(kind_of(value))
        specs = [spec_at(self.root, (inner,)) for _, group in spec_at(self.root, location).branches for inner in group]
        return not value and any(spec.get(least) for spec in (spec_at(self.root, location), *specs) if least)

    def _wanted(self, location: Location) -> str:
        words = list(dict.fromkeys(describe({"$ref": pointer}, self.root) for pointer in location))
        # a branch that was chosen says it without the others
        exact = [each for each in words if not any(each is not other and other in each for other in words)]
        return shorten(" and ".join(exact), 200) or "any value"

    def _expected(self, location: Location) -> str:
        """The wanted value in words, with the schema's own description."""
        wanted, spec = self._wanted(location), spec_at(self.root, location)
        description = spec.get("description") if location else None
        if not isinstance(description, str) or not description.strip():
            return wanted
        return shorten(f"{wanted}: {' '.join(description.split())}", 200)


def _subject(path: Path, of: Subject) -> str:
    return f"`{dotted(path)}`" if path else f"the {of} as a whole"
