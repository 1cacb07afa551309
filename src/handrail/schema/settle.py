"""Tidy arguments that fit already: blanks in optional text of our own tools go, whole floats become integers."""

from typing import Any, Final

from handrail.schema.places import Place, View, takes
from handrail.schema.repair import Path, Repairer, keeps_blank

EXACT: Final = 2**53
"""Floats beyond it do not tell one integer from the next."""


class Settler:
    """One walk through valid arguments."""

    def __init__(self, repairer: Repairer) -> None:
        self.repairer = repairer
        self.validator = repairer.validator
        self.unknown: list[Path] = []
        """Keys that an open schema lets pass without knowing them."""

    def settle(self, place: Place, value: Any, path: Path = ()) -> Any:
        """The value with fillers gone; the very same object when there were none."""
        if isinstance(value, dict):
            return self._object(self._chosen(place, value), value, path)
        if isinstance(value, list):
            return self._list(self._chosen(place, value), value, path)
        if type(value) is float and value.is_integer() and abs(value) <= EXACT:
            return self._number(self._chosen(place, value), value, path)
        return value

    def _chosen(self, place: Place, value: Any) -> View | None:
        """What applies to the value, with the one branch that accepts it; None where several do."""
        for _ in range(8):
            view = self.validator.view(place)
            more: list[str] = []
            for _, group in view.branches:
                accepting = [inner for inner in group if self.validator.fits((inner,), value)]
                if len(accepting) > 1:
                    return None
                more += [inner for inner in accepting if inner not in place]
            if not more:
                return view
            place = (*place, *more)
        return None

    def _object(self, view: View | None, value: dict[str, Any], path: Path) -> dict[str, Any]:
        if view is None:
            return value
        declared, others, required = view.properties, view.others, set(view.required)
        open_to_all = bool(declared) and not (view.closed or view.patterned or others)
        found: dict[str, Any] = {}
        changed = False
        for name, held in value.items():
            inner = declared.get(name, others)
            if name not in declared and open_to_all:
                self.unknown.append((*path, name))
            if held == "" and name in declared and name not in required and self._is_blank(inner):
                self.repairer.note("blank left out", (*path, name), held, None, changed=False)
                changed = True
                continue
            found[name] = self.settle(inner, held, (*path, name)) if inner else held
            changed = changed or found[name] is not held
        return found if changed else value

    def _is_blank(self, place: Place) -> bool:
        if not self.repairer.own or not takes(self.validator.schema, place, "string"):
            return False
        chosen = self._chosen(place, "")
        return not keeps_blank(self.validator.view(place)) and (chosen is None or not keeps_blank(chosen))

    def _list(self, view: View | None, value: list[Any], path: Path) -> list[Any]:
        if view is None:
            return value
        found = [
            self.settle(inner, held, (*path, at)) if (inner := view.item(at)) else held for at, held in enumerate(value)
        ]
        return found if any(new is not old for new, old in zip(found, value, strict=True)) else value

    def _number(self, view: View | None, value: float, path: Path) -> float:
        kinds = view.kinds if view is not None else None
        if kinds is None or "integer" not in kinds or "number" in kinds:
            return value
        self.repairer.note("whole number", path, value, int(value), changed=False)
        return int(value)
