"""Whether a changed value matters: always, unless the schema says `"consequential": false`."""

from collections.abc import Callable

from handrail.schema.places import ROOT, Place, View

Path = tuple[str | int, ...]


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
