"""Normalize valid arguments: drop blanks, make whole floats integers, rename unknown keys to those meant."""

from decimal import Decimal, InvalidOperation
from typing import Any

from handrail.schema import _aliases as aliases
from handrail.schema import _keys as keys
from handrail.schema._fast_path import EXACT
from handrail.schema._repairer import NO, STEPS_OF_BRANCH, Path, Repairer, is_blank, leaves_out_blanks
from handrail.schema.describe import dotted, show
from handrail.schema.explain import Problem
from handrail.schema.navigate import Location, Spec, takes
from handrail.schema.repair import only


class Normalizer:
    """One walk through valid arguments."""

    def __init__(self, repairer: Repairer) -> None:
        self.repairer = repairer
        self.validator = repairer.validator
        self.unknown: list[Path] = []
        """Unknown keys that an open schema lets pass."""
        self.problems: list[Problem] = []
        """Why the arguments are refused although they are valid."""
        self.moved = False
        """Whether a value was moved to another key, so that the arguments cannot be passed on as sent."""

    def normalize(self, location: Location, value: Any, path: Path = ()) -> Any:
        """The normalized value; the same object if nothing changed."""
        if isinstance(value, dict):
            return self._object(location, value, path)
        if isinstance(value, list):
            return self._list(self._chosen(location, value), value, path)
        if type(value) is float and (value.is_integer() or self.validator.typed):
            return self._float(location, value, path)
        if type(value) is int and not -EXACT <= value <= EXACT and self.validator.typed:
            self._check_float(self._chosen(location, value), value, path)
        return value

    def _chosen(self, location: Location, value: Any) -> Spec | None:
        """The spec of the value, including the one branch that accepts it; None if several do."""
        for _ in range(8):
            spec = self.validator.spec(location)
            more: list[str] = []
            for _, group in spec.branches:
                self.repairer.spend(len(group) // STEPS_OF_BRANCH, value, len(group))
                accepting = [inner for inner in group if self.validator.fits((inner,), value)]
                if len(accepting) > 1:
                    return None
                more += [inner for inner in accepting if inner not in location]
            if not more:
                return spec
            location = (*location, *more)
        return None

    def _object(self, location: Location, value: dict[str, Any], path: Path) -> dict[str, Any]:
        spec = self._chosen(location, value)
        named = self._by_own_names(location, spec or self.validator.spec(location), value, path)
        if named is not value:
            return self._object(location, named, path)
        if spec is None:
            narrowed = self._respelled_branch(location, value, path)
            if narrowed is None:
                return value
            location, spec = narrowed, self.validator.spec(narrowed)
        meant = self._as_meant(location, spec, value, path)
        if meant is not value and (spec := self._chosen(location, meant)) is None:
            return meant
        declared, others, required = spec.properties, spec.others, set(spec.required)
        open_to_all = bool(declared) and not (spec.closed or spec.patterned or others)
        result: dict[str, Any] = {}
        changed = meant is not value
        for name, item in meant.items():
            inner = declared.get(name, others)
            if name not in declared and open_to_all:
                self.unknown.append((*path, name))
            optional = name in declared and name not in required
            if optional and is_blank(item) and self._is_filler(inner, item, spec.get("blank")):
                self.repairer.note("blank left out", (*path, name), item, None, changed=False)
                changed = True
                continue
            result[name] = self.normalize(inner, item, (*path, name)) if inner else item
            changed = changed or result[name] is not item
        return result if changed else value

    def _by_own_names(self, location: Location, spec: Spec, value: dict[str, Any], path: Path) -> dict[str, Any]:
        """The object without aliases, which an open schema lets pass as unknown keys."""
        for alias, name in aliases.clashing(spec, value).items():
            what = f"is another name of `{name}`, which was sent twice"
            self._refuse((*path, alias), what, "one of them", value[alias])
        if self.problems or not aliases.single(spec, value):
            return value
        self.moved = True
        named = self.repairer.respelled(spec, value, path)
        fixed = self.repairer.fix(location, named, path)
        return named if fixed is NO else dict(fixed)  # the caller finds out that it does not fit

    def _respelled_branch(self, location: Location, value: dict[str, Any], path: Path) -> Location | None:
        """The one branch, of several that accept an object, in which an unknown key is a declared one respelled."""
        spec = self.validator.spec(location)
        known = keys.known(self.validator, spec)
        if not known or known.issuperset(value):
            return None
        group = [inner for _, branches in spec.branches for inner in branches]
        locations = [(*location, inner) for inner in group if self.validator.fits((inner,), value)]
        specs = {here: self.validator.spec(here) for here in locations}
        found = [here for here, inner in specs.items() if inner.silent and keys.respelled(self.validator, inner, value)]
        if len(found) == 1:
            return found[0]
        if all(inner.silent for inner in specs.values()):
            self.unknown += [(*path, name) for name in value if name not in known]
        return None

    def _as_meant(self, location: Location, spec: Spec, value: dict[str, Any], path: Path) -> dict[str, Any]:
        """The object without its wrapper and with declared keys, if the schema says nothing about unknown keys."""
        for name in keys.echoed(self.validator, spec, value):
            self._refuse(
                (*path, name), "holds the schema that was shown to you instead of a value", "a value", value[name]
            )
        if not spec.silent or not spec.properties or self.problems:
            return value
        for name in keys.dashed(self.validator, spec, value):
            self._refuse((*path, name), "has a dash before its name, which is not a key", "the key alone", value[name])
        inner = keys.unwrapped(self.validator, spec, value)
        names = keys.respelled(self.validator, spec, value)
        if inner is None and not names:
            return value
        self.moved = True
        if inner is not None:
            self.repairer.unwrap(value, path)
        fixed = self.repairer.fix(location, self.repairer.respelled(spec, inner or value, path), path)
        if fixed is NO or self._took_another_branch(spec, value, fixed):
            seems = "; ".join(f"`{sent}` seems to mean `{meant}`" for sent, meant in names.items())
            seems = seems or f"`{next(iter(value))}` seems to be a wrapper"
            self._refuse(
                path, f"cannot be read: {seems}, but then it does not fit the schema", "declared keys that fit", value
            )
            return value
        return dict(fixed)

    def _took_another_branch(self, spec: Spec, before: Any, after: Any) -> bool:
        groups = self.repairer.alternatives(spec)
        return any(self.repairer.branch_of(group, before) != self.repairer.branch_of(group, after) for group in groups)

    def _refuse(self, path: Path, what: str, expected: str, received: Any) -> None:
        where = dotted(path)
        subject = f"`{where}`" if where else "the arguments as a whole"
        self.problems.append(Problem(where, f"{subject} {what}", expected, show(received)))

    def _is_filler(self, location: Location, value: str, around: Any) -> bool:
        if not takes(self.validator.schema, location, "string"):
            return False
        chosen = self._chosen(location, value)
        spec = self.validator.spec(location) if chosen is None else chosen
        return leaves_out_blanks(spec, value, around, own=self.repairer.own)

    def _list(self, spec: Spec | None, value: list[Any], path: Path) -> list[Any]:
        if spec is None:
            return value
        result = [
            self.normalize(inner, item, (*path, at)) if (inner := spec.item(at)) else item
            for at, item in enumerate(value)
        ]
        return result if any(new is not old for new, old in zip(result, value, strict=True)) else value

    def _float(self, location: Location, value: float, path: Path) -> Any:
        """A number with a fraction or an exponent; its digits are kept where the type can hold them all."""
        spec = self._chosen(location, value)
        root = self.validator.schema
        several = spec is None and takes(root, location, "integer") and abs(value) >= EXACT
        exact = spec is not None and spec.get("format") == "decimal"
        if not self.validator.typed or self.repairer.text is None or not (several or exact):
            return self._whole(spec, value, path) if value.is_integer() else value
        numbers = {Decimal(form) for form in self.repairer.written(value)}
        if numbers == {Decimal(repr(value))}:
            return value
        result: str | int | None = only({str(number) for number in numbers}) if exact else None
        if result is None and several and len(numbers) == 1:
            (number,) = numbers
            result = int(number) if number == number.to_integral_value() else None
        if result is None or not self.validator.fits(location, result):
            self._refuse(path, "has more digits than can be read in this form", "fewer digits, or a text", value)
            return value
        self.repairer.note("number as written", path, value, result, changed=False)
        return result

    def _whole(self, spec: Spec | None, value: float, path: Path) -> float:
        """Read an integer that was written with a fraction or exponent, exact to the last digit or not at all."""
        kinds = spec.kinds if spec is not None else None
        if kinds is None or "integer" not in kinds or "number" in kinds:
            return value
        result = int(value) if abs(value) < EXACT else self._as_written(value)
        if result is None:
            self._refuse(path, "is too large to be read exactly in this form", "digits alone", value)
            return value
        self.repairer.note("whole number", path, value, result, changed=False)
        return result

    def _as_written(self, value: float) -> int | None:
        written = only(self.repairer.written(value)) if self.repairer.text is not None else None
        try:
            number = Decimal(written or "")
        except InvalidOperation:
            return None
        return int(number) if number == number.to_integral_value() else None

    def _check_float(self, spec: Spec | None, value: int, path: Path) -> None:
        """Refuse an integer that a float cannot represent instead of rounding it."""
        if spec is None or spec.kinds != frozenset(("number",)) or spec.get("format") == "decimal":
            return
        try:
            exact = int(float(value)) == value
        except OverflowError:
            exact = False
        if not exact:
            self._refuse(path, "has more digits than a number of this type can hold", "fewer digits", value)
