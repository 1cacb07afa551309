"""Make example arguments that a schema accepts: the model's own, corrected, or the smallest that are valid."""

import json
from collections.abc import Callable, Iterator, Mapping
from math import ceil, floor
from typing import Any, Final

from handrail.schema._aliases import by_own_names
from handrail.schema._formats import FORMAT_SAMPLES, sample
from handrail.schema.describe import dotted, near
from handrail.schema.explain import Convert, NotConvertible, companions, conditions, meant
from handrail.schema.navigate import ROOT, Location, Spec, escape, kind_of
from handrail.schema.parse import NotJson, canonical, parse
from handrail.schema.validate import Validator

LONG_TEXT: Final = 80
"""Length from which a text that the model sent may be left out of the example, in characters."""
_DEEPEST: Final = 12
_MAX_ITEMS_COUNT: Final = 20
_MAX_KEYS_COUNT: Final = 200
_MAX_STEPS_COUNT: Final = 2_000
_MAX_TRIES_COUNT: Final = 5
_MAX_BRANCHES_COUNT: Final = 8
_MAX_TEXT_CHARS: Final = 1_000
_KINDS: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_TEXTS: Final = ("text", "example", "a", "1", "A", "/path")
_NO: Final = object()


class _GaveUp(Exception):
    """The schema is too large for an example."""


def example(
    validator: Validator, sent: Any = None, wrong: frozenset[str] = frozenset(), *, convert: Convert | None, most: int
) -> dict[str, Any] | None:
    """Valid arguments of at most `most` characters; None if none can be made.

    Keeps what was `sent`, except for what does not fit and for the dotted paths in `wrong`, which were refused for
    another reason. If `convert` is given, it must accept the example too.
    """
    refused, hopeless = set(wrong), set[str]()
    as_sent = canonical(sent)
    for tries in range(_MAX_TRIES_COUNT):
        before = len(refused) + len(hopeless)
        for candidate in _whole(validator, sent, frozenset(refused), frozenset(hopeless)):
            fits = isinstance(candidate, dict) and canonical(candidate) != as_sent and validator.is_valid(candidate)
            if fits and len(repr(candidate)) <= most:
                try:
                    return candidate if convert is None or convert(candidate) is not None else None
                except NotConvertible as error:
                    paths = {problem.path for problem in error.problems}
                    hopeless |= paths & refused & candidate.keys()  # whatever its value is
                    refused |= paths
                    if len(refused) + len(hopeless) > before and tries + 1 < _MAX_TRIES_COUNT:
                        break  # what was sent is kept as far as possible
        if len(refused) + len(hopeless) == before:
            break
    return None


def _whole(validator: Validator, sent: Any, wrong: frozenset[str], hopeless: frozenset[str]) -> Iterator[Any]:
    least = _tried(_Maker(validator).make, ROOT)
    base = sent if isinstance(sent, dict) else least
    if isinstance(base, dict):
        for short in (False, True):
            yield from _tried(_Maker(validator, wrong, hopeless, short=short).corrections, base, least) or ()
    yield least


def _tried(make: Callable[..., Any], *given: Any) -> Any:
    try:
        return make(*given)
    except (_GaveUp, ValueError, TypeError, RecursionError, OverflowError):
        return None


class _Maker:
    """One attempt to make an example.

    What is `wrong` gets another value, or one at all if it is optional; what is `hopeless` is left out if it is
    optional. `short` leaves out long texts that were sent.
    """

    def __init__(
        self,
        validator: Validator,
        wrong: frozenset[str] = frozenset(),
        hopeless: frozenset[str] = frozenset(),
        *,
        short: bool = False,
    ) -> None:
        self.fits = validator.fits
        self.spec = validator.spec
        self.root = validator.schema
        self.wrong = wrong
        self.hopeless = hopeless
        self.short = short
        self.steps = 0

    def make(self, location: Location, trail: tuple[str, ...] = (), decided: Location = ()) -> Any:
        """A small value that fits a location, or _NO. `trail` lists the schemas around it, `decided` its unions."""
        self.steps += 1
        if self.steps > _MAX_STEPS_COUNT or len(trail) > 20 * _DEEPEST:
            raise _GaveUp
        spec = self.spec(location)
        for candidate in self._candidates(spec, location, trail, decided):
            if candidate is not _NO and self.fits(location, candidate):
                return candidate
        return _NO

    def _candidates(self, spec: Spec, location: Location, trail: tuple[str, ...], decided: Location) -> Iterator[Any]:
        if spec.members is not None:
            yield from spec.members[:_MAX_ITEMS_COUNT]
            return
        given = spec.get("examples")
        yield from given if isinstance(given, list) else ()
        if spec.get("default") not in (None, "", [], {}):
            yield spec.get("default")
        for union, group in spec.branches:
            if union not in decided:
                for inner in sorted(group[:_MAX_BRANCHES_COUNT], key=self._is_null):
                    yield self.make((*location, inner), trail, (*decided, union))
                return
        trail = (*trail, *(pointer for pointer, _ in spec.schemas))
        for kind in _KINDS:
            if kind in (_guess(spec) if spec.kinds is None else spec.kinds):
                yield from self._of_kind(kind, spec, location, trail, decided)

    def _is_null(self, pointer: str) -> bool:
        return self.spec((pointer,)).kinds == frozenset(("null",))

    def _of_kind(
        self, kind: str, spec: Spec, location: Location, trail: tuple[str, ...], decided: Location
    ) -> Iterator[Any]:
        match kind:
            case "string":
                inner = tuple(
                    f"{pointer}/contentSchema" for pointer, schema in spec.schemas if "contentSchema" in schema
                )
                if inner and (item := self.make(inner, trail)) is not _NO:  # a text that holds JSON
                    yield json.dumps(item)
                yield from _strings(spec)
            case "integer" | "number":
                yield from _numbers(spec, whole=kind == "integer")
            case "boolean":
                yield from (False, True)
            case "array":
                yield from self._lists(spec, trail)
            case "object":
                yield from self._objects(spec, location, trail, decided)
            case "null":
                yield None

    def _objects(self, spec: Spec, location: Location, trail: tuple[str, ...], decided: Location) -> Iterator[Any]:
        made: dict[str, Any] = {}
        for name in spec.required:
            made[name] = self._beside(made, spec.properties.get(name, spec.others), trail)
        while missing := [name for name, _ in companions(spec, made) if name not in made]:
            made |= {name: self.make(spec.properties.get(name, spec.others), trail) for name in missing}
        if _NO in made.values():
            return
        least = int(spec.get("minProperties") or 0)
        is_map = not spec.properties and bool(spec.others) and not set(spec.others) & set(trail)
        yield from self._filled(made, max(least, 1 if is_map else 0), spec, trail)
        yield from self._filled(made, least, spec, trail)
        further = tuple(pointer for pointer in conditions(spec, self.fits, made) if pointer not in decided)
        if further:
            yield self.make((*location, *further), trail, (*decided, *further))

    def _beside(self, made: Mapping[str, Any], location: Location, trail: tuple[str, ...] = ()) -> Any:
        """A small value for one more key: a text of ours is not used twice, since equal texts may be refused."""
        value = self.make(location, trail)
        if value not in _TEXTS or value not in made.values():
            return value
        return next((text for text in _TEXTS if text not in made.values() and self.fits(location, text)), value)

    def _filled(self, made: dict[str, Any], least: int, spec: Spec, trail: tuple[str, ...]) -> Iterator[Any]:
        """Add keys until there are enough: declared ones first, then whatever a map or a pattern allows."""
        made = dict(made)
        for name, inner in spec.properties.items():
            if len(made) < least and name not in made and (item := self.make(inner, trail)) is not _NO:
                made[name] = item
        for at in range(min(least - len(made), _MAX_ITEMS_COUNT)):
            free, inner = self._free_key(spec, at)
            if free is None or (item := self.make(inner, trail)) is _NO:
                return
            made[free] = item
        yield made

    def _free_key(self, spec: Spec, at: int) -> tuple[str | None, Location]:
        for pointer, schema in spec.schemas:
            patterns = schema.get("patternProperties")
            for pattern in patterns if isinstance(patterns, Mapping) else ():
                text = sample(pattern, least=at)
                return text, (f"{pointer}/patternProperties/{escape(pattern)}",)
        names = tuple(f"{pointer}/propertyNames" for pointer, schema in spec.schemas if "propertyNames" in schema)
        if not names:
            return f"key{at + 1}", spec.others
        name = self.make(names)
        return name if isinstance(name, str) and at == 0 else None, spec.others

    def _lists(self, spec: Spec, trail: tuple[str, ...]) -> Iterator[Any]:
        """Lists with at least one item: an empty one may be valid, but a model should not replace its own with it."""
        first = max((len(schema.get("prefixItems") or ()) for _, schema in spec.schemas), default=0)
        least = int(spec.get("minItems") or 0)
        wanted = min(max(least, 1, first), _MAX_ITEMS_COUNT, int(spec.get("maxItems") or _MAX_ITEMS_COUNT))
        made: list[Any] = []
        for at in range(wanted):
            location = spec.item(at)
            item = _NO if set(self._pointers(location)) & set(trail) else self.make(location, trail)
            if item is _NO:
                break
            made.append(_another(item, at) if spec.get("uniqueItems") and item in made else item)
        special = tuple(f"{pointer}/contains" for pointer, schema in spec.schemas if "contains" in schema)
        if special:
            yield [*made[1:], self.make(special, trail)]
        yield made
        yield [_another(item, at) for at, item in enumerate(made)]

    def _pointers(self, location: Location) -> list[str]:
        return [pointer for pointer, _ in self.spec(location).schemas]

    def corrections(self, sent: dict[str, Any], least: Any) -> list[Any]:
        """The sent arguments with the wrong parts replaced; then the smallest valid arguments, filled from them."""
        result = [item for item in self._corrected(ROOT, sent, (), ()) if item is not _NO]
        fields = self._object(self.spec(ROOT), sent, ())
        if isinstance(least, dict):
            result.append({name: fields.get(name, item) for name, item in least.items()})
        return result

    def keep(self, location: Location, value: Any, path: tuple[str | int, ...] = (), decided: Location = ()) -> Any:
        """The sent value with its wrong parts replaced; _NO if nothing fits."""
        self.steps += 1
        if self.steps > _MAX_STEPS_COUNT:
            raise _GaveUp
        if not self._is_wrong(path) and self.fits(location, value):
            return value
        for candidate in self._corrected(location, value, path, decided):
            if candidate is not _NO and self.fits(location, candidate):
                return candidate
        return self.make(location, (), decided)

    def _is_wrong(self, path: tuple[str | int, ...]) -> bool:
        """Whether the value at this path, or something inside it, was refused."""
        here = dotted(path)
        inside = (f"{here}.", f"{here}[") if here else ("",)
        return any(item == here or item.startswith(inside) for item in self.wrong if item)

    def _corrected(
        self, location: Location, value: Any, path: tuple[str | int, ...], decided: Location
    ) -> Iterator[Any]:
        spec = self.spec(location)
        if isinstance(value, str):
            yield _read(value)
            yield _NO if (member := near(value, spec.members or ())) is None else member
        for union, group in spec.branches:
            if union not in decided and (inner := meant(self.root, group, value)) is not None:
                yield self.keep((*location, inner), value, path, (*decided, union))
        if isinstance(value, dict):
            corrected = self._object(spec, value, path)
            yield corrected
            further = tuple(pointer for pointer in conditions(spec, self.fits, corrected) if pointer not in decided)
            if further:
                yield self.keep((*location, *further), corrected, path, (*decided, *further))
        elif isinstance(value, list):
            yield self._list(spec, value, path)

    def _object(self, spec: Spec, value: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
        if len(value) > _MAX_KEYS_COUNT:
            raise _GaveUp
        result: dict[str, Any] = {}
        declared, required = spec.properties, set(spec.required)
        for key, item in by_own_names(spec, value).items():
            refused = spec.closed or (not spec.others and self._is_wrong((*path, key)))
            unknown = key not in declared and refused and not spec.patterned
            name = near(key, [other for other in declared if other not in value]) if unknown else key
            if name is None or (name not in required and self._leaves_out((*path, name), item)):
                continue
            inner = declared.get(name, spec.others)
            if (self.short and _is_long(item)) or (unknown and not self.fits(inner, item)):
                kept = self.make(inner)
            else:
                kept = item if unknown else self.keep(inner, item, (*path, name))
            if kept is not _NO:
                result[name] = kept
        asked = [
            name for name in declared if (where := dotted((*path, name))) in self.wrong and where not in self.hopeless
        ]
        for name in (*spec.required, *(name for name, _ in companions(spec, result)), *asked):
            if name not in result and (made := self._beside(result, declared.get(name, spec.others))) is not _NO:
                result[name] = made
        return result

    def _leaves_out(self, path: tuple[str | int, ...], item: Any) -> bool:
        """Whether an optional value that was sent is left out."""
        return dotted(path) in self.hopeless or (self.short and _is_long(item))

    def _list(self, spec: Spec, value: list[Any], path: tuple[str | int, ...]) -> Any:
        """The first wrong item, corrected, alone if one item is enough; a tuple keeps its other items."""
        kept = [self.keep(spec.item(at), item, (*path, at)) for at, item in enumerate(value[:_MAX_ITEMS_COUNT])]
        if _NO in kept:
            return _NO
        if any("prefixItems" in schema for _, schema in spec.schemas):
            first = max(len(schema.get("prefixItems") or ()) for _, schema in spec.schemas)
            return [*kept, *(self.make(spec.item(at)) for at in range(len(kept), first))]
        changed = [new for new, old in zip(kept, value, strict=False) if new is not old]
        same = [new for new, old in zip(kept, value, strict=False) if new is old]
        least = max(int(spec.get("minItems") or 0), 1)
        ordered = [*changed, *(item for at, item in enumerate(same) if item not in same[:at])]
        return ordered[: least if changed else int(spec.get("maxItems") or _MAX_ITEMS_COUNT)]


def _guess(spec: Spec) -> tuple[str, ...]:
    """The JSON types to try if the schema names none."""
    keywords = {keyword for _, schema in spec.schemas for keyword in schema}
    if keywords & {"properties", "required", "additionalProperties", "minProperties", "patternProperties"}:
        return ("object",)
    if keywords & {"items", "prefixItems", "minItems", "contains"}:
        return ("array",)
    if keywords & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}:
        return ("integer", "number")
    return _KINDS


def _read(text: str) -> Any:
    """The JSON value that a text holds; _NO if that is another text or null."""
    try:
        value = parse(text)
    except NotJson:
        return _NO
    return _NO if kind_of(value) in ("string", "null") else value


def _is_long(value: Any) -> bool:
    return len(value if isinstance(value, str) else repr(value)) > LONG_TEXT


def _strings(spec: Spec) -> Iterator[str]:
    least, most = int(spec.get("minLength") or 0), int(spec.get("maxLength") or _MAX_TEXT_CHARS)
    for _, schema in spec.schemas:
        if isinstance(schema.get("format"), str) and schema["format"] in FORMAT_SAMPLES:
            yield FORMAT_SAMPLES[schema["format"]]
        if isinstance(schema.get("pattern"), str):
            yield sample(schema["pattern"], least, most) or ""
    for text in _TEXTS:
        yield (text + "x" * min(max(least - len(text), 0), _MAX_TEXT_CHARS))[:most]


def _numbers(spec: Spec, *, whole: bool) -> Iterator[Any]:
    """Try 1 first, then numbers at and between the bounds."""
    low, high = _all(spec, "minimum", "exclusiveMinimum"), _all(spec, "maximum", "exclusiveMaximum")
    step = max(_all(spec, "multipleOf"), default=1)
    tried: list[Any] = [1, step]
    for bound in (max(low, default=None), min(high, default=None)):
        if bound is not None:
            around = (ceil(bound / step), floor(bound / step))
            tried += [round(number * step, 12) for at in around for number in (at, at + 1, at - 1)]
    if low and high:
        tried.append((max(low) + min(high)) / 2)
    tried += [0, -1, *low, *high]
    yield from (int(number) if number == int(number) else number for number in tried if not whole or number % 1 == 0)


def _all(spec: Spec, *keywords: str) -> list[Any]:
    result = [schema.get(keyword) for _, schema in spec.schemas for keyword in keywords]
    return [number for number in result if isinstance(number, int | float) and not isinstance(number, bool)]


def _another(item: Any, at: int) -> Any:
    """A similar but different item, for lists without repeats."""
    if isinstance(item, str):
        return f"{item}{at}" if at else item
    return item + at if isinstance(item, int | float) and not isinstance(item, bool) else item
