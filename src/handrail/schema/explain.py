"""Find out what is wrong with a value, and say it in plain words; the work is bounded for any value."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from handrail.schema.places import ROOT, Place, View, kind_of, look, takes
from handrail.schema.words import describe, dotted, near, shorten, show

MOST_PROBLEMS: Final = 50
MOST_HOPS: Final = 8
"""Branches inside branches that are looked into."""
Path = tuple[str | int, ...]
Convert = Callable[[Mapping[str, Any]], dict[str, Any]]
Fits = Callable[[Place, Any], bool]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the arguments."""

    path: str
    """Dotted, such as `items[0].name`; empty for the arguments as a whole."""
    message: str
    expected: str
    received: str


class NotConvertible(Exception):
    """Arguments that fit the schema, and that the function's own types refuse."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


def explain(root: Mapping[str, Any], fits: Fits, value: Any) -> list[Problem]:
    """Every problem, at most MOST_PROBLEMS: what is missing, what is wrong, what is unknown."""
    found: dict[Problem, None] = {}
    for problem in _Explainer(root, fits).at(ROOT, value, ()):
        found[problem] = None
        if len(found) >= MOST_PROBLEMS:
            break
    return list(found)


class _Explainer:
    def __init__(self, root: Mapping[str, Any], fits: Fits) -> None:
        self.root = root
        self.fits = fits

    def at(self, place: Place, value: Any, path: Path, hops: int = 0) -> Iterator[Problem]:
        if self.fits(place, value):
            return
        view = look(self.root, place)
        inner: list[Iterator[Problem]] = []
        if self._right_kind(view, value):
            inner = [
                self._object(view, value, path),
                self._list(view, value, path),
                self._branch(view, value, path, hops),
            ]
        some = False
        for problems in inner:
            for problem in problems:
                some = True
                yield problem
        if not some:
            yield self._whole(place, view, value, path)

    def _right_kind(self, view: View, value: Any) -> bool:
        kinds = view.kinds
        return kinds is None or kind_of(value) in kinds

    def _object(self, view: View, value: Any, path: Path) -> Iterator[Problem]:
        if not isinstance(value, dict):
            return
        declared = view.properties
        for name in view.required:
            if name not in value:
                yield self._missing(declared.get(name, ()), (*path, name))
        others = view.others
        for name, held in value.items():
            inner = declared.get(name, others)
            if inner:
                yield from self.at(inner, held, (*path, name))
        if view.closed and not view.patterned:
            yield from self._unknown(list(declared), value, path)

    def _missing(self, place: Place, path: Path) -> Problem:
        where, wanted = dotted(path), self._wanted(place)
        return Problem(where, f"`{where}` is missing: {wanted}", wanted, "nothing")

    def _unknown(self, declared: list[str], value: Mapping[str, Any], path: Path) -> Iterator[Problem]:
        wanted = f"only {shorten(', '.join(declared), 150)}" if declared else "no keys at all"
        missing = [name for name in declared if name not in value]
        known = set(declared)
        for name in value:
            if name not in known:
                where, meant = dotted((*path, shorten(name))), near(name, missing)
                sent = f": you sent `{shorten(name)}`, the schema has `{meant}`"
                yield Problem(
                    where,
                    f"`{where}` is not known{sent if meant else f'; the schema has {wanted}'}",
                    wanted,
                    show(value[name]),
                )

    def _list(self, view: View, value: Any, path: Path) -> Iterator[Problem]:
        if isinstance(value, list | tuple):
            for at, held in enumerate(value):
                if inner := view.item(at):
                    yield from self.at(inner, held, (*path, at))

    def _branch(self, view: View, value: Any, path: Path, hops: int) -> Iterator[Problem]:
        """Look inside a branch only when no other could be meant."""
        if not isinstance(value, dict | list) or hops > MOST_HOPS:
            return
        for _, group in view.branches:
            possible = [inner for inner in group if takes(self.root, (inner,), kind_of(value))]
            if len(possible) == 1 and not self.fits((possible[0],), value):
                yield from self.at((possible[0],), value, path, hops + 1)

    def _whole(self, place: Place, view: View, value: Any, path: Path) -> Problem:
        where, wanted = dotted(path), self._wanted(place)
        subject = f"`{where}`" if where else "the whole of the arguments"
        members = list(view.members or ())
        for _, group in view.branches:
            members += [member for inner in group for member in look(self.root, (inner,)).members or ()]
        meant = near(value, members)
        hint = f": you sent {show(value)}, the schema has {show(meant)}" if meant else ""
        if wanted == "any value" or (isinstance(value, dict) and self._right_kind(view, value)):
            return Problem(where, f"{subject} does not fit together as the schema wants it", wanted, show(value))
        return Problem(where, f"{subject} must be {wanted}{hint}", wanted, show(value))

    def _wanted(self, place: Place) -> str:
        words = dict.fromkeys(describe({"$ref": pointer}, self.root) for pointer in place)
        return shorten(" and ".join(words), 200) or "any value"
